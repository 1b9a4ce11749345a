"""Checks of what is deployed and has run: an environment, or the copy of a verification; each only reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlparse

from millrace.config.aws.availability_zones import MSK_REFUSES
from millrace.config.engines.emr import EmrJob
from millrace.config.engines.versions import VERSIONS, version_row
from millrace.config.model import GlueJob, MskCluster
from millrace.lifecycle.account.kafka_access import servers
from millrace.sizing.alarms.metrics import namespace
from millrace.sizing.prices_and_limits import service_limits
from millrace.verify.account.checks import policy_errors, shortened_list
from millrace.verify.account.claim_context import Answer, Check, ClaimContext, UndeterminedError

ICEBERG = {each.name: each.iceberg for each in VERSIONS}
"""Iceberg version of each engine version whose document has it."""

_NONE = Answer(None, "no such job in the environment")
_NO_RUN = Answer(None, "it has no run that started")
_EXECUTIONS = 20
FLAT = "spark/"
"""Prefix of the copies of event logs (``infra/constructs/log_flattener.py``)."""


def role_policies(context: ClaimContext) -> Answer:
    """Let IAM Access Analyzer validate the policies of the jobs' roles, inline and managed."""
    iam, documents = context.client("iam"), list[dict[str, Any]]()
    for job in context.names.environment.jobs:
        for role in context.resources(f"job-{job}", "AWS::IAM::Role"):
            for name in context.pages("iam", "list_role_policies", "PolicyNames", RoleName=role):
                documents.append(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"])
        for arn in context.resources(f"job-{job}", "AWS::IAM::ManagedPolicy"):
            version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
            document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]
            documents.append(document["Document"])
    if not documents:
        return Answer(None, "every job has an existing `role`, whose permissions Millrace does not write")
    wrong = policy_errors(context, documents)
    return Answer(not wrong, shortened_list(wrong) or f"{len(documents)} policies")


def _answer_by_runs(
    newest: Mapping[str, Sequence[Mapping[str, Any]]], name: Callable[[Mapping[str, Any]], str]
) -> Answer:
    """Return an answer that is proved by a run of each job: AWS may accept one job and refuse another."""
    lived = [runs for runs in newest.values() if runs]
    if not lived:
        return _NO_RUN
    kinds = {name(run) for runs in lived for run in runs}
    seen = f"{len(lived)} of {len(newest)} jobs: {shortened_list(kinds)}"
    return Answer(True if len(lived) == len(newest) else None, seen)


def glue_runs(context: ClaimContext) -> Answer:
    """Look for a run of each job on Glue that really started."""
    newest = {job: context.newest_glue_runs(job) for job in context.jobs(GlueJob)}
    return _answer_by_runs(newest, lambda run: f"Glue {run.get('GlueVersion')} {run.get('WorkerType')}")


def glue_timeout(context: ClaimContext) -> Answer:
    """Read the timeout of jobs whose template has none."""
    jobs = context.jobs(GlueJob).items()
    open_ended = [
        name for name, job in jobs if job.timeout is None and not job.in_turns and job.run != "auto"
    ]
    if not open_ended:
        return _NONE
    glue = context.client("glue")
    minutes = {glue.get_job(JobName=context.names.job(name))["Job"].get("Timeout", 0) for name in open_ended}
    ends = [f"{each} minutes" for each in minutes if each]
    return Answer(not ends, shortened_list(ends) or f"{len(open_ended)} jobs")


def log_groups_with_streams(context: ClaimContext) -> Answer:
    """Look for a Glue job's log groups with streams; show their names without the account's own parts."""
    jobs = context.jobs(GlueJob)
    shapes, lived = set[str](), 0
    for job in jobs:
        lived += len(context.newest_glue_runs(job))
        group = f"/{context.names.prefix}/jobs/{job}"
        groups = context.pages("logs", "describe_log_groups", "logGroups", logGroupNamePrefix=group)
        for name in (each["logGroupName"] for each in groups):
            rest = name.removeprefix(group)
            # `GROUP-eu` is another job's group, unless this job's security configuration was appended.
            if rest and not rest.startswith(("/", f"-{context.names.job(job)}")):
                continue
            if context.client("logs").describe_log_streams(logGroupName=name, limit=1)["logStreams"]:
                shapes.add(_url_shape(rest))
    if not shapes:
        return Answer(False, "jobs ran, but no log group has a stream") if lived else _NO_RUN
    return Answer(any(shape.endswith(("/error", "/output")) for shape in shapes), shortened_list(shapes))


def _url_shape(rest: str) -> str:
    """Return the number of parts of ``/configuration/role/error`` and the last of them."""
    parts = rest.split("/")
    last = parts[-1] if parts[-1] in ("error", "output") else "NAME"
    return (
        "GROUP"
        + ("-NAME" if parts[0] else "")
        + "/NAME" * max(0, len(parts) - 2)
        + f"/{last}" * (len(parts) > 1)
    )


def _snapshot_summaries(context: ClaimContext) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the summary of each table's newest snapshot, which names its writer, with the version of the job's engine."""
    glue, s3 = context.client("glue"), context.client("s3")
    for job in context.names.environment.jobs.values():
        for table in {name for query in job.queries.values() for name in query.writes.values()}:
            database, name = context.names.table(table).split(".")
            try:
                description = glue.get_table(DatabaseName=database, Name=name)["Table"]
            except glue.exceptions.EntityNotFoundException:
                continue
            where = urlparse(description["Parameters"]["metadata_location"])
            body = s3.get_object(Bucket=where.netloc, Key=where.path.lstrip("/"))["Body"]
            metadata = json.load(body)
            for snapshot in metadata.get("snapshots", ()):
                if snapshot["snapshot-id"] == metadata.get("current-snapshot-id"):
                    yield job.version, snapshot["summary"]


def engine_versions(context: ClaimContext) -> Answer:
    """Read the writer of each table's newest snapshot (Iceberg's ``EnvironmentContext``)."""
    seen, wrong = set[str](), set[str]()
    for version, summary in _snapshot_summaries(context):
        spark = summary.get("engine-version", "unknown")
        # "Apache Iceberg 1.10.0 (commit ...)"
        iceberg = (summary.get("iceberg-version", "").split() or ["unknown"] * 3)[2:3] or ["unknown"]
        line = f"{version}: Spark {spark}, Iceberg {iceberg[0]}"
        seen.add(line)
        if "unknown" not in line and not (
            spark.startswith(version_row(version).spark) and iceberg[0].startswith(ICEBERG.get(version, ""))
        ):
            wrong.add(line)
    if not seen or all("unknown" in line for line in seen):
        return Answer(None, shortened_list(seen) or "no table has records yet")
    return Answer(not wrong, shortened_list(wrong or seen))


def emr_runs(context: ClaimContext) -> Answer:
    """Look for a run of each job on EMR Serverless that really started."""
    newest = {job: context.newest_emr_runs(job) for job in context.jobs(EmrJob)}
    return _answer_by_runs(newest, lambda run: str(run["releaseLabel"]))


def emr_start(context: ClaimContext) -> Answer:
    """Read the time of the newest runs from their creation to their start."""
    jobs = context.jobs(EmrJob)
    took = [
        (run["startedAt"] - run["createdAt"]).total_seconds()
        for job in jobs
        for run in context.newest_emr_runs(job)
        if "startedAt" in run
    ]
    if not took:
        return _NO_RUN
    assumed = service_limits().limits["scaling.worker_start_seconds"].value
    return Answer(max(took) <= assumed, f"slowest of {len(took)} runs: {max(took):.0f} s")


def _zones_of_subnets(context: ClaimContext, subnets: list[str]) -> list[str]:
    result = context.client("ec2").describe_subnets(SubnetIds=subnets)["Subnets"]
    return sorted({subnet["AvailabilityZoneId"] for subnet in result})


def emr_zones(context: ClaimContext) -> Answer:
    """Look for the zones in which AWS accepted applications."""
    subnets = set[str]()
    for job in context.jobs(EmrJob):
        request = {"applicationId": context.output(job, "ApplicationId")}
        application = context.client("emr-serverless").get_application(**request)["application"]
        subnets |= set(application.get("networkConfiguration", {}).get("subnetIds", ()))
    if not subnets:
        return _NONE
    zones = _zones_of_subnets(context, sorted(subnets))
    known = EmrJob.zones.get(context.region)
    return Answer(known is None or set(zones) <= set(known), f"taken: {shortened_list(zones)}")


def _cluster_arns(context: ClaimContext) -> list[str]:
    kafka = context.names.environment.kafka
    names = [name for name, cluster in kafka.items() if isinstance(cluster, MskCluster)]
    if not names:
        raise UndeterminedError("the environment has no MSK cluster")
    return names


def msk_zones(context: ClaimContext) -> Answer:
    """Look for the zones in which AWS accepted clusters."""
    cluster_names = {context.names.cluster(name) for name in _cluster_arns(context)}
    subnets = set[str]()
    for each in context.pages("kafka", "list_clusters_v2", "ClusterInfoList"):
        if each["ClusterName"] in cluster_names:
            subnets |= set(
                each.get("Provisioned", {}).get("BrokerNodeGroupInfo", {}).get("ClientSubnets", ())
            )
            for part in each.get("Serverless", {}).get("VpcConfigs", ()):
                subnets |= set(part["SubnetIds"])
    if not subnets:
        return Answer(None, "no such cluster is there")
    zones = _zones_of_subnets(context, sorted(subnets))
    refused = set(MSK_REFUSES.get(context.region, ()))
    return Answer(not refused & set(zones), f"taken: {shortened_list(zones)}")


def _successful_executions(context: ClaimContext, job: str) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """Yield input and left states of the newest successful executions."""
    machine, client = context.output(job, "StateMachineArn"), context.client("stepfunctions")
    request = {"stateMachineArn": machine, "statusFilter": "SUCCEEDED", "maxResults": _EXECUTIONS}
    for each in client.list_executions(**request)["executions"]:
        events = list(
            context.pages(
                "stepfunctions", "get_execution_history", "events", executionArn=each["executionArn"]
            )
        )
        begun = [e["executionStartedEventDetails"] for e in events if "executionStartedEventDetails" in e]
        left = {e["stateExitedEventDetails"]["name"] for e in events if "stateExitedEventDetails" in e}
        yield json.loads(begun[0].get("input", "{}")) if begun else {}, left


def emr_stop(context: ClaimContext) -> Answer:
    """Look for an execution that ended a run on EMR Serverless."""
    jobs = context.jobs(EmrJob)
    done = sum("StopRun" in left for job in jobs for _, left in _successful_executions(context, job))
    return (
        Answer(True, f"{done} runs ended") if done else Answer(None, "no run was ended by its state machine")
    )


def restarts(context: ClaimContext) -> Answer:
    """Look for executions that a rule started and that started a run."""
    reasons = [
        str(inputs.get("reason", ""))
        for job in context.names.environment.jobs
        for inputs, left in _successful_executions(context, job)
        if inputs.get("verb") == "restart" and "StartRun" in left
    ]
    by_event = sum(reason.startswith("run ") for reason in reasons)
    return (
        Answer(True, f"{len(reasons)} restarts, {by_event} of them by an event")
        if reasons
        else Answer(None, "no run has ended whose job should run")
    )


def msk_brokers(context: ClaimContext) -> Answer:
    """Ask MSK for the brokers of each cluster."""
    kinds = set()
    for name in _cluster_arns(context):
        servers(context.names, name, context.client)
        kinds.add(context.names.environment.kafka[name].authentication.kind)
    return Answer(True, shortened_list(kinds))


def job_metrics(context: ClaimContext) -> Answer:
    """Look for metrics in the namespaces of the jobs."""
    names = {
        each["MetricName"]
        for job in context.names.environment.jobs
        for each in context.pages(
            "cloudwatch", "list_metrics", "Metrics", Namespace=namespace(context.names.job(job))
        )
    }
    return Answer(True, f"{len(names)} names") if names else Answer(None, "the namespaces have no metric")


def event_log_copies(context: ClaimContext) -> Answer:
    """Look for copies of event logs."""
    if context.names.environment.history is None:
        return Answer(None, "the environment has no history server")
    bucket = context.names.bucket("event-logs")
    count = context.client("s3").list_objects_v2(Bucket=bucket, Prefix=FLAT)["KeyCount"]
    return Answer(True, f"{count} copies") if count else Answer(None, "no event log was copied yet")


def history_server(context: ClaimContext) -> Answer:
    """Ask ECS whether the server runs."""
    if context.names.environment.history is None:
        return Answer(None, "the environment has no history server")
    clusters = context.resources("history", "AWS::ECS::Cluster")
    services = context.resources("history", "AWS::ECS::Service")
    result = context.client("ecs").describe_services(cluster=clusters[0], services=services)["services"]
    running = sum(each["runningCount"] for each in result)
    return Answer(running > 0, f"{running} tasks run")


def _landed_rows(context: ClaimContext) -> int:
    return sum(1 for _ in _snapshot_summaries(context))


def lake_formation(context: ClaimContext) -> Answer:
    """Look for a table that was written with Lake Formation's grants."""
    mode = context.names.environment.storage.lake_formation
    if mode == "off":
        return Answer(None, "storage.lake_formation is off")
    return Answer(True, mode) if _landed_rows(context) else Answer(None, "no table has records yet")


def missing_keys(context: ClaimContext) -> Answer:
    """Look for tables with records: a starting job reads a checkpoint that does not exist, and a 403 would end it."""
    own = any(job.role is None for job in context.names.environment.jobs.values())
    if not own:
        return Answer(None, "every job has an existing `role`, whose permissions Millrace does not write")
    tables = _landed_rows(context)
    return (
        Answer(True, f"{tables} tables were landed") if tables else Answer(None, "no table has records yet")
    )


ALL: tuple[Check, ...] = (
    *(role_policies, glue_runs, glue_timeout, log_groups_with_streams, engine_versions, emr_runs, emr_start),
    *(emr_zones, msk_zones, emr_stop, restarts, msk_brokers, job_metrics),
    *(event_log_copies, history_server, lake_formation, missing_keys),
)
