"""Questions about the quotas of an account, against the plan. Names and codes are those of Service Quotas."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

from botocore.exceptions import ClientError

from millrace.config.engines.glue import WORKERS
from millrace.config.sources.kinesis import KinesisStream
from millrace.lifecycle.changes.deployment_changes import resources_of_type
from millrace.lifecycle.changes.undeclared_stacks import deployed_template
from millrace.lifecycle.preflight.run_preflight_checks import Check, PreflightAccount, PreflightRow
from millrace.sizing.plan_model import JobPlan

_FULL = 0.8
"""Share of a quota from which the next change may not fit."""

_ALARMS = 5000
"""Alarms of an account in a region, unless it asked for more (CloudWatch user guide, "CloudWatch service quotas")."""


def quota_row(subject: str, needed: float, used: float, most: float, command: str = "") -> PreflightRow:
    """Return the row of a quota."""
    figures = f"{needed:,g} more and {used:,g} in use of {most:,g}"
    if needed + used > most:
        return PreflightRow(
            subject, "failed", figures, "ask for a higher quota, or for less in the file", command
        )
    return PreflightRow(subject, "warning" if needed + used > most * _FULL else "ok", figures)


def _rows_of_quota(
    service: str,
    code: str,
    subject: str,
    amounts: Callable[[PreflightAccount], tuple[float, float]],
    account: PreflightAccount,
) -> Iterator[PreflightRow]:
    """Check a quota.

    Parameters
    ----------
    amounts
        Function that returns how much is needed and how much is in use; nothing is asked if none is needed.
    """
    needed, used = amounts(account)
    if needed <= 0:
        return
    client, quota = account.client("service-quotas"), {"ServiceCode": service, "QuotaCode": code}
    try:
        most = client.get_service_quota(**quota)["Quota"]["Value"]
    except ClientError as error:
        # An account that never asked for more has no quota of its own.
        if error.response["Error"].get("Code") != "NoSuchResourceException":
            raise
        most = client.get_aws_default_service_quota(**quota)["Quota"]["Value"]
    command = (
        f"aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code} "
        f"--desired-value {math.ceil(needed + used)} --region {account.aws.names.environment.region}"
    )
    yield quota_row(subject, needed, used, most, command)


def check_shard_quota(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check the shards of provisioned streams."""
    environment = account.aws.names.environment
    own = [n for n, s in environment.streams.items() if isinstance(s, KinesisStream) and s.is_created]
    provisioned = [n for n in own if environment.streams[n].topic_or_capacity_mode == "provisioned"]
    if not provisioned:
        return
    limits = account.client("kinesis").describe_limits()
    needed = sum(account.plan.streams[name].expected_partitions.value for name in provisioned)
    if account.has_stack("streams"):
        needed -= sum(count_open_shards(account, account.aws.names.stream(name)) or 0 for name in provisioned)
    yield quota_row("quota: Kinesis shards", max(0, needed), limits["OpenShardCount"], limits["ShardLimit"])


def count_open_shards(account: PreflightAccount, stream: str) -> int | None:
    """Return the open shards of a stream; None if there is no such stream."""
    summary = account.answer_if_exists("kinesis", "describe_stream_summary", StreamName=stream)
    return None if summary is None else int(summary["StreamDescriptionSummary"]["OpenShardCount"])


def _brokers_needed_and_used(account: PreflightAccount) -> tuple[float, float]:
    """Return the brokers of own clusters, and those of all others."""
    names = account.aws.names
    own = {names.cluster(name) for name in names.environment.created_clusters}
    needed = sum(each.brokers.value for each in account.plan.clusters.values() if each.brokers is not None)
    if not own or not needed:
        return 0, 0
    clusters = account.list_items("kafka", "list_clusters_v2", "ClusterInfoList")
    others = [each.get("Provisioned", {}) for each in clusters if each["ClusterName"] not in own]
    return needed, sum(each.get("NumberOfBrokerNodes", 0) for each in others)


def _vpcs_needed_and_used(account: PreflightAccount) -> tuple[float, float]:
    if account.plan.network.egress.value in ("existing", "none") or _count_deployed(account, "AWS::EC2::VPC"):
        return 0, 0
    return 1, len(account.list_items("ec2", "describe_vpcs", "Vpcs"))


def _elastic_ips_needed_and_used(account: PreflightAccount) -> tuple[float, float]:
    network = account.plan.network
    if network.egress.value != "nat":
        return 0, 0
    more = network.zones - _count_deployed(account, "AWS::EC2::EIP")
    return more, len(account.client("ec2").describe_addresses()["Addresses"])


def _count_deployed(account: PreflightAccount, kind: str) -> int:
    """Return the resources of a type that the deployed network has: it may have been one with endpoints, or a VPC of others."""
    if not account.has_stack("network"):
        return 0
    template = deployed_template(account.client("cloudformation"), account.aws.names.stack("network"))
    return len(resources_of_type(template or {}, kind))


def _endpoints_needed_and_used(account: PreflightAccount) -> tuple[float, float]:
    network = account.plan.network
    return len(network.services) if network.egress.value == "endpoints" else 0, 0


def _make_job_amounts_function(
    engine: str, amount: Callable[[JobPlan], float]
) -> Callable[[PreflightAccount], tuple[float, float]]:
    """Return a function that adds an amount up over the jobs of an engine."""
    return lambda account: (sum(amount(j) for j in account.plan.jobs.values() if j.engine == engine), 0)


def check_alarm_quota(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check the number of alarms."""
    result = account.list_items("cloudwatch", "describe_alarms", "MetricAlarms")
    used = sum(not each["AlarmName"].startswith(f"{account.aws.names.prefix}/") for each in result)
    row = quota_row("quota: alarms", len(account.plan.alarms), used, _ALARMS)
    # No operation has the account's own quota, which may be higher.
    yield replace(row, verdict="warning") if row.verdict == "failed" else row


_QUOTAS = (
    (
        "glue",
        "L-08F3B322",
        "Glue DPUs, without other jobs",
        _make_job_amounts_function("glue", lambda job: job.max_workers.value * WORKERS[job.worker].dpu),
    ),
    (
        "glue",
        "L-5E4153CA",
        "Glue runs, without other jobs",
        _make_job_amounts_function("glue", lambda _: 1),
    ),
    (
        "emr-serverless",
        "L-D05C8A75",
        "EMR Serverless vCPUs, without other jobs",
        _make_job_amounts_function("emr", lambda job: job.max_workers.value * job.vcpu),
    ),
    ("kafka", "L-EDD31C36", "MSK brokers", _brokers_needed_and_used),
    ("vpc", "L-F678F1CE", "VPCs", _vpcs_needed_and_used),
    ("ec2", "L-0263D0A3", "Elastic IPs", _elastic_ips_needed_and_used),
    ("vpc", "L-29B6F2EB", "VPC endpoints", _endpoints_needed_and_used),
)
"""Service, code and subject of each quota, with its amounts."""

CHECKS: Mapping[str, Check] = {
    "quota: Kinesis shards": check_shard_quota,
    **{
        f"quota: {what.partition(',')[0]}": partial(_rows_of_quota, service, code, f"quota: {what}", amounts)
        for service, code, what, amounts in _QUOTAS
    },
    "quota: alarms": check_alarm_quota,
}
"""By the subject that is shown if the question could not be asked."""
