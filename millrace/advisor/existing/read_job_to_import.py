"""Reader of a running job of Glue or EMR Serverless, to import it as an environment file: its values are pinned, nothing of it is owned.

Calls for reading only: ``glue:GetJob``, ``GetJobRuns``, ``GetConnection``, ``GetTable``, ``emr-serverless:GetApplication``,
``GetJobRun``, ``s3:GetObject`` of the program, ``kinesis:DescribeStreamSummary``, ``ec2:DescribeSubnets``,
``sts:GetCallerIdentity``, and for a topic behind IAM ``kafka:ListClustersV2`` and ``GetBootstrapBrokers``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from botocore.exceptions import ClientError

from millrace.advisor.existing.foreign_jobs import (
    COUNT,
    GIB,
    OVERHEAD,
    emr_spark_settings,
    parse_spark_conf,
    parse_spark_size,
)
from millrace.advisor.existing.kafka_sign_in import (
    NOT_ASKED,
    FoundCluster,
    bootstrap_servers_of,
    broker_authentication,
    find_msk_cluster,
)
from millrace.advisor.existing.stream_candidates_of_program import (
    NO_ANSWERS,
    DataCatalog,
    ImportedStreamSettings,
    StreamAnswers,
)
from millrace.advisor.existing.stream_choice import read_stream_settings_of_program
from millrace.advisor.logs.event_logs import aws_errors_as_wrong_option
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.advisor.programs.possible_values import Unknown, Values
from millrace.advisor.programs.program_streams import LONGEST
from millrace.config.checks.jobs import FIXED_IN_CORE, is_reserved_spark_key
from millrace.config.document.problems import wrong_option_error
from millrace.config.engines.emr import EMR_DISK_GIB, EMR_MEMORY_GIB
from millrace.config.engines.versions import version_row
from millrace.config.model import EmrJob, GlueJob

Client = Callable[[str], Any]


@dataclass(frozen=True)
class RunningJob:
    """A job as its service describes it.

    Attributes
    ----------
    where
        ``glue:NAME`` or ``emr:APP/RUN``.
    job
        Keys for a job of the environment file, with today's values.
    program
        Settings in its program.
    subnets, vpc
        Its network; empty and ``None`` without one of its own.
    shards
        Number of shards of its Kinesis streams, by their names in the program.
    cluster
        The MSK cluster to which it signs in with IAM.
    notes
        What the environment file cannot keep as it is.
    run
        Id of its latest run, whose log gives its offsets; empty if it has had none.
    """

    where: str
    account: str
    region: str
    job: Mapping[str, Any]
    program: ImportedStreamSettings
    subnets: tuple[str, ...] = ()
    vpc: str | None = None
    shards: Mapping[str, int] = field(default_factory=dict)
    cluster: FoundCluster = NOT_ASKED
    notes: tuple[str, ...] = field(default=())
    run: str = ""


def _latest_glue_run(client: Any, name: str) -> Mapping[str, Any]:
    """Return the latest run of a Glue job, which may have other arguments than the job; empty where it is not to be had."""
    try:
        return next(iter(client.get_job_runs(JobName=name, MaxResults=1)["JobRuns"]), {})
    except ClientError:
        return {}


def _environment_variables(arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the environment variables of a Glue job's driver (``--customer-driver-env-vars``)."""
    pairs = (each.partition("=") for each in arguments.get("--customer-driver-env-vars", "").split(","))
    return {name.strip(): value.strip('"') for name, _, value in pairs if name.strip()}


def read_running_job(
    client: Client, source: str, region: str, answers: StreamAnswers = NO_ANSWERS
) -> RunningJob:
    """Look up a job by ``glue:NAME`` or ``emr:APPLICATION/RUN``.

    Raises
    ------
    ConfigurationError
        It has another form, there is none, or it may not be read.
    """
    kind, _, rest = source.partition(":")
    application, _, run = rest.partition("/")
    if kind == "glue" and rest:
        return read_running_glue_job(client, rest, region, answers)
    if kind == "emr" and application and run:
        return read_running_emr_job(client, application, run, region, answers)
    raise wrong_option_error("SOURCE", source, "glue:NAME or emr:APPLICATION/RUN")


def read_running_glue_job(
    client: Client, name: str, region: str, answers: StreamAnswers = NO_ANSWERS
) -> RunningJob:
    """Look up a Glue job.

    Raises
    ------
    ConfigurationError
        There is none, or it may not be read.
    """
    where = f"glue:{name}"
    with aws_errors_as_wrong_option(
        "SOURCE", where, "a Glue job of this account and region that you have permission to read"
    ):
        job = client("glue").get_job(JobName=name)["Job"]
        account = client("sts").get_caller_identity()["Account"]
        run = _latest_glue_run(client("glue"), name)
        arguments = {
            "--JOB_NAME": name,
            **job.get("DefaultArguments", {}),
            **run.get("Arguments", {}),
            **job.get("NonOverridableArguments", {}),
        }
        launch = LaunchArguments(
            tuple(word for each in arguments.items() for word in each),
            _environment_variables(arguments),
            ordered=False,
        )
        text = _download_program(client, str(job["Command"].get("ScriptLocation", "")))
        program = read_stream_settings_of_program(text, launch, answers, DataCatalog(client))
        subnets = [
            subnet
            for each in job.get("Connections", {}).get("Connections", ())
            if (subnet := _subnet_of_connection(client, each)) is not None
        ]
    version, notes = _version_or_oldest_supported_and_notes(GlueJob, str(job.get("GlueVersion", "")))
    pinned: dict[str, Any] = {"engine": "glue", "version": version}
    if job.get("WorkerType"):
        pinned["worker"] = job["WorkerType"]
    workers = job.get("NumberOfWorkers")
    if workers:
        pinned["max_workers"] = max(2, int(workers))
    else:
        notes.append("no NumberOfWorkers: the plan computes the workers")
    if job.get("MaintenanceWindow"):
        pinned["maintenance_window"] = job["MaintenanceWindow"]
    if job.get("MaxRetries"):
        pinned["retries"] = min(10, int(job["MaxRetries"]))
    role = str(job.get("Role", ""))
    pinned["role"] = role if role.startswith("arn:") else f"arn:aws:iam::{account}:role/{role}"
    spark = parse_spark_conf(job.get("DefaultArguments", {}).get("--conf", ""), first=True)
    keys, left = spark_keys_and_notes(spark, program.spark)
    return _with_network_and_shards(
        client,
        RunningJob(
            where,
            account,
            region,
            pinned | keys,
            program,
            tuple(subnets),
            notes=(*notes, *left),
            run=str(run.get("Id", "")),
        ),
    )


_DRIVER = "spark.emr-serverless.driverEnv."


def read_running_emr_job(
    client: Client, application: str, run: str, region: str, answers: StreamAnswers = NO_ANSWERS
) -> RunningJob:
    """Look up a job run of an EMR Serverless application.

    Raises
    ------
    ConfigurationError
        There is none, or it may not be read.
    """
    where = f"emr:{application}/{run}"
    with aws_errors_as_wrong_option(
        "SOURCE", where, "an EMR Serverless application and one of its runs that you have permission to read"
    ):
        app = client("emr-serverless").get_application(applicationId=application)["application"]
        job = client("emr-serverless").get_job_run(applicationId=application, jobRunId=run)["jobRun"]
        account = client("sts").get_caller_identity()["Account"]
        submit = job.get("jobDriver", {}).get("sparkSubmit", {})
        settings = emr_spark_settings(app, job)
        variables = {
            key.removeprefix(_DRIVER): value for key, value in settings.items() if key.startswith(_DRIVER)
        }
        launch = LaunchArguments(tuple(map(str, submit.get("entryPointArguments", ()))), variables)
        text = _download_program(client, str(submit.get("entryPoint", "")))
        program = read_stream_settings_of_program(text, launch, answers, DataCatalog(client))
    version, notes = _version_or_oldest_supported_and_notes(EmrJob, str(app.get("releaseLabel", "")))
    worker, more = _emr_worker_keys_and_notes(settings)
    pinned: dict[str, Any] = {
        "engine": "emr",
        "version": version,
        "worker": worker,
        "architecture": "arm64" if app.get("architecture") == "ARM64" else "x86_64",
        "role": job["executionRole"],
    }
    most = settings.get("spark.dynamicAllocation.maxExecutors") or settings.get("spark.executor.instances")
    if most is not None and COUNT.fullmatch(most):
        pinned["max_workers"] = int(most) + 1
    else:
        more.append("no spark.dynamicAllocation.maxExecutors: the plan computes the workers")
    attempts = (job.get("retryPolicy") or {}).get("maxFailedAttemptsPerHour")
    if attempts:
        pinned["retries_per_hour"] = min(10, int(attempts))
    keys, left = spark_keys_and_notes(settings, program.spark)
    subnets = tuple((app.get("networkConfiguration") or {}).get("subnetIds", ()))
    return _with_network_and_shards(
        client,
        RunningJob(
            where,
            account,
            region,
            pinned | keys,
            program,
            subnets,
            notes=(*notes, *more, *left),
            run=run,
        ),
    )


def _with_network_and_shards(client: Client, running: RunningJob) -> RunningJob:
    """Add the network of the subnets, the shards of the stream and the cluster."""
    vpc, shards, notes = None, dict[str, int](), running.notes + running.program.notes
    cluster = NOT_ASKED
    with aws_errors_as_wrong_option(
        "SOURCE", running.where, "a job whose subnets and stream you have permission to describe"
    ):
        if running.subnets:
            answer = client("ec2").describe_subnets(SubnetIds=list(running.subnets))["Subnets"]
            if len({each["AvailabilityZone"] for each in answer}) > 1:
                vpc = answer[0]["VpcId"]
            else:
                place = f"{', '.join(running.subnets)} of {answer[0]['VpcId']}"
                notes += (
                    f"it runs in {place}, one zone alone: name two or more subnets in network, or a VPC is made",
                )
        for stream in running.program.settings_of_all_streams:
            if stream.payload is None:
                notes += (
                    f"no call was seen that decodes the payloads of {stream.name or 'its stream'}: `format` in the land query names "
                    "another format than that of the schema file, which is JSON for a .ddl",
                )
            elsewhere, certain = stream.region_elsewhere(running.region)
            if elsewhere and not certain:
                notes += (
                    f"the region of {stream.name} is {elsewhere}: this file reads the stream of that name in {running.region}",
                )
            if stream.kind == "kinesis" and stream.name and not (elsewhere and certain):
                argument = {"StreamARN" if stream.name.startswith("arn:") else "StreamName": stream.name}
                with suppress(ClientError):  # a stream of another account; the shards stay open
                    answer = client("kinesis").describe_stream_summary(**argument)
                    shards[stream.name] = answer["StreamDescriptionSummary"]["OpenShardCount"]
            elif cluster.arn is None and broker_authentication(stream).kind == "iam":
                cluster = find_msk_cluster(client, bootstrap_servers_of(stream))
    return replace(running, vpc=vpc, shards=shards, cluster=cluster, notes=notes)


def _download_program(client: Client, place: str) -> str:
    bucket, _, key = place.removeprefix("s3://").partition("/")
    if not key or not place.startswith("s3://"):
        return ""
    # One more than is read: a program that is cut off cannot be read.
    body: bytes = client("s3").get_object(Bucket=bucket, Key=key)["Body"].read(LONGEST + 1)
    return body.decode("utf-8", errors="replace")


def _subnet_of_connection(client: Client, connection: str) -> str | None:
    connection_properties = client("glue").get_connection(Name=connection)["Connection"]
    subnet = connection_properties.get("PhysicalConnectionRequirements", {}).get("SubnetId")
    return None if subnet is None else str(subnet)


def _version_or_oldest_supported_and_notes(
    model: type[GlueJob | EmrJob], version: str
) -> tuple[str, list[str]]:
    """Return the version, or the oldest that Millrace runs on, which is a change."""
    known = list(model.spark_version_by_engine_version)
    with suppress(KeyError):
        version_row(version)
        return version, []
    return known[0], [
        f"it runs on {version or 'an unnamed version'}, which is not one of {', '.join(known)}: {known[0]} is a change"
    ]


def _emr_worker_keys_and_notes(settings: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return EMR's worker for an executor: heap and overhead, rounded up to a size that EMR has."""
    cores_text = settings.get("spark.executor.cores", "4")
    cores = int(cores_text) if COUNT.fullmatch(cores_text) else 0
    heap = parse_spark_size(settings.get("spark.executor.memory", "14g")) / GIB
    memory_gib = math.ceil(round(heap * OVERHEAD, 3))
    sizes = EMR_MEMORY_GIB.get(cores)
    if sizes is None:
        raise wrong_option_error(
            "spark.executor.cores", cores_text, f"one of {', '.join(map(str, EMR_MEMORY_GIB))}"
        )
    memory = next((each for each in sizes if each >= memory_gib), sizes[-1])
    disk = max(
        EMR_DISK_GIB[0],
        math.ceil(parse_spark_size(settings.get("spark.emr-serverless.executor.disk", "20g")) / GIB),
    )
    notes = (
        []
        if memory >= memory_gib
        else [f"{memory_gib} GiB for an executor are more than {cores} vCPU have: {memory} GiB"]
    )
    return {"vcpu": cores, "memory": f"{memory}GiB", "disk": f"{min(disk, EMR_DISK_GIB[1])}GiB"}, notes


def spark_keys_and_notes(
    settings: Mapping[str, str], program: Mapping[str, Values]
) -> tuple[dict[str, Any], list[str]]:
    """Return the job's own settings of Spark SQL, and a note on the others that Millrace does not derive from the plan.

    Parameters
    ----------
    settings
        Those of the job.
    program
        Those that its program sets, which replace them; each of them is kept or in the note.
    """
    given: dict[str, Any] = dict(settings)
    for key, values in program.items():
        value = values[0].value if len(values) == 1 and not isinstance(values[0].value, Unknown) else None
        given[key] = str(value).lower() if isinstance(value, bool) else value
    kept = {
        key: str(value)
        for key, value in given.items()
        if key.startswith("spark.sql.") and not is_reserved_spark_key(key) and value is not None
    }
    left = sorted(
        f"{key} (line {program[key][0].line})" if key in program else key
        for key in given.keys() - kept.keys()
        if key in program or key in FIXED_IN_CORE or not is_reserved_spark_key(key)
    )
    notes = [f"Spark settings left out: {', '.join(left)}"] if left else []
    return {"spark": kept} if kept else {}, notes
