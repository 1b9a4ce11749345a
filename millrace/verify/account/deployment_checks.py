"""Checks of what is deployed and has run: an environment, or the copy of a verification; each only reads."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from millrace.config.aws.zones_refused_by_services import MSK_REFUSES
from millrace.config.engines.emr import EmrJob
from millrace.config.engines.versions import VERSIONS, version_row
from millrace.config.model import GlueJob, MskCluster
from millrace.lifecycle.account.catalog_columns import read_iceberg_metadata
from millrace.lifecycle.account.kafka_access import bootstrap_servers_of_cluster
from millrace.sizing.alarms.reported_metrics import metric_namespace
from millrace.sizing.prices_and_limits import service_limits
from millrace.verify.account.account_checks import (
    answer_without_faults,
    policy_error_codes,
    shortened_list_text,
)
from millrace.verify.account.check_input_and_answer import Check, CheckAnswer, ClaimContext, require

ICEBERG = {each.name: each.iceberg for each in VERSIONS}
"""Iceberg version of each engine version whose document has it."""

_NONE = "no such job in the environment"
_NO_RUN = "it has no run that started"
_NO_RECORDS = "no table has records yet"
_OTHER_ROLES = "every job has an existing `role`, whose permissions Millrace does not write"
_EXECUTIONS = 20
FLAT = "spark/"
"""Prefix of the copies of event logs (``infra/constructs/event_log_copier.py``)."""


def check_role_policies(context: ClaimContext) -> CheckAnswer:
    """Let IAM Access Analyzer validate the policies of the jobs' roles, inline and managed."""
    iam, documents = context.client("iam"), list[dict[str, Any]]()
    for job in context.names.environment.jobs:
        for role in context.physical_ids(f"job-{job}", "AWS::IAM::Role"):
            for name in context.items_of_all_pages("iam", "list_role_policies", "PolicyNames", RoleName=role):
                documents.append(iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"])
        for arn in context.physical_ids(f"job-{job}", "AWS::IAM::ManagedPolicy"):
            version = iam.get_policy(PolicyArn=arn)["Policy"]["DefaultVersionId"]
            document = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]
            documents.append(document["Document"])
    require(documents, _OTHER_ROLES)
    return answer_without_faults(policy_error_codes(context, documents), f"{len(documents)} policies")


def _proved_if_each_job_ran(
    newest: Mapping[str, Sequence[Mapping[str, Any]]], name: Callable[[Mapping[str, Any]], str]
) -> CheckAnswer:
    """Return an answer that is proved by a run of each job: AWS may accept one job and refuse another."""
    lived = [runs for runs in newest.values() if runs]
    require(lived, _NO_RUN)
    kinds = {name(run) for runs in lived for run in runs}
    seen = f"{len(lived)} of {len(newest)} jobs: {shortened_list_text(kinds)}"
    return _proved_by(len(lived) == len(newest), seen, seen)


def _proved_by(evidence: object, seen: str, otherwise: str) -> CheckAnswer:
    """Return an answer that evidence proves, and whose absence refutes nothing."""
    require(evidence, otherwise)
    return CheckAnswer(True, seen)


def check_glue_jobs_started(context: ClaimContext) -> CheckAnswer:
    """Look for a run of each job on Glue that really started."""
    newest = {job: context.newest_started_glue_runs(job) for job in context.jobs_of_engine(GlueJob)}
    return _proved_if_each_job_ran(
        newest, lambda run: f"Glue {run.get('GlueVersion')} {run.get('WorkerType')}"
    )


def check_glue_job_without_timeout(context: ClaimContext) -> CheckAnswer:
    """Read the timeout of jobs whose template has none."""
    jobs = context.jobs_of_engine(GlueJob).items()
    open_ended = [
        name for name, job in jobs if job.timeout is None and not job.has_bounded_runs and job.run != "auto"
    ]
    require(open_ended, _NONE)
    glue = context.client("glue")
    minutes = {glue.get_job(JobName=context.names.job(name))["Job"].get("Timeout", 0) for name in open_ended}
    return answer_without_faults((f"{each} minutes" for each in minutes if each), f"{len(open_ended)} jobs")


def check_glue_log_group_names(context: ClaimContext) -> CheckAnswer:
    """Look for a Glue job's log groups with streams; show their names without the account's own parts."""
    jobs = context.jobs_of_engine(GlueJob)
    shapes, lived = set[str](), 0
    for job in jobs:
        lived += len(context.newest_started_glue_runs(job))
        group = f"/{context.names.prefix}/jobs/{job}"
        groups = context.items_of_all_pages(
            "logs", "describe_log_groups", "logGroups", logGroupNamePrefix=group
        )
        for name in (each["logGroupName"] for each in groups):
            rest = name.removeprefix(group)
            # `GROUP-eu` is another job's group, unless this job's security configuration was appended.
            if rest and not rest.startswith(("/", f"-{context.names.job(job)}")):
                continue
            if context.client("logs").describe_log_streams(logGroupName=name, limit=1)["logStreams"]:
                shapes.add(_log_group_name_with_parts_masked(rest))
    require(shapes or lived, _NO_RUN)
    if not shapes:
        return CheckAnswer(False, "jobs ran, but no log group has a stream")
    return CheckAnswer(
        any(shape.endswith(("/error", "/output")) for shape in shapes), shortened_list_text(shapes)
    )


def _log_group_name_with_parts_masked(rest: str) -> str:
    """Return the form of a log group's name, such as ``GROUP-NAME/NAME/error``: no name of the account is in it."""
    parts = rest.split("/")
    last = parts[-1] if parts[-1] in ("error", "output") else "NAME"
    return (
        "GROUP"
        + ("-NAME" if parts[0] else "")
        + "/NAME" * max(0, len(parts) - 2)
        + f"/{last}" * (len(parts) > 1)
    )


def _engine_versions_and_snapshot_summaries(context: ClaimContext) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the summary of each table's newest snapshot, which names its writer, with the version of the job's engine."""
    for job in context.names.environment.jobs.values():
        for table in {
            name for query in job.queries.values() for name in query.created_tables_by_place.values()
        }:
            metadata = read_iceberg_metadata(context.client, context.names.table(table)) or {}
            for snapshot in metadata.get("snapshots", ()):
                if snapshot["snapshot-id"] == metadata.get("current-snapshot-id"):
                    yield job.version, snapshot["summary"]


def check_snapshot_writer_versions(context: ClaimContext) -> CheckAnswer:
    """Read the writer of each table's newest snapshot (Iceberg's ``EnvironmentContext``)."""
    seen, wrong = set[str](), set[str]()
    for version, summary in _engine_versions_and_snapshot_summaries(context):
        spark = summary.get("engine-version", "unknown")
        # "Apache Iceberg 1.10.0 (commit ...)"
        iceberg = (summary.get("iceberg-version", "").split() or ["unknown"] * 3)[2:3] or ["unknown"]
        line = f"{version}: Spark {spark}, Iceberg {iceberg[0]}"
        seen.add(line)
        if "unknown" not in line and not (
            spark.startswith(version_row(version).spark) and iceberg[0].startswith(ICEBERG.get(version, ""))
        ):
            wrong.add(line)
    require(any("unknown" not in line for line in seen), shortened_list_text(seen) or _NO_RECORDS)
    return CheckAnswer(not wrong, shortened_list_text(wrong or seen))


def check_emr_jobs_started(context: ClaimContext) -> CheckAnswer:
    """Look for a run of each job on EMR Serverless that really started."""
    newest = {job: context.newest_started_emr_runs(job) for job in context.jobs_of_engine(EmrJob)}
    return _proved_if_each_job_ran(newest, lambda run: str(run["releaseLabel"]))


def check_emr_start_time(context: ClaimContext) -> CheckAnswer:
    """Read the time of the newest runs from their creation to their start."""
    jobs = context.jobs_of_engine(EmrJob)
    took = [
        (run["startedAt"] - run["createdAt"]).total_seconds()
        for job in jobs
        for run in context.newest_started_emr_runs(job)
        if "startedAt" in run
    ]
    require(took, _NO_RUN)
    assumed = service_limits().limits["scaling.worker_start_seconds"].value
    return CheckAnswer(max(took) <= assumed, f"slowest of {len(took)} runs: {max(took):.0f} s")


def _zones_of_subnets(context: ClaimContext, subnets: list[str]) -> list[str]:
    result = context.client("ec2").describe_subnets(SubnetIds=subnets)["Subnets"]
    return sorted({subnet["AvailabilityZoneId"] for subnet in result})


def check_emr_zones(context: ClaimContext) -> CheckAnswer:
    """Look for the zones in which AWS accepted applications."""
    subnets = set[str]()
    for job in context.jobs_of_engine(EmrJob):
        request = {"applicationId": context.job_outputs(job)["ApplicationId"]}
        application = context.client("emr-serverless").get_application(**request)["application"]
        subnets |= set(application.get("networkConfiguration", {}).get("subnetIds", ()))
    require(subnets, _NONE)
    zones = _zones_of_subnets(context, sorted(subnets))
    known = EmrJob.zones.get(context.region)
    return CheckAnswer(known is None or set(zones) <= set(known), f"taken: {shortened_list_text(zones)}")


def _msk_cluster_names_or_undetermined(context: ClaimContext) -> list[str]:
    kafka = context.names.environment.kafka
    names = [name for name, cluster in kafka.items() if isinstance(cluster, MskCluster)]
    require(names, "the environment has no MSK cluster")
    return names


def check_msk_zones(context: ClaimContext) -> CheckAnswer:
    """Look for the zones in which AWS accepted clusters."""
    cluster_names = {context.names.cluster(name) for name in _msk_cluster_names_or_undetermined(context)}
    subnets = set[str]()
    for each in context.items_of_all_pages("kafka", "list_clusters_v2", "ClusterInfoList"):
        if each["ClusterName"] in cluster_names:
            subnets |= set(
                each.get("Provisioned", {}).get("BrokerNodeGroupInfo", {}).get("ClientSubnets", ())
            )
            for part in each.get("Serverless", {}).get("VpcConfigs", ()):
                subnets |= set(part["SubnetIds"])
    require(subnets, "no such cluster is there")
    zones = _zones_of_subnets(context, sorted(subnets))
    refused = set(MSK_REFUSES.get(context.region, ()))
    return CheckAnswer(not refused & set(zones), f"taken: {shortened_list_text(zones)}")


def _inputs_and_states_of_successes(
    context: ClaimContext, job: str
) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """Yield input and left states of the newest successful executions."""
    machine, client = context.job_outputs(job)["StateMachineArn"], context.client("stepfunctions")
    request = {"stateMachineArn": machine, "statusFilter": "SUCCEEDED", "maxResults": _EXECUTIONS}
    for each in client.list_executions(**request)["executions"]:
        events = list(
            context.items_of_all_pages(
                "stepfunctions", "get_execution_history", "events", executionArn=each["executionArn"]
            )
        )
        begun = [e["executionStartedEventDetails"] for e in events if "executionStartedEventDetails" in e]
        left = {e["stateExitedEventDetails"]["name"] for e in events if "stateExitedEventDetails" in e}
        yield json.loads(begun[0].get("input", "{}")) if begun else {}, left


def check_emr_run_was_stopped(context: ClaimContext) -> CheckAnswer:
    """Look for an execution that ended a run on EMR Serverless."""
    jobs = context.jobs_of_engine(EmrJob)
    done = sum("StopRun" in left for job in jobs for _, left in _inputs_and_states_of_successes(context, job))
    return _proved_by(done, f"{done} runs ended", "no run was ended by its state machine")


def check_restarts_by_rule(context: ClaimContext) -> CheckAnswer:
    """Look for executions that a rule started and that started a run."""
    reasons = [
        str(inputs.get("reason", ""))
        for job in context.names.environment.jobs
        for inputs, left in _inputs_and_states_of_successes(context, job)
        if inputs.get("verb") == "restart" and "StartRun" in left
    ]
    by_event = sum(reason.startswith("run ") for reason in reasons)
    seen = f"{len(reasons)} restarts, {by_event} of them by an event"
    return _proved_by(reasons, seen, "no run has ended whose job should run")


def check_msk_brokers(context: ClaimContext) -> CheckAnswer:
    """Ask MSK for the brokers of each cluster."""
    kinds = set()
    for name in _msk_cluster_names_or_undetermined(context):
        bootstrap_servers_of_cluster(context.names, name, context.client)
        kinds.add(context.names.environment.kafka[name].authentication.kind)
    return CheckAnswer(True, shortened_list_text(kinds))


def check_job_metrics(context: ClaimContext) -> CheckAnswer:
    """Look for metrics in the namespaces of the jobs."""
    names = {
        each["MetricName"]
        for job in context.names.environment.jobs
        for each in context.items_of_all_pages(
            "cloudwatch", "list_metrics", "Metrics", Namespace=metric_namespace(context.names.job(job))
        )
    }
    return _proved_by(names, f"{len(names)} names", "the namespaces have no metric")


def check_event_log_copies(context: ClaimContext) -> CheckAnswer:
    """Look for copies of event logs."""
    require(context.names.environment.history, "the environment has no history server")
    bucket = context.names.bucket("event-logs")
    count = context.client("s3").list_objects_v2(Bucket=bucket, Prefix=FLAT)["KeyCount"]
    return _proved_by(count, f"{count} copies", "no event log was copied yet")


def check_history_server(context: ClaimContext) -> CheckAnswer:
    """Ask ECS whether the server runs."""
    require(context.names.environment.history, "the environment has no history server")
    clusters = context.physical_ids("history", "AWS::ECS::Cluster")
    services = context.physical_ids("history", "AWS::ECS::Service")
    result = context.client("ecs").describe_services(cluster=clusters[0], services=services)["services"]
    running = sum(each["runningCount"] for each in result)
    return CheckAnswer(running > 0, f"{running} tasks run")


def _count_tables_with_records(context: ClaimContext) -> int:
    return sum(1 for _ in _engine_versions_and_snapshot_summaries(context))


def check_write_with_lake_formation(context: ClaimContext) -> CheckAnswer:
    """Look for a table that was written with Lake Formation's grants."""
    mode = context.names.environment.storage.lake_formation
    require(mode != "off", "storage.lake_formation is off")
    return _proved_by(_count_tables_with_records(context), mode, _NO_RECORDS)


def check_start_without_checkpoint(context: ClaimContext) -> CheckAnswer:
    """Look for tables with records: a starting job reads a checkpoint that does not exist, and a 403 would end it."""
    require(any(job.role is None for job in context.names.environment.jobs.values()), _OTHER_ROLES)
    tables = _count_tables_with_records(context)
    return _proved_by(tables, f"{tables} tables were landed", _NO_RECORDS)


ALL: tuple[Check, ...] = (
    *(
        check_role_policies,
        check_glue_jobs_started,
        check_glue_job_without_timeout,
        check_glue_log_group_names,
        check_snapshot_writer_versions,
        check_emr_jobs_started,
        check_emr_start_time,
    ),
    *(
        check_emr_zones,
        check_msk_zones,
        check_emr_run_was_stopped,
        check_restarts_by_rule,
        check_msk_brokers,
        check_job_metrics,
    ),
    *(
        check_event_log_copies,
        check_history_server,
        check_write_with_lake_formation,
        check_start_without_checkpoint,
    ),
)
