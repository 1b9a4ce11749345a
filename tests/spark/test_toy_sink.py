"""A sink kind of somebody else's: two files in a folder and two registry entries, and nothing of the product is changed.

It is validated, planned, synthesised, and a Spark job runs into it.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from etl import run
from etl.settings import DeriveSettings, parse
from etl.sinks import SINKS
from etl.strict import SettingsError
from etl.tables import Table
from tests.spark.batches import Events, frame, good, kafka_rows, lander

ROOT = Path(__file__).parents[2]

ASKED = '''
"""What may be asked for."""
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

from pydantic import Field

from millrace.config.grants import Grant, allow
from millrace.config.problems import Finding
from millrace.config.sinks.base import Promise, SinkConfig, SinkContext, SinkUse


class ToySink(SinkConfig):
    """Lines of JSON in a folder."""

    promise = Promise("a line", "exactly once", "nothing", "all rows as written")
    refuses: ClassVar[bool] = False
    replaces: ClassVar[bool] = False
    services: ClassVar[tuple[str, ...]] = ("sqs",)

    kind: Literal["toy"]
    folder: str = Field(description="An absolute path.", examples=["/srv/toy"])

    @property
    def place(self) -> tuple[str, str]:
        return "folder", f"toy {self.folder}"

    @property
    def ports(self) -> tuple[int, ...]:
        return (7777,)

    def check(self, use: SinkUse) -> Iterator[Finding]:
        if not self.folder.startswith("/"):
            yield Finding((*use.path, "folder"), self.folder, "an absolute path")

    def settings(self, context: SinkContext) -> dict[str, Any]:
        return {"kind": self.kind, "folder": self.folder, "region": context.names.environment.region}

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        yield allow("Play", ["sqs:SendMessage"], [context.names.arn("sqs", "toy")])
'''

RUNS = '''
"""What runs."""
from dataclasses import dataclass
from typing import Literal

from etl.sinks import SinkSettings
from etl.sinks.base import Written


@dataclass(frozen=True)
class ToySettings(SinkSettings):
    kind: Literal["toy"]
    folder: str
    region: str

    @property
    def target(self):
        return self.folder

    def open(self, context):
        return Toy(self)


@dataclass(frozen=True)
class Toy:
    settings: ToySettings
    sends = True

    def prepare(self, spark, schema):
        pass

    def write(self, rows, place, refuse, again=None):
        offered = rows.count()
        rows.write.mode("overwrite").json(f"{self.settings.folder}/{place.run}-{place.batch}")
        return Written(offered, offered, ran=rows)
'''

ENVIRONMENT = """\
project: shop
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

SYNTHESISE = """
import json, sys
from pathlib import Path
from aws_cdk import App
from infra.deployment import build
from millrace.config import Names, load
from millrace.config.schema import json_schema
from millrace.sizing import plan

environment = load("toy")
names, numbers = Names(environment, environment.account), plan(environment)
context = json.loads((Path(sys.argv[2]) / "cdk.json").read_text())["context"]
app = App(outdir=sys.argv[1], context=context, analytics_reporting=False)
build(app, names=names, plan=numbers, root=Path(sys.argv[2]))
app.synth()
found = json_schema()["$defs"]["ToySink"]["properties"]["folder"]
print(json.dumps({"services": numbers.network.services, "schema": found}))
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project whose environment names the kind, and a distribution that brings it."""
    home = tmp_path / "project"
    (home / "environments").mkdir(parents=True)
    (home / "pipelines").symlink_to(ROOT / "pipelines")
    (home / "environments" / "toy.yaml").write_text(ENVIRONMENT.format(folder=tmp_path / "played"))
    held = tmp_path / "held"
    entry = held / "toy-1.0.dist-info"
    entry.mkdir(parents=True)
    (entry / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (entry / "entry_points.txt").write_text("[millrace.sinks]\ntoy = toy_asked:ToySink\n")
    (held / "toy_asked.py").write_text(ASKED)
    (held / "toy_runs.py").write_text(RUNS)
    return home


def tool(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(project.parent / "held"), str(ROOT)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_mistake_in_it_is_told_as_any_other(project: Path) -> None:
    file = project / "environments" / "toy.yaml"
    file.write_text(ENVIRONMENT.format(folder="here, colour: red"))
    done = tool(project, "-m", "millrace", "validate", "--env", "toy")
    assert done.returncode == 2, done.stderr
    told = done.stdout + done.stderr
    assert "jobs.clicks.queries.play.sink.folder" in told
    assert "an absolute path" in told
    assert "jobs.clicks.queries.play.sink.colour" in told
    assert "one of kind, folder" in told
    file.write_text(ENVIRONMENT.format(folder="/here").replace("kind: toy", "kind: toyy"))
    done = tool(project, "-m", "millrace", "validate", "--env", "toy")
    assert "did you mean toy?" in done.stdout + done.stderr


def test_it_is_validated_planned_synthesised_and_run(
    project: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for verb in ("validate", "plan"):
        done = tool(project, "-m", "millrace", verb, "--env", "toy")
        assert done.returncode == 0, done.stderr
    assert "the toy sink of clicks/play" in done.stdout
    out = tmp_path / "out"
    done = tool(project, "-c", SYNTHESISE, str(out), str(ROOT))
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert "sqs" in told["services"]
    assert told["schema"]["examples"] == ["/srv/toy"]
    text = {file.name: file.read_text() for file in out.glob("*.template.json")}
    (job,) = (json.loads(each) for name, each in text.items() if "-job-" in name)
    statements = [
        statement
        for each in job["Resources"].values()
        for statement in each.get("Properties", {}).get("PolicyDocument", {}).get("Statement", [])
    ]
    (play,) = (each for each in statements if each.get("Sid") == "Play")
    assert play["Resource"] == "arn:aws:sqs:us-east-1:111122223333:toy"
    (network,) = (each for name, each in text.items() if "-network" in name)
    assert '"FromPort": 7777' in network
    url = job["Outputs"]["LaunchDocument"]["Value"]
    settings = json.loads((out / f"asset.{url.rsplit('/', 1)[1]}").read_text())["settings"]
    (play,) = (query for query in settings["queries"] if query["name"] == "play")
    assert play["sink"] == {"kind": "toy", "folder": str(tmp_path / "played"), "region": "us-east-1"}

    # The core does not know it, until its registry does.
    with pytest.raises(SettingsError, match="'toy' is not one of 'iceberg'"):
        parse(settings)
    monkeypatch.syspath_prepend(str(tmp_path / "held"))
    monkeypatch.setitem(SINKS, "toy", "toy_runs:ToySettings")
    job_settings = parse(settings)
    (query,) = (each for each in job_settings.queries if isinstance(each, DeriveSettings))
    table = Table.of("lake", query.source_table)
    lander(spark, table, Events())(frame(spark, kafka_rows(0, 0, [good(n) for n in range(9)])), 0)
    alone = dataclasses.replace(job_settings, checkpoints=str(tmp_path / "checkpoints"), queries=(query,))
    for _ in range(2):
        events = Events()
        drained(spark, alone, events)
        assert {each["query"] for each in events.all() if each["event"] == "batch"} <= {"play"}
    rows = spark.read.json(f"{tmp_path / 'played'}/*").collect()
    assert sorted(row["flight"] for row in rows) == list(range(9))


def drained(spark: SparkSession, job: Any, events: Events) -> None:
    """Run the job's query over what is there, then end."""
    (query,) = run.build(spark, job, {}, events.reporter)
    running = (
        query.rows.writeStream.option("checkpointLocation", query.checkpoint)
        .foreachBatch(query.handle)
        .start()
    )
    try:
        running.processAllAvailable()
    finally:
        running.stop()
