"""Questions about an account itself: bootstrap, networks, versions, names that exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from botocore.exceptions import ClientError

from millrace.config.model import MskCluster
from millrace.config.network_storage_governance_observability import Bucket
from millrace.config.sources.kinesis import KinesisStream
from millrace.lifecycle.aws_error_messages import CDK_QUALIFIER
from millrace.lifecycle.preflight import quotas as preflight_quotas
from millrace.lifecycle.preflight.run_preflight_checks import (
    ABSENT,
    Check,
    PreflightAccount,
    PreflightRow,
    row_of_check,
)

_BOOTSTRAP_VERSION = 6
"""Version of the bootstrap that templates of CDK's default synthesizer need (``requiresBootstrapStackVersion``)."""

_AT_WORK = ("HEALING", "MAINTENANCE", "REBOOTING_BROKER", "UPDATING")
"""States in which clients are served (MSK developer guide, "Understand MSK Provisioned cluster states")."""

_VPC_CONDITIONS = ("aws:SourceVpc", "aws:VpcSourceIp")
"""Beginnings of the condition keys that a request from outside of a VPC lacks (IAM user guide, "Global condition context keys")."""

_BUCKETS: tuple[Bucket, ...] = ("lake", "checkpoints", "event-logs", "dead-letters", "access-logs")

_DATA_CLASSES: Mapping[Bucket, str] = {"event-logs": "logs"}
"""By bucket, the key that encrypts it, if it is not that of data."""


def check_cdk_bootstrap_version(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that the account has CDK's bootstrap, in a version that suffices."""
    names = account.aws.names
    governance, region = names.environment.governance, names.environment.region
    command = f"cdk bootstrap aws://{names.account}/{region}"
    if governance.qualifier is not None:
        command += (
            f" --qualifier {governance.qualifier} --toolkit-stack-name CDKToolkit-{governance.qualifier}"
        )
    qualifier = governance.qualifier or CDK_QUALIFIER
    parameter = account.answer_if_exists("ssm", "get_parameter", Name=f"/cdk-bootstrap/{qualifier}/version")
    version = 0 if parameter is None else int(parameter["Parameter"]["Value"])
    wrong = (
        "" if version >= _BOOTSTRAP_VERSION else f"version {version}; the templates need {_BOOTSTRAP_VERSION}"
    )
    if parameter is None:
        wrong = f"account {names.account} is not bootstrapped for CDK in {region}"
    remedy = "bootstrap it once, with an administrator's credentials"
    yield row_of_check("bootstrap", wrong, f"version {version}", remedy, command)


def check_bootstrap_key_is_in_file(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that the file names the key of the bootstrap's bucket, as jobs read their files from there."""
    names = account.aws.names
    governance = names.environment.governance
    bucket = f"cdk-{governance.qualifier or CDK_QUALIFIER}-assets-{names.account}-{names.environment.region}"
    key = _key_of_bucket(account, bucket)
    own = key is not None and "alias/aws/" not in key and key != governance.bootstrap_key
    remedy = f"write governance: {{bootstrap_key: {key}}}, or jobs cannot read their files"
    wrong = f"{bucket} is encrypted with {key}" if own else ""
    yield row_of_check("bootstrap key", wrong, key or "AWS's own", remedy)


def _key_of_bucket(account: PreflightAccount, bucket: str) -> str | None:
    """Return the ARN of a bucket's key, which the bucket may name by its id alone; None for S3's own."""
    rules = account.client("s3").get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]
    applied = [rule.get("ApplyServerSideEncryptionByDefault", {}) for rule in rules["Rules"]]
    key = next((each["KMSMasterKeyID"] for each in applied if "KMSMasterKeyID" in each), None)
    known = key is None or "alias/" in key or key.startswith("arn:")
    return key if known else account.aws.names.arn("kms", f"key/{key}")


def check_stack_states(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that no stack of the environment is in a state from which CloudFormation refuses to update."""
    for name, state in account.stack_states.items():
        if state.endswith("_IN_PROGRESS"):
            yield PreflightRow(
                f"stack {name}", "failed", state, "wait until it has ended, then repeat the command"
            )
        elif state.endswith("_FAILED"):
            command = f"cdk rollback {name} -c env={account.aws.names.environment.name}"
            yield PreflightRow(f"stack {name}", "failed", state, "roll it back", command)
    yield PreflightRow("stacks", "ok", f"{len(account.stack_states)} deployed")


def check_zones(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that the region has the zones of a new VPC, for each engine."""
    environment = account.aws.names.environment
    if environment.network.vpc is not None or account.plan.network.egress.value == "none":
        return
    result = account.client("ec2").describe_availability_zones()["AvailabilityZones"]
    usable = [each["ZoneId"] for each in result if each["State"] == "available"]
    zones_needed = environment.network.zone_ids or tuple(usable[: environment.zone_count])
    yield from _check_zones_allowed_by_engines(account, zones_needed)
    lacking = ", ".join(each for each in zones_needed if each not in usable)
    if len(zones_needed) < environment.zone_count:
        lacking = lacking or f"{environment.zone_count} zones"
    wrong = f"{lacking}: not available; available: {', '.join(usable)}" if lacking else ""
    yield row_of_check(
        "zones", wrong, ", ".join(zones_needed), "write network.zone_ids or network.availability_zones"
    )


def _check_zones_allowed_by_engines(
    account: PreflightAccount, used: tuple[str, ...]
) -> Iterator[PreflightRow]:
    environment = account.aws.names.environment
    for kind in {type(job) for job in environment.jobs.values()}:
        allowed = kind.zones.get(environment.region)
        if allowed is not None and (outside := [zone for zone in used if zone not in allowed]):
            text = f"not in {', '.join(outside)}; in {', '.join(allowed)}"
            remedy = "choose subnets in other zones" if environment.network.vpc else "write network.zone_ids"
            yield PreflightRow(f"zones of {kind.title}", "failed", text, remedy)


def check_subnets(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check the given subnets: their VPC, zones, free addresses and routes to AWS."""
    network = account.aws.names.environment.network
    if account.plan.network.egress.value != "existing":
        return
    ec2 = account.client("ec2")
    result = ec2.describe_subnets(SubnetIds=list(network.subnets))["Subnets"]
    if foreign := [each["SubnetId"] for each in result if each["VpcId"] != network.vpc]:
        yield PreflightRow(
            "subnets", "failed", f"{', '.join(foreign)}: not in {network.vpc}", "write network.subnets"
        )
    yield from _check_zones_allowed_by_engines(account, tuple(each["AvailabilityZoneId"] for each in result))
    free = sum(each["AvailableIpAddressCount"] for each in result)
    jobs = [each for each in account.plan.jobs.values() if each.network.value == "vpc"]
    needed = sum(job.max_workers.value for job in jobs)
    text = f"{free:,} free addresses for up to {needed:,} workers"
    yield row_of_check("addresses of subnets", text if free < needed else "", text, "name larger subnets")
    where = [{"Name": "vpc-id", "Values": [network.vpc]}]
    tables = account.list_items("ec2", "describe_route_tables", "RouteTables", Filters=where)
    reached = account.list_items("ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=where)
    # In China some begin with "cn.com.amazonaws".
    region = account.aws.names.environment.region
    services = {each["ServiceName"].partition(f".{region}.")[2] for each in reached}
    lacking = [each for each in ("s3", *account.plan.network.services) if each not in services]
    for subnet in network.subnets:
        outwards = any(
            route.get("DestinationCidrBlock") == "0.0.0.0/0"
            and not route.get("GatewayId", "").startswith("igw-")
            for route in _route_table_of_subnet(subnet, tables).get("Routes", ())
        )
        wrong = f"no route out of the VPC, and no endpoint of {', '.join(lacking)}"
        yield row_of_check(
            f"routes of {subnet}",
            wrong if lacking and not outwards else "",
            "a route out of the VPC" if outwards else "endpoints",
            "add a NAT gateway's route or the endpoints",
        )


def _route_table_of_subnet(subnet: str, tables: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the route table of a subnet: its own, else the VPC's main one."""
    marks = (("SubnetId", subnet), ("Main", True))
    return next(
        (
            table
            for key, value in marks
            for table in tables
            if any(each.get(key) == value for each in table["Associations"])
        ),
        {},
    )


def check_kafka_versions(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that MSK offers the versions of own clusters."""
    clusters = account.aws.names.environment.created_clusters
    own = {name: each for name, each in clusters.items() if each.tier != "serverless"}
    if not own:
        return
    versions = account.list_items("kafka", "list_kafka_versions", "KafkaVersions")
    offered = sorted(each["Version"] for each in versions if each["Status"] == "ACTIVE")
    for name, cluster in own.items():
        wrong = f"{cluster.version} is not offered; offered: {', '.join(offered)}"
        yield row_of_check(
            f"version of {name}",
            "" if cluster.version in offered else wrong,
            cluster.version,
            f"write another kafka.{name}.version",
        )


def check_bucket_names(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that the names of new buckets are free or ours, and that existing ones exist."""
    names = account.aws.names
    existing = names.environment.storage.buckets
    created = () if account.has_stack("storage") else _BUCKETS
    for kind in (each for each in _BUCKETS if each in existing or each in created):
        name = names.bucket(kind)
        subject, code = f"bucket {name}", ""
        try:
            account.client("s3").head_bucket(Bucket=name)
        except ClientError as error:
            code = error.response["Error"].get("Code", "")
            if code not in ("403", *ABSENT):
                raise
        if code == "403" and kind in existing:
            yield PreflightRow(subject, "not known", "these credentials may not list the bucket")
        elif code == "403":
            yield PreflightRow(subject, "failed", "it belongs to somebody else", "choose another name")
        elif code:
            wrong = "no such bucket" if kind in existing else ""
            yield row_of_check(subject, wrong, "free", f"write storage.buckets.{kind}")
        else:
            yield (
                PreflightRow(subject, "ok", "exists")
                if kind in existing
                else _row_of_name_without_stack(
                    account, subject, _DATA_CLASSES.get(kind, "data"), _key_of_bucket(account, name)
                )
            )


def check_stream_names(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that the names of new streams are free or ours, and that existing ones have the shards of the file."""
    names = account.aws.names
    for name, stream in names.environment.streams.items():
        if not isinstance(stream, KinesisStream) or (stream.existing or "").startswith("arn:"):
            continue
        if stream.existing is None and account.has_stack("streams"):
            continue
        full = names.stream(name)
        summary = account.answer_if_exists("kinesis", "describe_stream_summary", StreamName=full)
        result = {} if summary is None else summary["StreamDescriptionSummary"]
        shards = result.get("OpenShardCount")
        if stream.existing is None:
            yield (
                PreflightRow(f"stream {full}", "ok", "free")
                if shards is None
                else _row_of_name_without_stack(account, f"stream {full}", "streams", result.get("KeyId"))
            )
        elif shards is None:
            yield PreflightRow(f"stream {full}", "failed", "no such stream", f"write streams.{name}.existing")
        elif stream.shards not in (None, shards):
            remedy = f"write streams.{name}.shards: {shards}"
            yield PreflightRow(
                f"stream {full}", "warning", f"{shards} open shards; the file has {stream.shards}", remedy
            )
        else:
            yield PreflightRow(f"stream {full}", "ok", f"exists, {shards} open shards")


def _row_of_name_without_stack(
    account: PreflightAccount, subject: str, data_class: str, key: str | None
) -> PreflightRow:
    """Return the row of what a removed stack left: it keeps its key, as CloudFormation imports no key."""
    if key not in (None, getattr(account.aws.names.environment.storage.keys, data_class)):
        text = f"it exists under {key}, which the jobs of this deployment may not use"
        return PreflightRow(subject, "failed", text, f"write storage.keys.{data_class}: {key}, or delete it")
    text = "it exists, and no stack has it: the deployment imports it"
    return PreflightRow(
        subject, "warning", text, "delete it first if it is not of an earlier deployment of this environment"
    )


def check_clusters(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that existing MSK clusters are there and active, and that the names of new ones are free."""
    names = account.aws.names
    environment = names.environment
    if not account.has_stack("kafka") and environment.created_clusters:
        listed = account.list_items("kafka", "list_clusters_v2", "ClusterInfoList")
        arns = {each["ClusterName"]: each["ClusterArn"] for each in listed}
        for name in environment.created_clusters:
            arn = arns.get(names.cluster(name))
            wrong = "" if arn is None else "its name is in use, and CloudFormation imports no cluster"
            remedy = f"write kafka.{name}.existing: {arn} and existing: true for its topics, or delete it"
            yield row_of_check(f"cluster {name}", wrong, "free", remedy)
    for name, cluster in environment.kafka.items():
        if not isinstance(cluster, MskCluster) or cluster.existing is None:
            continue
        result = account.answer_if_exists("kafka", "describe_cluster_v2", ClusterArn=cluster.existing)
        state = "no such cluster" if result is None else result["ClusterInfo"]["State"]
        remedy = f"write kafka.{name}.existing, or wait until it is active"
        usable = state in ("ACTIVE", *_AT_WORK)
        row = row_of_check(f"cluster {name}", "" if usable else state, state, remedy)
        yield replace(row, verdict="warning") if state in _AT_WORK else row


def check_may_grant_in_lake_formation(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that CloudFormation's role may grant in Lake Formation."""
    names = account.aws.names
    if names.environment.storage.lake_formation == "off":
        return
    admins = (
        account.client("lakeformation").get_data_lake_settings()["DataLakeSettings"].get("DataLakeAdmins", ())
    )
    qualifier = names.environment.governance.qualifier or CDK_QUALIFIER
    role = f"cdk-{qualifier}-cfn-exec-role-{names.account}-{names.environment.region}"
    made = any(each["DataLakePrincipalIdentifier"].endswith(f":role/{role}") for each in admins)
    yield row_of_check(
        "Lake Formation",
        "" if made else f"{role} is no data lake administrator",
        f"{role} is a data lake administrator",
        "make it one, in the console of Lake Formation",
    )


def check_policies_that_require_vpc(account: PreflightAccount) -> Iterator[PreflightRow]:
    """Check that no policy of an existing bucket or key refuses the jobs that run outside of any VPC."""
    jobs = [name for name, each in account.plan.jobs.items() if each.network.value == "none"]
    storage = account.aws.names.environment.storage
    policies = {}
    for bucket in storage.buckets.values() if jobs else ():
        response = account.answer_if_exists("s3", "get_bucket_policy", Bucket=bucket)
        policies[f"bucket {bucket}"] = "" if response is None else response["Policy"]
    policies |= {
        f"key {key}": account.client("kms").get_key_policy(KeyId=key)["Policy"]
        for _, key in (storage.keys if jobs else ())
        if key is not None
    }
    for subject, policy in policies.items():
        named = [each for each in _VPC_CONDITIONS if each.lower() in policy.lower()]
        yield row_of_check(
            f"VPC conditions of {subject}",
            f"its policy has {', '.join(named)}, and no VPC is the source of {', '.join(jobs)}"
            if named
            else "",
            "none",
            f"write jobs.{jobs[0]}.network: vpc, or except the jobs' roles from the condition",
        )


CHECKS: Mapping[str, Check] = {
    "bootstrap": check_cdk_bootstrap_version,
    "bootstrap key": check_bootstrap_key_is_in_file,
    "stacks": check_stack_states,
    **preflight_quotas.CHECKS,
    "zones": check_zones,
    "subnets": check_subnets,
    "versions of MSK": check_kafka_versions,
    "buckets": check_bucket_names,
    "VPC conditions": check_policies_that_require_vpc,
    "streams": check_stream_names,
    "clusters": check_clusters,
    "Lake Formation": check_may_grant_in_lake_formation,
}
"""By the subject that is shown if the question could not be asked."""
