"""Running jobs on moto's server become environments that can be planned."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from botocore.exceptions import ClientError

from millrace.advisor.existing.environment_of_imported_job import (
    environment_document,
    find_values_to_fill_in,
    slug,
)
from millrace.advisor.existing.imported_job_event_log import read_log_figures
from millrace.advisor.existing.kafka_sign_in import NOT_ASKED, FoundCluster, find_msk_cluster
from millrace.advisor.existing.read_job_to_import import (
    RunningJob,
    read_running_emr_job,
    read_running_glue_job,
)
from millrace.advisor.logs.event_log_to_history import read_history as read_event_log
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.config import ConfigurationError, load
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.event_logs_with_known_costs import Truth, history, run
from tests.unit.advisor.settings_of_program import settings_of_program

ROOT = Path(__file__).parents[3]
CLUSTER = "arn:aws:kafka:us-east-1:123456789012:cluster/theirs/abcd1234-ab12-1"
SCHEMA = "pipelines/flights/schemas/flight.ddl"

CONF = (
    "spark.sql.shuffle.partitions=24 --conf spark.sql.session.timeZone=UTC --conf spark.sql.ansi.enabled=true "
    "--conf spark.network.timeout=300s --conf spark.executor.memory=10g"
)

GLUE = """
import sys
from awsglue.context import GlueContext
from awsglue.utils import getResolvedOptions

args = getResolvedOptions(sys.argv, ["JOB_NAME", "CHECKPOINT"])
STREAM = "arn:aws:kinesis:us-east-1:123456789012:stream/{stream}"
frame = glueContext.create_data_frame.from_options(
    connection_type="kinesis",
    connection_options={{
        "typeOfData": "kinesis", "streamARN": STREAM, "classification": "json",
        "startingPosition": "earliest", "maxFetchRecordsPerShard": "2500",
    }},
)
glueContext.forEachBatch(
    frame=frame, batch_function=write,
    options={{"windowSize": "20 seconds", "checkpointLocation": args["CHECKPOINT"]}},
)
"""

EMR = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--topic")
args = vars(parser.parse_args())
(spark.readStream.format("kafka")
    .option("kafka.bootstrap.servers", "b-1.theirs.example:9098,b-2.theirs.example:9098")
    .option("kafka.security.protocol", "SASL_SSL").option("kafka.sasl.mechanism", "AWS_MSK_IAM")
    .option("subscribe", args["topic"]).option("maxOffsetsPerTrigger", 30000)
    .load().writeStream.trigger(processingTime="10 seconds").start())
"""


@pytest.fixture
def theirs(client) -> str:
    """A bucket with both programs, a stream of three shards, a subnet, a connection, a job, an application."""
    name = f"orders-{uuid.uuid4().hex[:6]}"
    s3 = client("s3")
    s3.create_bucket(Bucket=name)
    s3.put_object(Bucket=name, Key="glue.py", Body=GLUE.format(stream=name).encode())
    s3.put_object(Bucket=name, Key="emr.py", Body=EMR.encode())
    client("kinesis").create_stream(StreamName=name, ShardCount=3)
    subnets = client("ec2").describe_subnets()["Subnets"][:2]
    made = client("glue")
    for place, subnet in enumerate(subnets):
        made.create_connection(
            ConnectionInput={
                "Name": f"{name}-{place}",
                "ConnectionType": "NETWORK",
                "ConnectionProperties": {},
                "PhysicalConnectionRequirements": {"SubnetId": subnet["SubnetId"]},
            }
        )
    made.create_job(
        Name=name,
        Role="theirs",
        Command={"Name": "gluestreaming", "ScriptLocation": f"s3://{name}/glue.py", "PythonVersion": "3"},
        DefaultArguments={"--CHECKPOINT": "s3://theirs/cp", "--conf": CONF},
        Connections={"Connections": [f"{name}-0", f"{name}-1"]},
        GlueVersion="4.0",
        WorkerType="G.1X",
        NumberOfWorkers=5,
        MaxRetries=2,
    )
    return name


@pytest.fixture
def run_of_emr(client, theirs) -> str:
    service = client("emr-serverless")
    application = service.create_application(name=theirs, releaseLabel="emr-7.13.0", type="SPARK")[
        "applicationId"
    ]
    submit = {
        "entryPoint": f"s3://{theirs}/emr.py",
        "entryPointArguments": ["--topic", "orders"],
        "sparkSubmitParameters": "--conf spark.executor.cores=4 --conf spark.executor.memory=14g "
        "--conf spark.dynamicAllocation.maxExecutors=6",
    }
    started = service.start_job_run(
        applicationId=application,
        executionRoleArn="arn:aws:iam::123456789012:role/theirs",
        jobDriver={"sparkSubmit": submit},
    )
    return f"{application}/{started['jobRunId']}"


@pytest.mark.slow
def test_a_glue_job_is_written_down_planned_and_told_how_to_leave(server, client, theirs, tmp_path):
    for folder in ("environments", "pipelines"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    asked = (
        *("import", f"glue:{theirs}", "--name", "moved", "--schema", SCHEMA, "--rate", "300", "--json"),
        *("--record-size", "600B", "--start", "2026-12-01T08:00:00Z"),
    )
    aws = {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }

    def millrace(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "millrace", *asked, *more],
            cwd=tmp_path,
            env=os.environ | aws,
            capture_output=True,
            text=True,
            check=False,
        )

    before = client("glue").get_job(JobName=theirs)["Job"]
    done = millrace()
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    found = load("moved", tmp_path)
    [stream] = found.streams.values()
    [job] = found.jobs.values()
    query, derived = job.queries.values()
    assert derived.transform.endswith(".imported:query_15")
    assert (stream.existing, stream.shards) == (f"arn:aws:kinesis:us-east-1:123456789012:stream/{theirs}", 3)
    assert (job.engine, job.version, job.worker, job.max_workers, job.retries) == (
        "glue",
        "5.1",
        "G.1X",
        5,
        2,
    )
    assert job.role == "arn:aws:iam::123456789012:role/theirs"
    assert job.spark == {"spark.sql.shuffle.partitions": "24"}
    assert (query.trigger.total_seconds(), query.records_per_batch) == (20.0, 7500)
    assert query.start == "2026-12-01T08:00:00Z"
    assert found.network.vpc is not None
    assert told["plan"]["today"]["workers"] == 5
    assert told["plan"]["computed"]["workers"] < 5
    deploy, _, start, *_ = told["cut_over"]
    assert "`millrace deploy --env moved --stopped`" in deploy
    assert start.startswith(f"`millrace start --env moved {theirs}` at 2026-12-01T08:00:00Z or later")
    assert any("_id = to_json(struct(KEY" in step for step in told["cut_over"])
    assert client("glue").get_job(JobName=theirs)["Job"] == before
    # What people write into the file stays; where it begins is all that a later import changes.
    file = tmp_path / "environments" / "moved.yaml"
    written = file.read_text() + "tags: {team: orders} # by hand\n"
    file.write_text(written)
    again = millrace("--start", "2026-12-01T09:30:00Z")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["begins"]["after"] == "2026-12-01T09:30:00Z"
    assert file.read_text() == written.replace("2026-12-01T08:00:00Z", "2026-12-01T09:30:00Z")
    file.write_text(f"# somebody else's\n{written}")
    refused = millrace()
    assert refused.returncode == 2
    assert "environments/moved.yaml exists and was not imported from glue:" in refused.stderr
    assert file.read_text() == f"# somebody else's\n{written}"


def test_spark_settings_that_validation_would_refuse_stay_out_and_are_told(client, theirs):
    found = read_running_glue_job(client, theirs, "us-east-1")
    assert found.job["spark"] == {"spark.sql.shuffle.partitions": "24"}
    left = "spark.network.timeout, spark.sql.ansi.enabled, spark.sql.session.timeZone"
    assert f"Spark settings left out: {left}" in found.notes


def test_an_emr_run_on_kafka_begins_where_its_log_ends(client, run_of_emr):
    application, _, number = run_of_emr.partition("/")
    found = read_running_emr_job(client, application, number, "us-east-1")
    made = environment_document(
        found, env="moved", project="moved", schema=SCHEMA, start="2026-12-01T08:00:00Z", rate=800.0, record_size="1KiB",
        twin=None, offsets={1: 70, 0: 50}, cluster=CLUSTER,
    )  # fmt: skip
    [job] = made["jobs"].values()
    assert job["worker"] == {"vcpu": 4, "memory": "16GiB", "disk": "20GiB"}
    assert (job["max_workers"], job["version"]) == (7, "emr-7.13.0")
    [query] = job["queries"].values()
    assert query["kafka"] == {"start_offsets": {0: 50, 1: 70}}
    assert "start" not in query
    assert (query["trigger"], query["records_per_batch"]) == ("10s", 30000)
    assert made["streams"]["orders"]["topic"] == "orders"
    cluster = made["kafka"]["theirs"]
    assert (cluster["authentication"], cluster["bootstrap_servers"].count(":9098")) == ("iam", 2)
    assert cluster["arn"] == CLUSTER


class Msk:
    """Two clusters, and what their brokers are called."""

    brokers: ClassVar[dict[str, str]] = {
        f"{CLUSTER}0": "b-1.others.example:9098",
        CLUSTER: "b-9.x:9098,b-2.theirs.example:9098",
    }

    def __init__(self, *refused: str) -> None:
        self.refused = refused

    def get_paginator(self, name: str) -> Msk:
        assert name == "list_clusters_v2"
        return self

    def paginate(self) -> Iterator[dict[str, object]]:
        if "*" in self.refused:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "ListClustersV2")
        yield from ({"ClusterInfoList": [{"ClusterArn": arn}]} for arn in self.brokers)

    def get_bootstrap_brokers(self, ClusterArn: str) -> dict[str, str]:
        if ClusterArn in self.refused:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "GetBootstrapBrokers")
        return {"BootstrapBrokerStringSaslIam": self.brokers[ClusterArn]}


def test_the_cluster_behind_iam_is_found_by_its_brokers_or_asked_for():
    servers = "b-1.theirs.example:9098,b-2.theirs.example:9098"
    assert find_msk_cluster(lambda _: Msk(), servers) == FoundCluster(CLUSTER)
    assert find_msk_cluster(lambda _: Msk(), "b-1.nobodys.example:9098") == NOT_ASKED
    # Somebody else's may be refused, and comes first.
    assert find_msk_cluster(lambda _: Msk(f"{CLUSTER}0"), servers) == FoundCluster(CLUSTER)
    unseen = find_msk_cluster(lambda _: Msk(CLUSTER), servers)
    assert unseen.arn is None

    def refused(cluster: FoundCluster) -> str:
        made = environment_document(
            replace(_kafka(), cluster=cluster), env="moved", project="p", schema=SCHEMA, start="", rate=1.0,
            record_size="1KiB", twin=None, offsets={0: 1},
        )  # fmt: skip
        [(path, told)] = find_values_to_fill_in(made)
        assert path == ("kafka", "theirs", "arn")
        assert "no cluster seen here offers b-1.theirs" in told
        assert told.endswith("; --cluster ARN names it")
        return told

    assert f"(kafka:GetBootstrapBrokers of {CLUSTER} was refused: " in refused(unseen)
    assert "(kafka:ListClustersV2 was refused: " in refused(find_msk_cluster(lambda _: Msk("*"), servers))
    assert "refused" not in refused(NOT_ASKED)


def test_a_topic_of_which_no_log_tells_needs_its_partitions():
    def made(**more: int) -> dict[str, object]:
        return environment_document(
            _kafka(), env="moved", project="moved", schema=SCHEMA, start="2026-12-01T08:00:00Z", rate=800.0, record_size="1KiB",
            twin=None, offsets=None, cluster=CLUSTER, **more,
        )  # fmt: skip

    assert made(partitions=6)["streams"]["orders"]["partitions"] == 6
    [(path, told)] = find_values_to_fill_in(made())
    assert (path, "--partitions" in told) == (("streams", "orders", "partitions"), True)


@pytest.mark.parametrize(
    ("latency", "sla", "every"),
    [(None, "15m", "10m"), ("32m", "32m", "25m"), ("9m", "9m", None), ("soon", "soon", None)],
)
def test_runs_that_end_become_bounded_ones_where_the_sla_leaves_time(latency, sla, every):
    running = _kafka()
    made = environment_document(
        replace(running, program=replace(running.program, ends=True)), env="moved", project="p", schema=SCHEMA, start="2026-12-01T08:00:00Z",
        rate=800.0, record_size="1KiB", twin=None, offsets=None, cluster=CLUSTER, partitions=6, latency=latency,
    )  # fmt: skip
    [job] = made["jobs"].values()
    assert (job["latency"], job.get("run_every")) == (sla, every)
    assert ("trigger" in job["queries"]["land-orders"]) == (every is None)


def test_a_log_gives_rate_speed_partitions_and_where_it_ended(tmp_path):
    truth = Truth(swing=0.4, seconds=400.0)
    place = write(history([truth]), tmp_path / "local-1")
    [query] = read_event_log(find_event_logs(str(place))[0]).queries
    [topic] = {key.rpartition(":")[0] for key in query.batches[-1].sources[0].end}
    found = replace(_kafka(), program=replace(_kafka().program, name=topic))
    log = read_log_figures(str(place), found)
    made = environment_document(
        found, env="moved", project="moved", schema=SCHEMA, start="", rate=None, record_size="1KiB",
        twin=log.twin, offsets=log.offsets, cluster=CLUSTER,
    )  # fmt: skip
    [stream] = made["streams"].values()
    assert stream["traffic"]["basis"] == "measured"
    assert stream["traffic"]["records_per_second"] == pytest.approx(truth.rate, rel=0.08)
    assert stream["partitions"] == truth.partitions
    [job] = made["jobs"].values()
    assert job["rate"]["records_per_second_per_core"] == pytest.approx(1 / truth.per_record, rel=0.1)
    assert job["rate"]["basis"] == "measured"
    [made_query] = job["queries"].values()
    taken = sum(each.records for each in run(truth)[0].batches)
    assert sum(made_query["kafka"]["start_offsets"].values()) == taken


def _kafka() -> RunningJob:
    said = settings_of_program(EMR, LaunchArguments(("--topic", "orders")))
    return RunningJob("glue:orders", "123456789012", "us-east-1", {"engine": "glue"}, said)


@pytest.mark.parametrize(
    ("region", "shards", "note"),
    [
        ("us-east-1", True, False),
        ("eu-west-1", False, False),
        ("os.environ['SOURCE']", True, True),
    ],
)
def test_the_shards_of_a_stream_are_not_those_of_its_namesake_in_another_region(
    client, theirs, region, shards, note
):
    text = (
        f"import os\nspark.readStream.format('kinesis').option('streamName', '{theirs}')"
        f".option('awsRegion', {region if 'os' in region else repr(region)}).load().writeStream.start()"
    )
    client("s3").put_object(Bucket=theirs, Key="glue.py", Body=text.encode())
    found = read_running_glue_job(client, theirs, "us-east-1")
    assert found.shards == ({theirs: 3} if shards else {})
    told = [each for each in found.notes if each.startswith(f"the region of {theirs} is the environment")]
    assert len(told) == note


def test_versions_that_are_not_run_are_a_change_that_is_told(client, theirs):
    client("glue").create_job(
        Name=f"{theirs}-old",
        Role="theirs",
        Command={"Name": "gluestreaming", "ScriptLocation": f"s3://{theirs}/glue.py"},
        Connections={"Connections": [f"{theirs}-0"]},
        GlueVersion="3.0",
    )
    found = read_running_glue_job(client, f"{theirs}-old", "us-east-1")
    assert found.job["version"] == "5.1"
    assert "it runs on 3.0" in found.notes[0]
    assert "no NumberOfWorkers" in found.notes[1]
    assert "one zone alone" in found.notes[3]
    assert found.vpc is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "print('a batch job')",
            r"\(no readStream .*\) \(name the source with --stream, or with --topic and --brokers\)",
        ),
        ("object Scala { }", r"\(a program in Scala, and only Python is read"),
    ],
)
def test_a_program_that_does_not_tell_is_told(text, told):
    found = replace(_kafka(), program=settings_of_program(text))
    with pytest.raises(ConfigurationError, match=told):
        environment_document(
            found, env="moved", project="p", schema=SCHEMA, start="", rate=1.0, record_size="1KiB", twin=None, offsets=None
        )  # fmt: skip


def test_jobs_that_are_not_there_are_told(client):
    with pytest.raises(ConfigurationError, match="glue:nobodys"):
        read_running_glue_job(client, "nobodys", "us-east-1")
    with pytest.raises(ConfigurationError, match="emr:00none/00run"):
        read_running_emr_job(client, "00none", "00run", "us-east-1")


def test_names_become_names_of_the_environment():
    assert [slug(each) for each in ("Orders_v2", "7up", "a..b")] == ["orders-v2", "s-7up", "a-b"]


def test_a_table_and_a_connection_of_glue_are_looked_up_with_the_arguments_of_the_latest_run(client, theirs):
    made = client("glue")
    text = (
        "args = getResolvedOptions(sys.argv, ['table'])\n"
        f"frame = glue.create_data_frame.from_catalog(database='{theirs}', table_name=args['table'])\n"
        "glue.forEachBatch(frame=frame, batch_function=f, options={'windowSize': '100 seconds'})\n"
    )
    client("s3").put_object(Bucket=theirs, Key="catalog.py", Body=text.encode())
    made.create_database(DatabaseInput={"Name": theirs})
    brokers = {"KAFKA_BOOTSTRAP_SERVERS": "b-1.theirs.example:9094", "KAFKA_SSL_ENABLED": "true"}
    made.create_connection(
        ConnectionInput={"Name": f"{theirs}-msk", "ConnectionType": "KAFKA", "ConnectionProperties": brokers}
    )
    parameters = {
        "stream": {"typeOfData": "kinesis", "streamARN": f"arn:aws:kinesis:us-east-1:123456789012:stream/{theirs}"},
        "topic": {"typeOfData": "kafka", "topicName": "orders", "connectionName": f"{theirs}-msk"},
    }  # fmt: skip
    for name, each in parameters.items():
        storage = {"Parameters": each, "Location": theirs}
        made.create_table(
            DatabaseName=theirs, TableInput={"Name": name, "StorageDescriptor": storage, "Parameters": {}}
        )
    made.create_job(
        Name=f"{theirs}-catalog",
        Role="theirs",
        Command={"Name": "gluestreaming", "ScriptLocation": f"s3://{theirs}/catalog.py"},
        DefaultArguments={"--table": "stream"},
        GlueVersion="5.1",
        WorkerType="G.1X",
        NumberOfWorkers=2,
    )
    found = read_running_glue_job(client, f"{theirs}-catalog", "us-east-1")
    assert (found.program.name, found.shards, found.run) == (
        arn := parameters["stream"]["streamARN"],
        {arn: 3},
        "",
    )
    run = made.start_job_run(JobName=f"{theirs}-catalog", Arguments={"--table": "topic"})["JobRunId"]
    found = read_running_glue_job(client, f"{theirs}-catalog", "us-east-1")
    assert (found.program.kind, found.program.name, found.run) == ("kafka", "orders", run)
    made_file = environment_document(
        found, env="moved", project="p", schema=SCHEMA, start="2026-12-01T08:00:00Z", rate=1.0, record_size="1KiB", twin=None,
        offsets=None, partitions=1,
    )  # fmt: skip
    assert made_file["kafka"]["theirs"] == {
        "kind": "external",
        "bootstrap_servers": "b-1.theirs.example:9094",
        "authentication": "tls",
    }
    assert list(find_values_to_fill_in(made_file)) == []
