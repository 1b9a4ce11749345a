"""An engine from another distribution needs two registry entries and no change of the product.

Its job is validated, planned, synthesised with a resource of its own, and runs here.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.launch.engine_interface_and_registry import ENGINES
from millrace.etl.launch.entry_script_arguments import parse_arguments, read_settings_of_document
from millrace.etl.launch.settings import DeriveSettings, parse_job_settings
from millrace.etl.launch.typed_json import SettingsError
from millrace.etl.record.tables import Table
from tests.spark.source_batches import Events, frame, good, kafka_rows, lander
from tests.spark.toy_projects import project, ran, refused, registered, synthesised

ASKED = '''
"""What may be asked for."""
from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from millrace.config.engines.base import HourlyBillItem, JobBase, Worker
from millrace.config.document.problems import Finding


class ToyJob(JobBase):
    """A job on a shelf."""

    title = "Toys"
    spark_version_by_engine_version: ClassVar[Mapping[str, str]] = {"1": "3.5.7"}
    heap_share = "memory.heap_share.emr"
    metric_namespaces = ("Toys",)

    engine: Literal["toy"]
    version: Literal["1"] = "1"
    worker: int = Field(default=4, description="Its cores.", examples=[8])

    tasks_per_worker = property(lambda self: self.worker)
    disk_gib = property(lambda self: 20)
    hourly_bill_items = property(lambda self: billed(self.worker))

    def check(self, path):
        if self.worker % 4:
            yield Finding((*path, "worker"), str(self.worker), "a multiple of 4")

    @classmethod
    def possible_workers(cls, asked, needed):
        own = asked if isinstance(asked, cls) else None
        for cores in (4, 8):
            given = own is not None and (not own.worker_is_given or own.worker == cores)
            yield Worker(f"{cores} toys", "x86_64", cores, 8 * cores, cores, given, billed(cores))

    def with_worker(self, worker):
        return self.model_copy(update={"worker": worker.vcpu})


def billed(cores):
    return (HourlyBillItem("toys", cores, ("emr.x86_64.vcpu_hour",) * 2, "{count} of them for {hours} h"),)
'''

RUNS = '''
"""What runs."""
from millrace.etl.engines.glue_kinesis_connector import EngineWithGlueConnector


class Toys(EngineWithGlueConnector):
    ADDS_ARGUMENTS = True

    def kinesis_credential_options(self, environment):
        return {"toy": "yes"}
'''

DEPLOYED = '''
"""What is deployed."""
from aws_cdk import aws_sqs as sqs

from millrace.infra.engines.base import DeployedEngine
from millrace.infra.stacks.job_base import JobStack


class Toys(DeployedEngine):
    stack = "toy_deployed:ToyStack"

    def engine_spark_settings(self, job, plan, *, jars):
        return {"spark.toys": str(plan.executors.value)}

    def engine_launch_keys(self, job):
        return {"shelf": job.worker}


class ToyStack(JobStack):
    def __init__(self, scope, **given):
        super().__init__(scope, **given)
        sqs.CfnQueue(self, "Toys", queue_name="toys", sqs_managed_sse_enabled=True)
'''

ENVIRONMENT = """\
project: toys
account: "111122223333"
streams:
  clicks: {kind: kinesis, traffic: {records_per_second: 2000, peak_factor: 2, record_size: 1KiB}}
jobs:
  clicks:
    engine: toy
    latency: 5m
    rate: {records_per_second_per_core: 5000}
    queries:
      land: {kind: land, source: clicks, table: clicks_landed, schema: pipelines/clicks/schemas/click.ddl}
      play: {kind: derive, source: clicks_landed, sink: {kind: iceberg, table: played}}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return project(
        tmp_path,
        environment=ENVIRONMENT,
        entry="millrace.engines toy toy_asked:ToyJob\nmillrace.deployed_engines toy toy_deployed:Toys",
        asked=ASKED,
        runs=RUNS,
        deployed=DEPLOYED,
    )


@pytest.mark.slow
def test_a_mistake_in_it_is_told_as_any_other(home: Path) -> None:
    file = home / "environments" / "toy.yaml"
    file.write_text(ENVIRONMENT.replace("engine: toy", "engine: toy\n    worker: 6\n    colour: red"))
    told = refused(home)
    assert "jobs.clicks.worker" in told
    assert "a multiple of 4" in told
    assert "jobs.clicks.colour" in told
    file.write_text(ENVIRONMENT.replace("engine: toy", "engine: toyy"))
    assert "did you mean toy?" in refused(home)


@pytest.mark.slow
def test_it_is_validated_planned_synthesised_and_run(
    home: Path, tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = synthesised(home)
    assert "Toys 1, " in made.plan
    assert "of 4 toys" in made.plan
    job = made.job
    kinds = {each["Type"] for each in job["Resources"].values()}
    assert "AWS::SQS::Queue" in kinds
    assert not kinds & {
        "AWS::Glue::Job",
        "AWS::EMRServerless::Application",
        "AWS::StepFunctions::StateMachine",
    }
    document = json.loads(made.launch_document)
    assert (document["engine"], document["shelf"]) == ("toy", 4)
    assert int(document["spark"]["spark.toys"]) >= 1

    # The core does not know it, until its registry does.
    with pytest.raises(SettingsError, match="'toy' is not one of 'glue'"):
        parse_job_settings(document["settings"])
    registered(monkeypatch, home)
    monkeypatch.setitem(ENGINES, "toy", "toy_runs:Toys")
    settings = read_settings_of_document(
        made.launch_document, parse_arguments(["--launch-document", "x", "--toys-own", "argument"])
    )
    assert settings.runs_on.kinesis_credential_options({}) == {"toy": "yes"}
    (query,) = (each for each in settings.queries if isinstance(each, DeriveSettings))
    table = Table.from_name("lake", query.source_table)
    lander(spark, table, Events())(frame(spark, kafka_rows(0, 0, [good(n) for n in range(9)])), 0)
    ran(
        spark,
        dataclasses.replace(settings, checkpoints=str(tmp_path / "checkpoints"), queries=(query,)),
        Events(),
    )
    assert query.sink.lake_table is not None
    rows = spark.table(str(Table.from_name("lake", query.sink.lake_table))).collect()
    assert sorted(row["flight"] for row in rows) == list(range(9))
