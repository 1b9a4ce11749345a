"""Import of a running job of Glue or EMR Serverless as an environment file: its values are pinned, nothing of it is owned.

Calls for reading only: ``glue:GetJob``, ``GetConnection``, ``emr-serverless:GetApplication``, ``GetJobRun``,
``s3:GetObject`` of the program, ``kinesis:DescribeStreamSummary``, ``ec2:DescribeSubnets``,
``sts:GetCallerIdentity``, and for a topic behind IAM ``kafka:ListClustersV2`` and ``GetBootstrapBrokers``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, get_args

from millrace.advisor.brokers import NOT_ASKED, Cluster, authentication_of, cluster_of, servers_of
from millrace.advisor.foreign_jobs import (
    COUNT,
    GIB,
    OVERHEAD,
    bytes_of_size,
    emr_spark_settings,
    look_up,
    parse_spark_conf,
)
from millrace.advisor.job_names import slug, stable_name
from millrace.advisor.job_program import LONGEST, ProgramSettings, read, unsupported_settings
from millrace.advisor.log_simulation import QueryTwin
from millrace.config.check_jobs import FIXED_IN_CORE, is_owned
from millrace.config.engines.emr import EMR_DISK_GIB, EMR_MEMORY_GIB
from millrace.config.model import EmrJob, GlueJob
from millrace.config.problems import wrong_option
from millrace.config.units import format_duration

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
    said
        Settings in its program.
    subnets, vpc
        Its network; empty and ``None`` without one of its own.
    shards
        Number of shards of its Kinesis stream.
    cluster
        The MSK cluster to which it signs in with IAM.
    notes
        What the environment file cannot keep as it is.
    """

    where: str
    account: str
    region: str
    job: Mapping[str, Any]
    said: ProgramSettings
    subnets: tuple[str, ...] = ()
    vpc: str | None = None
    shards: int | None = None
    cluster: Cluster = NOT_ASKED
    notes: tuple[str, ...] = field(default=())


def glue(client: Client, name: str, region: str) -> RunningJob:
    """Look up a Glue job.

    Raises
    ------
    ConfigurationError
        There is none, or it may not be read.
    """
    where = f"glue:{name}"
    with look_up("SOURCE", where, "a Glue job of this account and region that may be read"):
        job = client("glue").get_job(JobName=name)["Job"]
        account = client("sts").get_caller_identity()["Account"]
        arguments = {
            key.removeprefix("--"): value
            for held in ("DefaultArguments", "NonOverridableArguments")
            for key, value in job.get(held, {}).items()
        }
        said = read(_program(client, str(job["Command"].get("ScriptLocation", ""))), arguments)
        subnets = [
            subnet
            for each in job.get("Connections", {}).get("Connections", ())
            if (subnet := _subnet(client, each)) is not None
        ]
    version, notes = _accepted(GlueJob, str(job.get("GlueVersion", "")))
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
    spark = parse_spark_conf(arguments.get("conf", ""), first=True)
    return _placed(
        client,
        RunningJob(
            where, account, region, pinned | _spark(spark, notes), said, tuple(subnets), notes=tuple(notes)
        ),
    )


def emr(client: Client, application: str, run: str, region: str) -> RunningJob:
    """Look up a job run of an EMR Serverless application.

    Raises
    ------
    ConfigurationError
        There is none, or it may not be read.
    """
    where = f"emr:{application}/{run}"
    with look_up("SOURCE", where, "an EMR Serverless application and a run of it that may be read"):
        app = client("emr-serverless").get_application(applicationId=application)["application"]
        job = client("emr-serverless").get_job_run(applicationId=application, jobRunId=run)["jobRun"]
        account = client("sts").get_caller_identity()["Account"]
        submit = job.get("jobDriver", {}).get("sparkSubmit", {})
        said = read(_program(client, str(submit.get("entryPoint", ""))), _arguments(submit))
    settings = emr_spark_settings(app, job)
    version, notes = _accepted(EmrJob, str(app.get("releaseLabel", "")))
    worker, more = _worker(settings)
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
    subnets = tuple((app.get("networkConfiguration") or {}).get("subnetIds", ()))
    return _placed(
        client,
        RunningJob(
            where, account, region, pinned | _spark(settings, more), said, subnets, notes=(*notes, *more)
        ),
    )


def _placed(client: Client, found: RunningJob) -> RunningJob:
    """Add the network of the subnets, the shards of the stream and the cluster."""
    vpc, shards, notes = None, None, found.notes + unsupported_settings(found.said)
    with look_up("SOURCE", found.where, "subnets and a stream that may be described"):
        if found.subnets:
            answer = client("ec2").describe_subnets(SubnetIds=list(found.subnets))["Subnets"]
            if len({each["AvailabilityZone"] for each in answer}) > 1:
                vpc = answer[0]["VpcId"]
            else:
                place = f"{', '.join(found.subnets)} of {answer[0]['VpcId']}"
                notes += (
                    f"it runs in {place}, one zone alone: name two or more subnets in network, or a VPC is made",
                )
        if found.said.kind == "kinesis" and found.said.name:
            name = found.said.name
            asked = {"StreamARN": name} if name.startswith("arn:") else {"StreamName": name}
            shards = client("kinesis").describe_stream_summary(**asked)["StreamDescriptionSummary"][
                "OpenShardCount"
            ]
        cluster = NOT_ASKED
        if authentication_of(found.said) == "iam":
            cluster = cluster_of(client, servers_of(found.said))
    return replace(found, vpc=vpc, shards=shards, cluster=cluster, notes=notes)


def _program(client: Client, place: str) -> str:
    bucket, _, key = place.removeprefix("s3://").partition("/")
    if not key or not place.startswith("s3://"):
        return ""
    # One more than is read: a program that is cut off cannot be read.
    body: bytes = client("s3").get_object(Bucket=bucket, Key=key)["Body"].read(LONGEST + 1)
    return body.decode("utf-8", errors="replace")


def _arguments(submit: Mapping[str, Any]) -> dict[str, str]:
    words = [str(each) for each in submit.get("entryPointArguments", ())]
    return {
        word.lstrip("-").partition("=")[0]: word.partition("=")[2] or following
        for word, following in zip(words, [*words[1:], ""], strict=True)
        if word.startswith("--")
    }


def _subnet(client: Client, connection: str) -> str | None:
    found = client("glue").get_connection(Name=connection)["Connection"]
    subnet = found.get("PhysicalConnectionRequirements", {}).get("SubnetId")
    return None if subnet is None else str(subnet)


def _accepted(model: type[GlueJob | EmrJob], version: str) -> tuple[str, list[str]]:
    """Return the version, or the oldest that Millrace runs on, which is a change."""
    known: tuple[str, ...] = get_args(model.model_fields["version"].annotation)
    if version in known:
        return version, []
    return known[0], [
        f"it runs on {version or 'an unnamed version'}, which is not one of {', '.join(known)}: {known[0]} is a change"
    ]


def _worker(settings: Mapping[str, str]) -> tuple[dict[str, Any], list[str]]:
    """Return EMR's worker for an executor: heap and overhead, rounded up to a size that EMR has."""
    said = settings.get("spark.executor.cores", "4")
    cores = int(said) if COUNT.fullmatch(said) else 0
    heap = bytes_of_size(settings.get("spark.executor.memory", "14g")) / GIB
    wanted = math.ceil(round(heap * OVERHEAD, 3))
    sizes = EMR_MEMORY_GIB.get(cores)
    if sizes is None:
        raise wrong_option("spark.executor.cores", said, f"one of {', '.join(map(str, EMR_MEMORY_GIB))}")
    memory = next((each for each in sizes if each >= wanted), sizes[-1])
    disk = max(
        EMR_DISK_GIB[0],
        math.ceil(bytes_of_size(settings.get("spark.emr-serverless.executor.disk", "20g")) / GIB),
    )
    notes = (
        []
        if memory >= wanted
        else [f"{wanted} GiB for an executor are more than {cores} vCPU have: {memory} GiB"]
    )
    return {"vcpu": cores, "memory": f"{memory}GiB", "disk": f"{min(disk, EMR_DISK_GIB[1])}GiB"}, notes


def _spark(settings: Mapping[str, str], notes: list[str]) -> dict[str, Any]:
    """Return the job's own settings of Spark SQL, and note the others that Millrace does not derive from the plan."""
    kept = {
        key: value for key, value in settings.items() if key.startswith("spark.sql.") and not is_owned(key)
    }
    left = sorted(key for key in settings.keys() - kept.keys() if key in FIXED_IN_CORE or not is_owned(key))
    if left:
        notes.append(f"Spark settings left out: {', '.join(left)}")
    return {"spark": kept} if kept else {}


def environment(
    found: RunningJob,
    *,
    project: str,
    schema: str,
    start: str,
    rate: float | None,
    record_size: str,
    twin: QueryTwin | None,
    offsets: Mapping[int, int] | None,
    partitions: int | None = None,
    cluster: str | None = None,
) -> dict[str, Any]:
    """Return the environment file's content.

    Parameters
    ----------
    schema
        File of the records' schema, from the project's root.
    start
        Start time of the new job, in ISO 8601.
    rate
        Records per second; by default those of the log.
    record_size
        Such as ``600B``.
    twin
        Twin from its log, if any: it gives rate, speed, trigger and limit.
    offsets
        Kafka: end of its log's last batch, by partition; the new job starts there instead of at ``start``.
    partitions
        Of a Kafka topic; by default those of the log.
    cluster
        ARN of its MSK cluster; by default the one that was found by its brokers.

    Raises
    ------
    ConfigurationError
        Neither program nor log has the source, the rate, or a topic's partitions.
    """
    said = found.said
    if said.kind is None or said.name is None:
        raise wrong_option(
            "SOURCE",
            found.where,
            "a Python program that names its Kinesis stream or Kafka topic in plain words",
        )
    pace = rate
    if twin is not None and rate is None:
        pace = twin.records_per_second
    if pace is None:
        raise wrong_option("--rate", "(missing)", "records per second, as no event log shows them")
    stream = slug(said.name.rpartition("/")[2])
    traffic: dict[str, Any] = {"records_per_second": float(f"{pace:.4g}"), "record_size": record_size}
    if rate is None:
        traffic["basis"] = "measured"
    query: dict[str, Any] = {
        "kind": "land",
        "source": stream,
        "table": f"{stream.replace('-', '_')}_landed",
        "schema": schema,
    }
    trigger = said.trigger or (twin.trigger if twin is not None and twin.trigger else None)
    if trigger:
        query["trigger"] = format_duration(timedelta(seconds=trigger))
    limit = _limit(said, found, twin)
    if limit:
        query["records_per_batch"] = limit
    made: dict[str, Any] = {"project": project, "account": found.account, "region": found.region}
    if found.vpc is not None:
        made["network"] = {"vpc": found.vpc, "subnets": sorted(set(found.subnets))}
    if said.kind == "kafka":
        servers = servers_of(said)
        if not servers:
            raise wrong_option(
                "SOURCE", found.where, "a program that names kafka.bootstrap.servers in plain words"
            )
        how = authentication_of(said)
        made["kafka"] = {"theirs": {"kind": "external", "bootstrap_servers": servers, "authentication": how}}
        if how == "iam":
            arn = cluster or found.cluster.arn
            if arn is None:
                why = f" ({found.cluster.refused})" if found.cluster.refused else ""
                allowed = f"the ARN of {servers}, which no cluster seen here offers for IAM{why}"
                raise wrong_option("--cluster", "(missing)", allowed)
            made["kafka"]["theirs"]["arn"] = arn
        topic: dict[str, Any] = {"kind": "kafka", "cluster": "theirs", "topic": said.name, "existing": True}
        tasks = partitions or (len(offsets) if offsets else None) or (twin.partitions if twin else None)
        if tasks is None:
            raise wrong_option(
                "--partitions", "(missing)", "how many the topic has, as no event log shows them"
            )
        topic["partitions"] = tasks
        made["streams"] = {stream: topic | {"traffic": traffic}}
        if offsets:
            query["kafka"] = {"start_offsets": dict(sorted(offsets.items()))}
        else:
            query["start"] = start
    else:
        kinesis: dict[str, Any] = {"kind": "kinesis", "existing": said.name, "shards": found.shards}
        made["streams"] = {stream: kinesis | {"traffic": traffic}}
        query["start"] = start
    job = dict(found.job) | _speed(twin) | {"queries": {f"land-{stream}": query}}
    made["jobs"] = {slug(stable_name(found.where).partition(":")[2]): job}
    return made


def _speed(twin: QueryTwin | None) -> dict[str, Any]:
    """Return the measured speed of the log; without a log the plan takes its default."""
    if twin is None:
        return {}
    costs = twin.costs(twin.cores, fixed=0.0)
    each = max(costs.per_record, 1e-9)
    overhead = costs.overhead + costs.rest[0] + costs.wave
    return {
        "rate": {
            "records_per_second_per_core": float(f"{1 / each:.4g}"),
            "batch_overhead": f"{max(1, round(overhead * 1e3))}ms",
            "basis": "measured",
        }
    }


def _limit(said: ProgramSettings, found: RunningJob, twin: QueryTwin | None) -> int | None:
    """Return the limit of a batch: Kinesis connectors have one for each shard."""
    whole = said.first_option("maxOffsetsPerTrigger")
    if whole is not None and whole.isdecimal():
        return int(whole)
    each = said.first_option("maxFetchRecordsPerShard", "kinesis.maxFetchRecordsPerShard")
    if each is not None and each.isdecimal() and found.shards:
        return int(each) * found.shards
    return None if twin is None or twin.limit is None else int(twin.limit)
