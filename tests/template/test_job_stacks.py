"""Stacks that hold one job each."""

from __future__ import annotations

from datetime import timedelta

import pytest

from millrace.config.model import EmrJob, ExternalCluster, GlueJob
from millrace.infra.engines.emr import heap_mib_of_worker
from millrace.infra.engines.glue import join_for_glue_conf
from millrace.infra.errors import InfrastructureError
from millrace.infra.launch.job_spark_settings import spark_settings
from tests.template.conftest import Synthesis, Synthesise


@pytest.fixture(params=["departures", "positions", "ground"])
def glue(request: pytest.FixtureRequest, prod: Synthesis) -> tuple[str, GlueJob]:
    job = prod.environment.jobs[request.param]
    assert isinstance(job, GlueJob)
    return request.param, job


def test_glue_runs_one_at_a_time_and_on_and_on(prod: Synthesis, glue: tuple[str, GlueJob]) -> None:
    name, job = glue
    properties = prod.the("AWS::Glue::Job", f"job-{name}")
    assert properties["ExecutionProperty"] == {"MaxConcurrentRuns": 1}
    assert "Timeout" not in properties
    assert properties["MaintenanceWindow"] == job.maintenance_window
    assert properties["Command"]["Name"] == "gluestreaming"
    assert properties["Command"]["PythonVersion"] == "3"
    assert properties["Name"] == prod.names.job(name)


def test_glue_arguments_disarm_the_defaults(prod: Synthesis, glue: tuple[str, GlueJob]) -> None:
    name, _ = glue
    arguments = prod.the("AWS::Glue::Job", f"job-{name}")["NonOverridableArguments"]
    held = prod.plan.jobs[name].scaling.fixed
    assert arguments.get("--enable-auto-scaling") == (None if held else "true")
    assert arguments["--enable-spark-ui"] == "true"
    assert arguments["--enable-spark-ui-legacy-path"] == "true"
    assert arguments["--enable-metrics"] == ""
    assert arguments["--enable-observability-metrics"] == "true"
    assert arguments["--enable-continuous-cloudwatch-log"] == "true"
    assert arguments["--datalake-formats"] == "iceberg"
    logs = arguments["--spark-event-logs-path"]["Fn::Join"][1]
    assert logs[-1] == f"/glue/{name}/"


def test_glue_stands_in_the_vpc_in_every_zone(prod: Synthesis, glue: tuple[str, GlueJob]) -> None:
    part = f"job-{glue[0]}"
    connections = prod.resources("AWS::Glue::Connection", part)
    assert len(connections) == prod.environment.zone_count
    for resource in connections.values():
        requirements = resource["Properties"]["ConnectionInput"]["PhysicalConnectionRequirements"]
        assert requirements.keys() == {"AvailabilityZone", "SubnetId", "SecurityGroupIdList"}
    listed = prod.the("AWS::Glue::Job", part)["Connections"]["Connections"]
    assert len(listed) == len(connections)


def test_glue_encrypts_what_it_writes(prod: Synthesis, glue: tuple[str, GlueJob]) -> None:
    part = f"job-{glue[0]}"
    encryption = prod.the("AWS::Glue::SecurityConfiguration", part)["EncryptionConfiguration"]
    assert encryption["CloudWatchEncryption"]["CloudWatchEncryptionMode"] == "SSE-KMS"
    assert encryption["S3Encryptions"][0]["S3EncryptionMode"] == "SSE-KMS"
    assert encryption["JobBookmarksEncryption"]["JobBookmarksEncryptionMode"] == "CSE-KMS"
    assert "SecurityConfiguration" in prod.the("AWS::Glue::Job", part)


def test_a_glue_job_can_be_removed_and_made_again_and_its_keys_can_change(
    prod: Synthesis, synthesise: Synthesise
) -> None:
    """A security configuration never changes: another one is made before it goes, and must not have its name."""
    kind, part = "AWS::Glue::SecurityConfiguration", "job-ground"
    ((_, first),) = prod.resources(kind, part).items()
    assert first["DeletionPolicy"] == first["UpdateReplacePolicy"] == "Delete"
    key = "arn:aws:kms:us-east-1:111122223333:key/12345678-1234-1234-1234-123456789012"
    keys = prod.environment.storage.keys.model_copy(update={"data": key})
    storage = prod.environment.storage.model_copy(update={"keys": keys})
    other = synthesise(prod.environment.model_copy(update={"storage": storage})).the(kind, part)
    assert other["Name"] != first["Properties"]["Name"]
    assert other["Name"].startswith(f"{prod.names.job('ground')}-")


def test_the_groups_in_which_glue_writes_are_there_before_it(prod: Synthesis) -> None:
    security = prod.the("AWS::Glue::SecurityConfiguration", "job-ground")["Name"]
    role = prod.the("AWS::Glue::Job", "job-ground")["Role"]["Fn::GetAtt"][0]
    names = [
        r["Properties"]["LogGroupName"] for r in prod.resources("AWS::Logs::LogGroup", "job-ground").values()
    ]
    made = sorted("".join(each["Fn::Join"][1][::2]) for each in names if isinstance(each, dict))
    prefix = f"/{prod.names.prefix}/jobs/ground/{security}/"
    assert made == [f"{prefix}/error", f"{prefix}/output"]
    assert [each["Fn::Join"][1][1] for each in names if isinstance(each, dict)] == [{"Ref": role}] * 2


def test_log_groups_are_encrypted_and_end(each: Synthesis) -> None:
    groups = each.resources("AWS::Logs::LogGroup")
    assert len(groups) > len(each.environment.jobs)
    for path, group in groups.items():
        assert group["Properties"]["RetentionInDays"] == 90, path
        assert "KmsKeyId" in group["Properties"], path


@pytest.mark.parametrize("name", ["flights", "bookings"])
def test_emr_applications(prod: Synthesis, name: str) -> None:
    job = prod.environment.jobs[name]
    assert isinstance(job, EmrJob)
    properties = prod.the("AWS::EMRServerless::Application", f"job-{name}")
    assert properties["Name"] == prod.names.job(name)
    assert properties["ReleaseLabel"] == job.version
    assert properties["Architecture"] == job.architecture.upper()
    assert properties["AutoStartConfiguration"] == {"Enabled": True}
    assert properties["AutoStopConfiguration"]["Enabled"] is True
    assert len(properties["NetworkConfiguration"]["SubnetIds"]) == 3
    monitoring = properties["MonitoringConfiguration"]
    assert monitoring["S3MonitoringConfiguration"]["LogUri"] == prod.documents[name]["event_logs"]
    assert "EncryptionKeyArn" in monitoring["CloudWatchLoggingConfiguration"]


def test_emr_leaves_event_log_rotation_alone(prod: Synthesis) -> None:
    for name, job in prod.environment.jobs.items():
        has = any(key.startswith("spark.eventLog.") for key in prod.documents[name]["spark"])
        assert has is isinstance(job, GlueJob), name


def test_emr_brings_the_kafka_jars_it_lacks(prod: Synthesis) -> None:
    assert len(prod.documents["flights"]["jars"]) >= 3
    assert prod.documents["departures"]["jars"] == []


@pytest.mark.parametrize(("memory", "heap"), [(16, 14894), (2, 1664), (32, 29789)])
def test_heap_and_overhead_fit_in_the_worker(memory: int, heap: int) -> None:
    assert heap_mib_of_worker(memory) == heap
    assert heap + max(384, heap // 10) <= memory * 1024


def test_every_session_shares_the_safeguards(each: Synthesis) -> None:
    for job, document in each.documents.items():
        spark = document["spark"]
        assert spark["spark.speculation"] == "false", job
        assert spark["spark.sql.session.timeZone"] == "UTC"
        assert spark["spark.sql.catalog.lake.cache-enabled"] == "false"
        assert spark["spark.sql.catalog.lake.warehouse"].startswith(f"s3://{each.names.bucket('lake')}/")
        assert spark["spark.sql.adaptive.optimizer.excludedRules"].endswith("AQEPropagateEmptyRelation")


def test_every_job_shuffles_into_as_many_tasks_as_it_has_cores(each: Synthesis) -> None:
    """With state or without: by the engine's default a batch of a few records becomes 200 files."""
    for job, document in each.documents.items():
        assert document["spark"]["spark.sql.shuffle.partitions"] == str(each.plan.jobs[job].cores.value), job


def test_the_files_own_settings_come_last(prod: Synthesis) -> None:
    job = prod.environment.jobs["departures"].model_copy(
        update={"spark": {"spark.sql.shuffle.partitions": "7"}}
    )
    settings = spark_settings(prod.environment, job, prod.plan.jobs["departures"], prod.names)
    assert settings["spark.sql.shuffle.partitions"] == "7"
    assert list(settings) == sorted(settings)


def test_glue_cannot_take_a_setting_with_a_blank(prod: Synthesis) -> None:
    job = prod.environment.jobs["departures"].model_copy(update={"spark": {"spark.app.note": "two words"}})
    with pytest.raises(InfrastructureError, match=r"jobs\.departures\.spark\.spark\.app\.note: 'two words'"):
        spark_settings(prod.environment, job, prod.plan.jobs["departures"], prod.names)


def test_conf_is_chained_the_way_glue_reads_it() -> None:
    assert join_for_glue_conf({"a": "1", "b": "2"}) == "a=1 --conf b=2"


def test_retries_and_timeout_of_a_glue_job(prod: Synthesis, synthesise: Synthesise) -> None:
    job = prod.environment.jobs["ground"].model_copy(update={"retries": 2, "timeout": timedelta(hours=12)})
    result = synthesise(prod.environment.model_copy(update={"jobs": {"ground": job}}))
    properties = result.the("AWS::Glue::Job", "job-ground")
    assert (properties["MaxRetries"], properties["Timeout"]) == (2, 720)
    # The state machine starts it again, and counts.
    assert prod.the("AWS::Glue::Job", "job-ground")["MaxRetries"] == 0


def test_emr_names_its_interpreter_wherever_one_is_looked_for(prod: Synthesis) -> None:
    spark = prod.documents["flights"]["spark"]
    named = {name for name, value in spark.items() if value == "/usr/bin/python3.11"}
    assert named == {
        "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON",
        "spark.emr-serverless.driverEnv.PYSPARK_PYTHON",
        "spark.executorEnv.PYSPARK_PYTHON",
        "spark.pyspark.driver.python",
        "spark.pyspark.python",
    }
    assert not [name for name, value in prod.documents["departures"]["spark"].items() if "python3" in value]
    assert not [name for name in prod.documents["departures"]["spark"] if "PYTHON" in name], "Glue has one"


@pytest.mark.slow
def test_an_emr_job_on_an_image_of_ones_own(prod: Synthesis, synthesise: Synthesise) -> None:
    image = f"{prod.names.account}.dkr.ecr.us-east-1.amazonaws.com/streams@sha256:{'0' * 64}"
    job = prod.environment.jobs["flights"].model_copy(
        update={"image": image, "python": "/opt/python/bin/python3"}
    )
    result = synthesise(
        prod.environment.model_copy(update={"jobs": {**prod.environment.jobs, "flights": job}})
    )
    application = result.the("AWS::EMRServerless::Application", "job-flights")
    assert application["ImageConfiguration"] == {"ImageUri": image}
    assert (
        result.documents["flights"]["spark"]["spark.executorEnv.PYSPARK_PYTHON"] == "/opt/python/bin/python3"
    )
    assert "ImageConfiguration" not in prod.the("AWS::EMRServerless::Application", "job-flights")


def test_an_emr_application_as_asked(prod: Synthesis, synthesise: Synthesise) -> None:
    job = prod.environment.jobs["flights"].model_copy(
        update={"min_executors": 2, "initial_executors": 2, "idle_stop": timedelta(hours=1)}
    )
    result = synthesise(prod.environment.model_copy(update={"jobs": {"flights": job}}))
    spark = result.documents["flights"]["spark"]
    assert spark["spark.dynamicAllocation.minExecutors"] == "2"
    assert spark["spark.dynamicAllocation.initialExecutors"] == "2"
    stop = result.the("AWS::EMRServerless::Application", "job-flights")["AutoStopConfiguration"]
    assert stop == {"Enabled": True, "IdleTimeoutMinutes": 60}
    before = prod.documents["flights"]["spark"]
    assert (
        before["spark.dynamicAllocation.initialExecutors"] == before["spark.dynamicAllocation.maxExecutors"]
    )


def test_fixed_scaling_holds_all_workers(prod: Synthesis, synthesise: Synthesise) -> None:
    asked = {name: prod.environment.jobs[name] for name in ("departures", "flights")}
    jobs = {name: job.model_copy(update={"scaling": "fixed"}) for name, job in asked.items()}
    result = synthesise(prod.environment.model_copy(update={"jobs": jobs}))
    arguments = result.the("AWS::Glue::Job", "job-departures")["NonOverridableArguments"]
    assert "--enable-auto-scaling" not in arguments
    spark = result.documents["flights"]["spark"]
    counts = {spark[f"spark.dynamicAllocation.{which}Executors"] for which in ("min", "initial", "max")}
    assert len(counts) == 1
    application = result.the("AWS::EMRServerless::Application", "job-flights")
    worker = {"Cpu": "8 vCPU", "Memory": "32 GB", "Disk": "20 GB"}
    assert application["InitialCapacity"] == [
        {"Key": kind, "Value": {"WorkerCount": number, "WorkerConfiguration": worker}}
        for kind, number in (("Driver", 1), ("Executor", int(counts.pop())))
    ]
    before = prod.the("AWS::EMRServerless::Application", "job-flights")
    assert "InitialCapacity" not in before
    assert application["MaximumCapacity"] == before["MaximumCapacity"], "what is held is what it may have"


@pytest.mark.slow
def test_a_cluster_behind_another_address_is_named_in_the_role(
    prod: Synthesis, synthesise: Synthesise
) -> None:
    arn = "arn:aws:kafka:us-east-1:999988887777:cluster/theirs/abcd1234-1"
    cluster = ExternalCluster(
        kind="external", bootstrap_servers="b-1.example:9098", authentication="iam", arn=arn
    )
    environment = prod.environment.model_copy(update={"kafka": {"operations": cluster}})
    result = synthesise(environment)
    statements = {s["Sid"]: s for part, s in result.statements() if part == "job-flights"}
    assert statements["ConnectOperations"]["Resource"] == arn
    assert statements["ReadOperations"]["Resource"] == arn.replace(":cluster/", ":topic/") + "/flights"
    groups = arn.replace(":cluster/", ":group/")
    assert sorted(statements["GroupsOperations"]["Resource"]) == [
        f"{groups}/land-flights",  # shows the lag
        f"{groups}/spark-kafka-source-*",
    ]
