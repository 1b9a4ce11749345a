"""The checkpoint bucket of a deployed shop, for tests that change checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from millrace.cli import app
from millrace.config import Environment, Names, load
from millrace.etl.checkpoints import manifest
from millrace.etl.launch.typed_json import versioned_json
from millrace.lifecycle.jobs.checkpoints import JobCheckpoints
from tests.launch_document_defaults import with_route
from tests.unit.etl.test_checkpoint_compatibility import KINESIS
from tests.unit.etl.test_launch_arguments import LAND, SETTINGS

ENVIRONMENT = """\
project: shop
streams:
  clicks:
    kind: kinesis
    traffic: {records_per_second: 100, record_size: 500B}
  out:
    kind: kinesis
    traffic: {records_per_second: 100, record_size: 500B}
jobs:
  clicks:
    engine: glue
    rate: {records_per_second_per_core: 5000}
    queries:
      land: {kind: land, source: clicks, table: landed, schema: pipelines/clicks/schemas/click.ddl}
      plain: {kind: derive, source: landed, sink: {kind: iceberg, table: plain}}
      onward: {kind: derive, source: landed, sink: {kind: kinesis, stream: out}, dead_letters: onward_letters}
      firsts:
        kind: derive
        source: landed
        state: {watermark: {time: _arrived_at, delay: 1h}, distinct: [session]}
        sink: {kind: iceberg, table: firsts}
  other:
    engine: glue
    rate: {records_per_second_per_core: 5000}
    queries:
      land-2: {kind: land, source: clicks, table: landed_2, schema: pipelines/clicks/schemas/click.ddl}
  on-emr:
    engine: emr
    rate: {records_per_second_per_core: 5000}
    queries:
      land-3: {kind: land, source: clicks, table: landed_3, schema: pipelines/clicks/schemas/click.ddl}
"""
MANIFEST = manifest.Manifest(
    "glue", "3.5.4", "0.1.0", "land", "land", (manifest.ManifestSource("kinesis", "us-east-1/shop-shop-clicks"),),
    {"": "iceberg shop_shop.landed"}, None, None, {}, {}, servers={"": "eu-west-1"},
)  # fmt: skip


def manifest_text(of: manifest.Manifest) -> str:
    """Return a manifest as it is stored."""
    return versioned_json(of, manifest.FORMAT)


class Shop:
    """A deployed environment's bucket of checkpoints, and the command line on it."""

    def __init__(self, folder: Path, s3: Any) -> None:
        self.file = folder / "shop.yaml"
        self.file.write_text(ENVIRONMENT)
        self.environment: Environment = load(str(self.file))
        self.names = Names(self.environment, "123456789012")
        self.s3, self.bucket = s3, self.names.bucket("checkpoints")
        s3.create_bucket(Bucket=self.bucket)
        self.of = JobCheckpoints(s3, self.names, "clicks")

    def put(self, key: str, text: str) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=text.encode())

    def begin(self, query: str = "land") -> None:
        """What Spark leaves after two batches, and the core beside it."""
        log = 'v1\n{"batchWatermarkMs":0}\n{"shardId-0":{"iteratorType":"AFTER","iteratorPosition":"7"}}'
        for name, text in {
            "metadata": '{"id":"1"}',
            "offsets/0": log,
            "offsets/1": log,
            "commits/0": "v1\n{}",
            "sources/0/shard-commit/0": "x",
        }.items():
            self.put(f"clicks/{query}/{name}", text)
        self.put(f"clicks/_millrace/{query}.manifest.json", manifest_text(MANIFEST))

    def names_of(self, prefix: str = "") -> list[str]:
        result = self.s3.list_objects_v2(Bucket=self.bucket, Prefix=prefix).get("Contents", [])
        return [item["Key"] for item in result if not item["Key"].endswith("lease.json")]

    def text(self, key: str) -> Any:
        return json.loads(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["checkpoint", *arguments, "--env", str(self.file)])


def document(**changed: Any) -> dict[str, Any]:
    """A launch document of the job whose checkpoint :data:`MANIFEST` is of."""
    source = {**KINESIS, "stream": "shop-shop-clicks", "region": "us-east-1"}
    query = {**LAND, "source": source, "table": "shop_shop.landed"}
    settings = {**SETTINGS, "job": "clicks", "queries": [with_route({**query, **changed.pop("query", {})})]}
    return {"engine": "glue", "engine_version": "5.1", "spark": {}, "settings": {**settings, **changed}}
