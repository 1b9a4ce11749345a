"""A sink kind from another distribution needs two files, two registry entries and no change of the product.

It is validated, planned, synthesised, and a Spark job runs into it.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.launch.settings import DeriveSettings, parse_job_settings
from millrace.etl.launch.sinks import SinkSettings
from millrace.etl.launch.typed_json import SettingsError
from millrace.etl.record.tables import Table
from tests.spark.source_batches import Events, frame, good, kafka_rows, lander
from tests.spark.toy_projects import project, ran, refused, registered, synthesised, tool

ASKED = '''
"""What may be asked for."""
from collections.abc import Iterator
from typing import ClassVar, Literal

from pydantic import Field
from toy_launch import ToySettings

from millrace.config.aws.iam_statements import Grant, allow
from millrace.config.document.problems import Finding
from millrace.config.sinks.base import SinkConfig, SinkContext, SinkUse


class ToySink(SinkConfig):
    """Lines of JSON in a folder."""

    refuses: ClassVar[bool] = False
    replaces: ClassVar[bool] = False
    services: ClassVar[tuple[str, ...]] = ("sqs",)

    kind: Literal["toy"]
    folder: str = Field(description="An absolute path.", examples=["/srv/toy"])

    @property
    def target_key_and_name(self) -> tuple[str, str]:
        return "folder", f"toy {self.folder}"

    @property
    def ports_outside_vpc(self) -> tuple[int, ...]:
        return (7777,)

    def check(self, use: SinkUse) -> Iterator[Finding]:
        if not self.folder.startswith("/"):
            yield Finding((*use.path, "folder"), self.folder, "an absolute path")

    def launch_settings(self, context: SinkContext) -> ToySettings:
        return ToySettings(self.folder, context.names.environment.region)

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        yield allow("Play", ["sqs:SendMessage"], [context.names.arn("sqs", "toy")])
'''

LAUNCH = '''
"""What both sides know."""
from dataclasses import dataclass
from typing import Literal

from millrace.etl.launch.sinks import SinkSettings


@dataclass(frozen=True)
class ToySettings(SinkSettings):
    MODULE = "toy_runs"
    NAMED_BY = "folder"

    folder: str
    region: str
    kind: Literal["toy"] = "toy"
'''

RUNS = '''
"""What runs."""
from dataclasses import dataclass

from millrace.etl.sinks.base import WriteCounts


def open_sink(settings, run, key):
    return Toy(settings)


@dataclass(frozen=True)
class Toy:
    settings: object
    acts_on_rdd = True

    def prepare(self, spark, schema):
        pass

    def write(self, rows, place, refuse, reread=None):
        offered = rows.count()
        rows.write.mode("overwrite").json(f"{self.settings.folder}/{place.run}-{place.batch}")
        return WriteCounts(offered, offered, ran=rows)
'''

ENVIRONMENT = """\
project: sinks
account: "111122223333"
streams:
  clicks: {{kind: kinesis, traffic: {{records_per_second: 2000, peak_factor: 2, record_size: 1KiB}}}}
jobs:
  clicks:
    engine: glue
    latency: 5m
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land: {{kind: land, source: clicks, table: clicks_landed, schema: pipelines/clicks/schemas/click.ddl}}
      play:
        kind: derive
        source: clicks_landed
        sink: {{kind: toy, folder: {folder}}}
"""

SCHEMA = """
import json
from millrace.config.environment_json_schema import json_schema

print(json.dumps(json_schema()["$defs"]["ToySink"]["properties"]["folder"]))
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return project(
        tmp_path,
        environment=ENVIRONMENT.format(folder=tmp_path / "played"),
        entry="millrace.sinks toy toy_asked:ToySink",
        asked=ASKED,
        launch=LAUNCH,
        runs=RUNS,
    )


@pytest.mark.slow
def test_a_mistake_in_it_is_told_as_any_other(home: Path) -> None:
    file = home / "environments" / "toy.yaml"
    file.write_text(ENVIRONMENT.format(folder="here, colour: red"))
    told = refused(home)
    assert "jobs.clicks.queries.play.sink.folder" in told
    assert "an absolute path" in told
    assert "jobs.clicks.queries.play.sink.colour" in told
    assert "one of kind, folder" in told
    file.write_text(ENVIRONMENT.format(folder="/here").replace("kind: toy", "kind: toyy"))
    assert "did you mean toy?" in refused(home)


@pytest.mark.slow
def test_it_is_validated_planned_synthesised_and_run(
    home: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = synthesised(home)
    assert "the toy sink of clicks/play" in made.plan
    assert "sqs" in made.services
    assert json.loads(tool(home, "-c", SCHEMA).stdout)["examples"] == ["/srv/toy"]
    assert made.statement("Play")["Resource"] == "arn:aws:sqs:us-east-1:111122223333:toy"
    (network,) = (each for name, each in made.templates.items() if "-network" in name)
    assert '"FromPort":7777' in network
    settings = json.loads(made.launch_document)["settings"]
    (play,) = (query for query in settings["queries"] if query["name"] == "play")
    assert play["sink"] == {"folder": str(tmp_path / "played"), "region": "us-east-1", "kind": "toy"}

    # The core does not know it, until its registry does.
    with pytest.raises(SettingsError, match="'toy' is not one of 'iceberg'"):
        parse_job_settings(settings)
    registered(monkeypatch, home, SinkSettings.KINDS, "toy_launch:ToySettings")
    job_settings = parse_job_settings(settings)
    (query,) = (each for each in job_settings.queries if isinstance(each, DeriveSettings))
    table = Table.from_name("lake", query.source_table)
    lander(spark, table, Events())(frame(spark, kafka_rows(0, 0, [good(n) for n in range(9)])), 0)
    alone = dataclasses.replace(job_settings, checkpoints=str(tmp_path / "checkpoints"), queries=(query,))
    for _ in range(2):
        events = Events()
        ran(spark, alone, events)
        assert {each["query"] for each in events.all() if each["event"] == "batch"} <= {"play"}
    rows = spark.read.json(f"{tmp_path / 'played'}/*").collect()
    assert sorted(row["flight"] for row in rows) == list(range(9))
