"""A source kind from another distribution needs two files, two registry entries and no change of the product.

It is validated, planned, synthesised, and a Spark job lands its records, each once.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.launch.settings import parse_job_settings
from millrace.etl.launch.sources import Source
from millrace.etl.launch.typed_json import SettingsError
from millrace.etl.record.tables import Table
from tests.spark.source_batches import Events
from tests.spark.toy_projects import project, ran, refused, registered, synthesised

ASKED = '''
"""What may be asked for."""
from typing import ClassVar, Literal

from pydantic import Field
from toy_launch import ToySource

from millrace.config.aws.iam_statements import allow
from millrace.config.document.problems import Finding
from millrace.config.sources.base import Charge, PartitionLimit, StreamConfig


class ToyStream(StreamConfig):
    """Lines of files that somebody puts into a folder."""

    title = "toy folder"
    named_by = "folder"
    parts = "drawers"
    limits = (PartitionLimit(500.0, "records in"),)
    services: ClassVar[tuple[str, ...]] = ("sqs",)

    kind: Literal["toy"]
    folder: str = Field(description="An absolute path.", examples=["/srv/toy"])
    drawers: int | None = Field(default=None, description="Pins their number.")

    @property
    def name_scope(self):
        return "the disk"

    @property
    def belongs_to_others(self):
        return True

    @property
    def given_partitions(self):
        return self.drawers

    @property
    def topic_or_capacity_mode(self):
        return "folder"

    @property
    def ports_outside_vpc(self):
        return (7777,)

    def physical_name(self, name, prefix):
        return self.folder

    def arn(self, name, names):
        return names.arn("sqs", name)

    def check(self, use):
        if not self.folder.startswith("/"):
            yield Finding(("streams", use.name, "folder"), self.folder, "an absolute path")

    def launch_settings(self, name, context):
        kept = int(self.retention.total_seconds())
        return ToySource(name, context.query.start, kept, self.folder, 1)

    @classmethod
    def grants(cls, streams, context):
        yield allow("Play", ["sqs:ReceiveMessage"], [each.arn(name, context.names) for name, each in streams.items()])

    def charges(self, usage):
        yield Charge("drawers", usage.partitions * 730, "kinesis.shard_hour", "as dear as shards", assumed=True)
'''

LAUNCH = '''
"""What both sides know."""
from dataclasses import dataclass
from typing import Literal

from millrace.etl.launch.sources import Source


@dataclass(frozen=True)
class ToySource(Source):
    MODULE = "toy_runs"

    name: str
    start: str
    retention_seconds: int
    folder: str
    files: int
    kind: Literal["toy"] = "toy"

    @property
    def physical_name(self):
        return self.folder

    def stream_or_cluster_of_positions(self, job):
        return self.folder
'''

RUNS = '''
"""What runs."""
from functools import partial

from pyspark.sql import functions as F

from millrace.etl.record.envelope import HEADERS
from millrace.etl.record.errors import StartError
from millrace.etl.sources.base import Leg, LegIdentity, SourceReader


class Reader(SourceReader):
    def open(self, context):
        return Leg(partial(self.read, context.run.spark))

    def leg_identity(self, run, query):
        return LegIdentity(self.source.folder, dict)  # a folder has no id

    def backfill_reader(self, run, query):
        raise StartError(f"--backfill {query}: lines have no time")

    def read(self, spark):
        lines = spark.readStream.format("text").option("maxFilesPerTrigger", self.source.files).load(self.source.folder)
        file = F.element_at(F.split(F.input_file_name(), "/"), -1)
        return lines.select(
            F.concat_ws("/", file, F.md5("value")).alias("_id"),
            F.lit(self.source.name).alias("_source"),
            file.alias("_shard"),
            F.lit(None).cast("string").alias("_position"),
            F.lit(None).cast("binary").alias("_key"),
            F.lit(None).cast(HEADERS).alias("_headers"),
            F.current_timestamp().alias("_arrived_at"),
            F.col("value").cast("binary").alias("payload"),
        )
'''

ENVIRONMENT = """\
project: sources
account: "111122223333"
streams:
  clicks:
    kind: toy
    folder: {folder}
    traffic: {{records_per_second: 2000, peak_factor: 2, record_size: 1KiB}}
jobs:
  clicks:
    engine: glue
    latency: 5m
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land: {{kind: land, source: clicks, table: clicks_landed, schema: pipelines/clicks/schemas/click.ddl}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "played").mkdir()
    return project(
        tmp_path,
        environment=ENVIRONMENT.format(folder=tmp_path / "played"),
        entry="millrace.sources toy toy_asked:ToyStream",
        asked=ASKED,
        launch=LAUNCH,
        runs=RUNS,
    )


def put(folder: Path, name: str, pages: range) -> None:
    click = {"session": "s", "referrer": None, "clicked_at": "2026-01-01T12:00:00Z"}
    lines = [json.dumps({**click, "page": str(page)}) for page in pages]
    (folder / name).write_text("\n".join(lines))


@pytest.mark.slow
def test_a_mistake_in_it_is_told_as_any_other(home: Path) -> None:
    file = home / "environments" / "toy.yaml"
    file.write_text(ENVIRONMENT.format(folder="here\n    colour: red"))
    told = refused(home)
    assert "streams.clicks.folder" in told
    assert "an absolute path" in told
    assert "streams.clicks.colour" in told
    file.write_text(ENVIRONMENT.format(folder="/here").replace("kind: toy", "kind: toyy"))
    assert "did you mean toy?" in refused(home)
    file.write_text(ENVIRONMENT.format(folder="/here").replace("schema:", "kafka: {headers: false}, schema:"))
    assert "nothing: clicks is a toy folder" in refused(home)


@pytest.mark.slow
def test_it_is_validated_planned_synthesised_and_run(
    home: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = synthesised(home)
    assert "toy folder" in made.plan
    assert "4,000 records/s in at peak, 500 a drawer" in made.plan
    assert "sqs" in made.services
    assert made.statement("Play")["Resource"] == "arn:aws:sqs:us-east-1:111122223333:clicks"
    (network,) = (each for name, each in made.templates.items() if "-network" in name)
    assert '"FromPort":7777' in network
    settings = json.loads(made.launch_document)["settings"]
    played = tmp_path / "played"
    assert settings["queries"][0]["routes"][0]["source"]["folder"] == str(played)

    # The core does not know it, until its registry does.
    with pytest.raises(SettingsError, match="'toy' is not one of 'kinesis'"):
        parse_job_settings(settings)
    registered(monkeypatch, home, Source.KINDS, "toy_launch:ToySource")
    job_settings = parse_job_settings(settings)
    (query,) = job_settings.queries
    first = dataclasses.replace(job_settings, checkpoints=str(tmp_path / "checkpoints"))
    again = dataclasses.replace(job_settings, checkpoints=str(tmp_path / "another"))
    put(played, "a", range(3))
    put(played, "b", range(3, 5))
    read = []
    for each, name in ((first, "c"), (first, "d"), (again, None)):
        events = Events()
        ran(spark, each, events)
        batches = [event for event in events.all() if event["event"] == "batch"]
        assert {event["query"] for event in batches} <= {"land"}
        read.append([sum(event[what] for event in batches) for what in ("read", "duplicates", "landed")])
        if name is not None:
            put(played, name, range(5, 9))
    assert read == [[5, 0, 5], [4, 0, 4], [13, 9, 4]]
    rows = spark.table(str(Table.from_name("lake", query.table))).collect()
    assert sorted((row["_shard"], int(row["page"])) for row in rows) == [
        *(("a", page) for page in range(3)),
        *(("b", page) for page in range(3, 5)),
        *((name, page) for name in ("c", "d") for page in range(5, 9)),
    ]
