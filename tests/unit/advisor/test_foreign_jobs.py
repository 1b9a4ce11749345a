"""Jobs that Millrace did not deploy, and logs in S3, are read from moto's server."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard
from botocore.stub import Stubber
from typer.testing import CliRunner

from millrace.advisor.advise import advise
from millrace.advisor.existing.foreign_jobs import (
    ForeignJob,
    _emr_monthly_usd,
    find_log_of_run,
    look_up_emr_application,
    look_up_glue_job,
    parse_spark_conf,
    parse_spark_size,
)
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.logs import event_logs
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.cli.app import app
from millrace.config import ConfigurationError
from tests.unit.advisor.healthy_query_history import batch, history, job, stage, tiny_tasks

NOW = datetime(2026, 11, 1, tzinfo=UTC)
REAL = Path(__file__).parent / "data" / "flights-3.5.zstd"


def decompressed(file: Path) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(file.read_bytes())


@pytest.fixture
def bucket(client):
    name = f"logs-{uuid.uuid4().hex}"
    client("s3").create_bucket(Bucket=name)
    return name


def test_a_log_in_s3_is_read_range_by_range(client, bucket, monkeypatch):
    monkeypatch.setattr(event_logs, "S3_RANGE", 3000)
    monkeypatch.setattr(event_logs, "PIECE", 1000)
    s3 = client("s3")
    s3.put_object(Bucket=bucket, Key="glue/orders/jr_0a1b", Body=REAL.read_bytes())
    s3.put_object(Bucket=bucket, Key="glue/orders-2/jr_0c", Body=b"another job")
    [log] = find_event_logs(f"s3://{bucket}/glue/orders", s3)
    assert log.name == "orders/jr_0a1b"
    assert [len(each.batches) for each in read_history(log).queries] == [7, 8]


def test_emrs_layout_in_s3(client, bucket):
    s3 = client("s3")
    root = "logs/applications/00app/jobs/00run"
    s3.put_object(Bucket=bucket, Key=f"{root}/SPARK_DRIVER/stdout.gz", Body=b"words")
    s3.put_object(Bucket=bucket, Key=f"{root}/sparklogs/eventlog_v2_00run/appstatus_00run", Body=b"")
    s3.put_object(
        Bucket=bucket, Key=f"{root}/sparklogs/eventlog_v2_00run/events_1_00run.zstd", Body=REAL.read_bytes()
    )
    for prefix in ("", f"/{root}", f"/{root}/", f"/{root}/sparklogs/eventlog_v2_00run"):
        [log] = find_event_logs(f"s3://{bucket}{prefix}", s3)
        assert len(log.files) == 1
        assert read_history(log).complete


def test_an_object_that_is_named_itself_is_told_by_what_it_holds(client, bucket):
    s3 = client("s3")
    for key in ("glue/orders.json", "glue/orders.json/driver.log"):
        s3.put_object(Bucket=bucket, Key=key, Body=REAL.read_bytes())
    [log] = find_event_logs(f"s3://{bucket}/glue/orders.json", s3)
    assert log.name == "orders.json"
    assert read_history(log).complete
    with pytest.raises(ConfigurationError):
        find_event_logs(f"s3://{bucket}/glue", s3)


@pytest.mark.parametrize("place", ["s3://nobodys-{}", "s3://{}/none"])
def test_a_place_in_s3_without_a_log_is_told(client, bucket, place):
    with pytest.raises(ConfigurationError) as told:
        find_event_logs(place.format(bucket), client("s3"))
    assert "PATH" in str(told.value)


def glue(client, **more):
    made = client("glue")
    name = f"orders-{uuid.uuid4().hex[:8]}"
    arguments = {
        "--enable-spark-ui": "true",
        "--spark-event-logs-path": "s3://their-logs/orders/",
        "--conf": "spark.sql.shuffle.partitions=200 --conf spark.executor.cores=4",
        **more.pop("arguments", {}),
    }
    made.create_job(
        Name=name,
        Role="theirs",
        Command={"Name": "gluestreaming", "ScriptLocation": "s3://theirs/orders.py"},
        DefaultArguments={key: value for key, value in arguments.items() if value is not None},
        GlueVersion="4.0",
        WorkerType="G.1X",
        NumberOfWorkers=9,
        **more,
    )
    return made, name


def test_a_glue_job(client):
    made, name = glue(client)
    run = made.start_job_run(JobName=name)["JobRunId"]
    found = look_up_glue_job(made, name, "us-east-1")
    assert found.logs == "s3://their-logs/orders/"
    assert found.run == run
    assert found.subject.dollars_month == pytest.approx(9 * 0.44 * 730)
    assert found.subject.arguments["spark.sql.shuffle.partitions"] == "200"


def test_changes_are_those_of_the_jobs_own_arguments(client):
    made, name = glue(client)
    subject = look_up_glue_job(made, name, "us-east-1").subject

    [finding] = advise(history(tiny_tasks), subject).findings
    change = finding.best_change
    assert (change.kind, change.where) == ("argument", f"Glue job {name}")
    assert (change.key, change.old, change.new) == ("--conf spark.sql.shuffle.partitions", "200", 2)
    assert finding.effect.likely > 0
    assert finding.dollars_a_month is None  # all nine workers stay


@pytest.fixture
def account(client, bucket, server, monkeypatch):
    """A Glue job that ran twice and writes its logs where others write theirs, too."""
    for name, value in {
        "AWS_ENDPOINT_URL": server,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    place = f"s3://{bucket}/spark-logs/"
    made, name = glue(
        client, arguments={"--spark-event-logs-path": place}, ExecutionProperty={"MaxConcurrentRuns": 9}
    )
    # moto tells of the first one first, Glue of the latest: so the first started is the latest here.
    late, early = (
        made.start_job_run(JobName=name, Arguments={"--conf": f"spark.sql.shuffle.partitions={number}"})
        for number in (8, 7)
    )
    return name, early["JobRunId"], late["JobRunId"]


def lay(client, bucket, *logs: str, run: str | None = None) -> None:
    """Put logs where all jobs write them; their settings name the run where one is given."""
    text = decompressed(REAL)
    if run is not None:
        text = text.replace(
            b'"spark.master":', f'"spark.glue.JOB_RUN_ID":"{run}","spark.master":'.encode(), 1
        )
    for name in logs:
        client("s3").put_object(Bucket=bucket, Key=f"spark-logs/{name}", Body=text)


def asked(*arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(app, ["advise", *arguments, "--json"])
    if done.exception is not None:
        raise done.exception
    return dict(json.loads(done.stdout))


def test_a_run_that_is_asked_for_is_read_or_refused(account, client, bucket):
    name, early, late = account
    lay(client, bucket, late, f"{early}_attempt_1")
    with pytest.raises(ConfigurationError) as told:
        asked("--glue-job", name, "--run", early)
    [problem] = told.value.problems
    assert (problem.key, problem.value) == ("--run", early)
    assert f"s3://{bucket}/spark-logs/" in problem.allowed
    # Glue names some logs by Spark's application; then the settings name the run.
    lay(client, bucket, "spark-application-1790000000000", run=early)
    assert asked("--glue-job", name, "--run", early)["application"]["engine"] == "glue"
    lay(client, bucket, early)
    assert not any("another job" in each for each in asked("--glue-job", name, "--run", early)["notes"])
    with pytest.raises(ConfigurationError) as told:
        asked("--glue-job", name, "--run", "jr_none")
    assert "--run is jr_none" in str(told.value)


def test_another_jobs_log_is_doubted_where_no_run_was_asked_for(account, client, bucket):
    name, early, late = account
    lay(client, bucket, "jr_00ff", early)
    assert asked("--glue-job", name)["notes"][0] == (
        f"no log at s3://{bucket}/spark-logs/ belongs to run {late}; the newest log was read and may be of "
        "another job"
    )
    lay(client, bucket, late)
    assert not any("another job" in each for each in asked("--glue-job", name)["notes"])


def test_a_job_is_set_as_the_run_was_that_is_asked_for(account, client):
    name, early, late = account
    for run, number in ((early, "7"), (late, "8"), (None, "8")):
        found = look_up_glue_job(client("glue"), name, "us-east-1", run)
        assert found.subject.arguments["spark.sql.shuffle.partitions"] == number
        assert found.run == (run or late)


def test_settings_among_damage_are_found(tmp_path):
    lines = decompressed(REAL).splitlines(keepends=True)
    (tmp_path / "local-1").write_bytes(b"no json\n" + b"".join(lines))
    (tmp_path / "local-2").write_bytes(b"".join(lines[-4:]))
    [setting] = {value for line in lines for value in _app_id(line)}
    assert find_log_of_run(find_event_logs(str(tmp_path)), "none") is None
    found = find_log_of_run(find_event_logs(str(tmp_path)), setting)
    assert found is not None
    assert found.name == "local-1"


def _app_id(line: bytes) -> list[str]:
    event = json.loads(line)
    return [event["Spark Properties"]["spark.app.id"]] if "Spark Properties" in event else []


@pytest.mark.parametrize("without", ["--spark-event-logs-path", "--enable-spark-ui"])
def test_a_glue_job_without_logs_is_told(client, without):
    value = None if without == "--spark-event-logs-path" else "false"
    made, name = glue(client, arguments={without: value})
    with pytest.raises(ConfigurationError) as told:
        look_up_glue_job(made, name, "us-east-1")
    assert "--spark-event-logs-path" in str(told.value)


def test_a_glue_job_that_does_not_exist_is_told(client):
    with pytest.raises(ConfigurationError) as told:
        look_up_glue_job(client("glue"), "nobodys", "us-east-1")
    assert "--glue-job" in str(told.value)
    assert "nobodys" in str(told.value)


def test_an_emr_application(client):
    emr = client("emr-serverless")
    app, other = (
        emr.create_application(name=name, releaseLabel="emr-7.13.0", type="SPARK")["applicationId"]
        for name in ("orders", "quiet")
    )
    role = "arn:aws:iam::123456789012:role/theirs"
    submit = {
        "entryPoint": "s3://theirs/orders.py",
        "sparkSubmitParameters": "--conf spark.executor.cores=4 --conf spark.executor.memory=10g "
        "--conf spark.driver.memory=10g --conf spark.dynamicAllocation.maxExecutors=3",
    }
    emr.start_job_run(applicationId=other, executionRoleArn=role, jobDriver={"sparkSubmit": submit})
    with pytest.raises(ConfigurationError) as told:
        look_up_emr_application(emr, other, "us-east-1")
    assert "logUri" in str(told.value)
    run = emr.start_job_run(
        applicationId=app,
        executionRoleArn=role,
        jobDriver={"sparkSubmit": submit},
        configurationOverrides={
            "monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": "s3://their-logs/emr/"}}
        },
    )["jobRunId"]
    found: ForeignJob = look_up_emr_application(emr, app, "us-east-1", run)
    assert found.logs == f"s3://their-logs/emr/applications/{app}/jobs/{run}"
    assert found.subject.dollars_month == pytest.approx(4 * 730 * (4 * 0.052624 + 11 * 0.0057785))
    assert run in look_up_emr_application(emr, app, "us-east-1").logs  # the latest
    with pytest.raises(ConfigurationError):
        look_up_emr_application(emr, "00none", "us-east-1")


def test_a_streaming_run_is_found_behind_a_page_of_batch_runs(client):
    """ListJobRuns gives 50 runs at most, of both modes."""
    stub = Stubber(client("emr-serverless"))
    about = {
        "applicationId": "00f",
        "arn": "a" * 60,
        "createdAt": NOW,
        "updatedAt": NOW,
        "releaseLabel": "emr-7.13.0",
    }
    run = {**about, "createdBy": "c" * 20, "executionRole": "r" * 20, "stateDetails": "s", "state": "SUCCESS"}
    stub.add_response("get_application", {"application": {**about, "type": "SPARK", "state": "STARTED"}})
    batches = [{**run, "id": f"b{n}", "mode": "BATCH"} for n in range(50)]
    stub.add_response("list_job_runs", {"jobRuns": batches, "nextToken": "more"}, {"applicationId": "00f"})
    stream = {**run, "id": "s1", "mode": "STREAMING", "state": "RUNNING"}
    stub.add_response("list_job_runs", {"jobRuns": [stream]}, {"applicationId": "00f", "nextToken": "more"})
    kept = {"monitoringConfiguration": {"s3MonitoringConfiguration": {"logUri": "s3://their-logs/"}}}
    driver = {"sparkSubmit": {"entryPoint": "s3://theirs/orders.py"}}
    found = {**run, "jobRunId": "s1", "jobDriver": driver, "configurationOverrides": kept}
    stub.add_response("get_job_run", {"jobRun": found}, {"applicationId": "00f", "jobRunId": "s1"})
    with stub:
        assert look_up_emr_application(stub.client, "00f", "us-east-1").logs.endswith(
            "/applications/00f/jobs/s1"
        )


def test_what_a_run_was_billed_is_taken_before_what_it_may_use():
    run = {
        "billedResourceUtilization": {"vCPUHour": 8.0, "memoryGBHour": 32.0},
        "totalExecutionDurationSeconds": 7200,
    }
    month = _emr_monthly_usd(run, {}, "us-east-1", arm=False)
    assert month == pytest.approx(365 * (8 * 0.052624 + 32 * 0.0057785))
    assert _emr_monthly_usd(run, {}, "mars-north-1", arm=False) is None
    assert _emr_monthly_usd({}, {}, "us-east-1", arm=False) is None


@pytest.mark.parametrize(
    ("text", "first", "settings"),
    [
        ("a.b=1 --conf c.d=x=y", True, {"a.b": "1", "c.d": "x=y"}),
        ("--class X --conf a=1 --conf=b=2 --jars z", False, {"a": "1", "b": "2"}),
        ("--conf 'a=one two' --conf b", False, {"a": "one two"}),
        ("--conf a=un'closed", False, {"a": "un'closed"}),
        ("", True, {}),
    ],
)
def test_settings_of_a_command_line(text, first, settings):
    assert parse_spark_conf(text, first=first) == settings


@pytest.mark.parametrize(
    ("text", "wanted"), [("14g", 14 * 1024**3), ("512", 512 * 1024**2), ("2GiB", 2 * 1024**3), ("?", 0)]
)
def test_sizes_as_spark_writes_them(text, wanted):
    assert parse_spark_size(text) == wanted


@pytest.mark.parametrize(
    ("engine", "source", "key"),
    [
        ("glue", "KinesisV2[orders]", "maxFetchRecordsPerShard"),
        ("emr", "KinesisV2[orders]", "kinesis.maxFetchRecordsPerShard"),
        ("local", "KinesisSource[orders]", "kinesis.executor.maxFetchRecordsPerShard"),
        ("emr", "KafkaV2[Subscribe[orders]]", "maxOffsetsPerTrigger"),
        ("emr", "FileStreamSource[s3://x]", "maxFilesPerTrigger"),
    ],
)
def test_a_limit_is_called_what_the_connector_calls_it(engine, source, key):
    from millrace.advisor.logs.application_history_model import BatchSource

    def from_source(number, begun):
        read_from = BatchSource(source, None, None, None, 100)
        return batch(
            number, begun, [job(number, [stage(begun, [0.1, 0.1], [50, 50])])], 100, source=read_from
        )

    made = replace(history(from_source), engine=engine)
    [query] = made.queries
    [change] = AdvisedJob("job x").changes_for(query, made, "limit", 1000, 2001)
    # Kinesis limits hold for each shard, and there are two; those of files count files, not records.
    told = {"maxFilesPerTrigger": (None, "as many files as hold 2,001 records")}
    old, new = told.get(key, (500, 1001) if "Shard" in key else (1000, 2001))
    assert (change.kind, change.key, change.old, change.new) == ("argument", key, old, new)
