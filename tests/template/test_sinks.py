"""An environment with every sink: permissions, network and settings of the core."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from millrace.config import load
from millrace.etl.launch import typed_json
from millrace.etl.launch.settings import parse_job_settings
from tests.template.conftest import ROOT, Synthesis, Synthesise

ACCOUNT = "111122223333"
SECRET = f"arn:aws:secretsmanager:us-east-1:{ACCOUNT}:secret:shop/db-AbCdEf"
KEY = f"arn:aws:kms:us-east-1:{ACCOUNT}:key/0123"
DOMAIN = f"arn:aws:es:us-east-1:{ACCOUNT}:domain/search"

HEAD = f"""\
project: shop
account: "{ACCOUNT}"
network: {{egress: endpoints}}
kafka:
  main: {{kind: msk}}
  theirs:
    kind: external
    bootstrap_servers: broker:9098
    authentication: iam
    arn: arn:aws:kafka:us-east-1:{ACCOUNT}:cluster/theirs/abc-1
streams:
  clicks: {{kind: kinesis, traffic: {{records_per_second: 2000, peak_factor: 2, record_size: 1KiB}}}}
  alerts: {{kind: kinesis, traffic: {{records_per_second: 10, record_size: 500B}}}}
  orders: {{kind: kafka, cluster: main, topic: orders, traffic: {{records_per_second: 100, record_size: 1KiB}}}}
  totals: {{kind: kafka, cluster: theirs, existing: true, partitions: 3, traffic: {{records_per_second: 1, record_size: 1KiB}}}}
jobs:
"""

JOB = """\
  {name}:
    engine: {engine}
    latency: 5m
    rate: {{records_per_second_per_core: 5000}}
    queries:
"""

LAND = """\
      land-clicks: {kind: land, source: clicks, table: clicks_landed, schema: pipelines/clicks/schemas/click.ddl}
"""

DERIVE = """\
      {name}:
        kind: derive
        source: clicks_landed
        trigger: 60s
        sink: {sink}
"""

SINKS = {
    "jdbc": f"{{kind: jdbc, url: 'jdbc:postgresql://db.shop:6432/shop?currentSchema=shop', table: clicks, secret: '{SECRET}', secret_key: '{KEY}'}}",
    "kafka": "{kind: kafka, topic: totals, key: page}",
    "kinesis": "{kind: kinesis, stream: alerts, max_record_size: 500KiB}",
    "dynamodb": "{kind: dynamodb, table: clicks}",
    "opensearch": f"{{kind: opensearch, domain: '{DOMAIN}', endpoint: 'https://search.shop', index: clicks}}",
    "parquet": "{kind: parquet, table: clicks, file_size: 64MiB}",
}

DIRECT = """\
      orders-out:
        kind: direct
        source: orders
        schema: pipelines/clicks/schemas/click.ddl
        sink: {kind: dynamodb, table: orders}
        dead_letters: orders_letters
"""


def text() -> str:
    parts = [HEAD, JOB.format(name="clicks", engine="glue"), LAND]
    engines = {"glue": ("jdbc", "kinesis", "parquet", "opensearch"), "emr": ("kafka", "dynamodb")}
    for engine, kinds in engines.items():
        if engine == "emr":
            parts.append(JOB.format(name="out", engine="emr"))
        for kind in kinds:
            letters = "" if kind == "parquet" else f"        dead_letters: {kind}_letters\n"
            latest = "        latest_by: [page]\n" if kind == "dynamodb" else ""
            parts.append(DERIVE.format(name=f"to-{kind}", sink=SINKS[kind]) + letters + latest)
    parts.append(DIRECT)
    jdbc = SINKS["jdbc"].replace("table: clicks", "table: shop.clicks")
    parts.append(DERIVE.format(name="to-jdbc", sink=jdbc) + "        dead_letters: shop_letters\n")
    return "".join(parts)


Of = Callable[[], Synthesis]


@pytest.fixture(scope="module")
def of(synthesise: Synthesise, tmp_path_factory: pytest.TempPathFactory) -> Of:
    """Give the environment's synthesis, made once."""
    root = tmp_path_factory.mktemp("project")
    (root / "environments").mkdir()
    (root / "environments" / "sinks.yaml").write_text(text())
    (root / "pipelines").symlink_to(Path(ROOT) / "pipelines")
    return functools.cache(lambda: synthesise(load("sinks", root=root)))


def sink_of(found: Synthesis, job: str, query: str) -> dict[str, Any]:
    (written,) = [q for q in found.documents[job]["settings"]["queries"] if q["name"] == query]
    ends = written.get("routes", [written])
    return dict(ends[0]["sink"])


def test_the_core_reads_what_is_written_of_a_sink(of: Of) -> None:
    result = of()
    for document in result.documents.values():
        assert typed_json.to_json_value(parse_job_settings(document["settings"])) == document["settings"]
    assert sink_of(result, "clicks", "to-jdbc") == {
        "kind": "jdbc", "url": "jdbc:postgresql://db.shop:6432/shop?currentSchema=shop", "table": "public.clicks",
        "secret": SECRET, "region": "us-east-1", "connections": 8, "tls": "verify-full", "authorities": None,
    }  # fmt: skip
    # 2,000 a second at a peak of 2, for 60 s, of 1 KiB: 234 MiB, in files of 64.
    assert sink_of(result, "clicks", "to-parquet") == {
        "kind": "parquet", "files_per_batch": 4,
        "path": f"s3://shop-sinks-lake-{ACCOUNT}-us-east-1/parquet/shop_sinks/clicks",
    }  # fmt: skip
    assert sink_of(result, "clicks", "to-kinesis")["stream"] == "shop-sinks-alerts"
    assert sink_of(result, "clicks", "to-opensearch")["region"] == "us-east-1"
    assert sink_of(result, "out", "to-kafka") == {
        "kind": "kafka", "topic": "totals", "connection": "theirs", "key": "page", "max_record_bytes": 1_024_000,
    }  # fmt: skip
    assert sorted(result.documents["out"]["settings"]["connections"]) == ["main", "theirs"]


def test_a_job_may_write_its_sinks_and_nothing_else(of: Of) -> None:
    result = of()
    assert result.findings == []
    told = {
        (job, s["Sid"]): (s["Action"], s["Resource"])
        for job, s in result.statements()
        if job.startswith("job-")
    }
    arn = f"arn:aws:{{}}:us-east-1:{ACCOUNT}:{{}}".format
    assert told["job-clicks", "ReadSecrets"] == ("secretsmanager:GetSecretValue", SECRET)
    assert told["job-clicks", "DecryptSecrets"] == ("kms:Decrypt", KEY)
    assert told["job-clicks", "WriteStreams"] == (
        ["kinesis:DescribeStreamSummary", "kinesis:GetRecords", "kinesis:GetShardIterator", "kinesis:ListShards",
         "kinesis:PutRecords"], arn("kinesis", "stream/shop-sinks-alerts"),
    )  # fmt: skip
    assert told["job-clicks", "EncryptStreams"][0] == ["kms:Decrypt", "kms:GenerateDataKey"]
    assert told["job-clicks", "WriteDocuments"] == ("es:ESHttpPost", f"{DOMAIN}/clicks/_bulk")
    lake = f"arn:aws:s3:::shop-sinks-lake-{ACCOUNT}-us-east-1"
    assert told["job-clicks", "WriteFiles"][1] == f"{lake}/parquet/shop_sinks/clicks/*"
    assert told["job-out", "WriteItems"] == (
        ["dynamodb:BatchWriteItem", "dynamodb:DescribeTable", "dynamodb:PutItem"],
        [arn("dynamodb", "table/clicks"), arn("dynamodb", "table/orders")],
    )
    assert told["job-out", "DeleteItems"] == ("dynamodb:DeleteItem", arn("dynamodb", "table/clicks"))
    assert told["job-out", "WriteTheirs"] == (
        ["kafka-cluster:DescribeTopic", "kafka-cluster:DescribeTopicDynamicConfiguration", "kafka-cluster:ReadData",
         "kafka-cluster:WriteData"],
        arn("kafka", "topic/theirs/abc-1/totals"),
    )  # fmt: skip
    assert told["job-out", "ReadBackTheirs"] == (
        ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"],
        arn("kafka", "group/theirs/abc-1/spark-kafka-relation-*"),
    )
    assert told["job-out", "ConnectToTheirs"][0] == [
        "kafka-cluster:Connect",
        "kafka-cluster:WriteDataIdempotently",
    ]
    assert ("job-clicks", "WriteItems") not in told
    assert ("job-out", "WriteStreams") not in told
    letters = json.dumps(told["job-clicks", "WriteTables"][1])
    assert all(f"/{kind}_letters" in letters for kind in ("jdbc", "kinesis", "opensearch"))


def test_what_jobs_write_to_can_be_reached(of: Of) -> None:
    result = of()
    assert "secretsmanager" in result.plan.network.services
    services = [
        json.dumps(e["Properties"]["ServiceName"]) for e in result.resources("AWS::EC2::VPCEndpoint").values()
    ]
    assert any("secretsmanager" in name for name in services)
    assert any("dynamodb" in name for name in services)
    (workers,) = [
        g["Properties"]
        for name, g in result.resources("AWS::EC2::SecurityGroup").items()
        if "Workers" in name
    ]
    assert {5432, 6432} & {rule["FromPort"] for rule in workers["SecurityGroupEgress"]} == {6432}


def test_jars_go_where_the_engine_lacks_them(of: Of) -> None:
    jars = {job: " ".join(document["jars"]) for job, document in of().documents.items()}
    assert jars["clicks"] == ""
    assert len(jars["out"].split()) > len(list((ROOT / ".millrace/jars/kafka-client").glob("*.jar")))
