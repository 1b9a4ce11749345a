"""Questions about an account itself: bootstrap, quotas, networks, versions, names that exist.

Sources: names and codes of quotas are those of Service Quotas; operations are those of the services' API references.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from botocore.exceptions import ClientError

from millrace.config.engines.glue import WORKERS
from millrace.config.model import MskCluster
from millrace.config.platform import Bucket
from millrace.config.sources.kinesis import KinesisStream
from millrace.lifecycle.preflight import Account, Check, Row
from millrace.lifecycle.problems import CDK_QUALIFIER

_BOOTSTRAP_VERSION = 6
"""Version of the bootstrap that templates of CDK's default synthesizer need (``requiresBootstrapStackVersion``)."""

_FULL = 0.8
"""Share of a quota from which the next change may not fit."""

_ALARMS = 5000
"""Alarms of an account in a region, unless it asked for more (CloudWatch user guide, "CloudWatch service quotas")."""

_AT_WORK = ("HEALING", "MAINTENANCE", "REBOOTING_BROKER", "UPDATING")
"""States in which clients are served (MSK developer guide, "Understand MSK Provisioned cluster states")."""

_ABSENT = ("ResourceNotFoundException", "NotFoundException", "404", "NoSuchBucket", "ParameterNotFound")
_BUCKETS: tuple[Bucket, ...] = ("lake", "checkpoints", "event-logs", "dead-letters", "access-logs")


def bootstrap(account: Account) -> Iterator[Row]:
    """Check version and key of CDK's bootstrap."""
    names, subject = account.aws.names, "bootstrap"
    governance, region = names.environment.governance, names.environment.region
    command = f"cdk bootstrap aws://{names.account}/{region}"
    if governance.qualifier is not None:
        command += (
            f" --qualifier {governance.qualifier} --toolkit-stack-name CDKToolkit-{governance.qualifier}"
        )
    qualifier = governance.qualifier or CDK_QUALIFIER
    parameter = _existing(account, "ssm", "get_parameter", Name=f"/cdk-bootstrap/{qualifier}/version")
    if parameter is None:
        said = f"account {names.account} is not bootstrapped for CDK in {region}"
        yield Row(subject, "failed", said, "bootstrap it once, with an administrator's credentials", command)
        return
    version = int(parameter["Parameter"]["Value"])
    if version < _BOOTSTRAP_VERSION:
        said = f"version {version}; the templates need {_BOOTSTRAP_VERSION}"
        yield Row(subject, "failed", said, "bootstrap again", command)
        return
    yield Row(subject, "ok", f"version {version}")


def bootstrap_key(account: Account) -> Iterator[Row]:
    """Check that jobs may read what the bootstrap's bucket encrypts."""
    names, subject = account.aws.names, "bootstrap key"
    governance = names.environment.governance
    bucket = f"cdk-{governance.qualifier or CDK_QUALIFIER}-assets-{names.account}-{names.environment.region}"
    rules = account.client("s3").get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]
    applied = [rule.get("ApplyServerSideEncryptionByDefault", {}) for rule in rules["Rules"]]
    key = next((each["KMSMasterKeyID"] for each in applied if "KMSMasterKeyID" in each), None)
    # A bucket may name its key by id alone.
    given = (governance.bootstrap_key or "").rpartition("/")[2]
    if key is None or "alias/aws/" in key or key.rpartition("/")[2] == given:
        yield Row(subject, "ok", key or "AWS's own")
    else:
        arn = key if key.startswith("arn:") else names.arn("kms", f"key/{key}")
        remedy = f"write governance: {{bootstrap_key: {arn}}}, or jobs cannot read their files"
        yield Row(subject, "failed", f"{bucket} is encrypted with {key}", remedy)


def stacks(account: Account) -> Iterator[Row]:
    """Check that no stack of the environment is in a state from which CloudFormation refuses to update."""
    for name, state in account.stacks.items():
        if state.endswith("_IN_PROGRESS"):
            yield Row(f"stack {name}", "failed", state, "wait until it has ended, then repeat the command")
        elif state.endswith("_FAILED"):
            command = f"cdk rollback {name} -c env={account.aws.names.environment.name}"
            yield Row(f"stack {name}", "failed", state, "roll it back", command)
    yield Row("stacks", "ok", f"{len(account.stacks)} deployed")


def within(subject: str, needed: float, used: float, most: float, command: str = "") -> Row:
    """Return the row of a quota."""
    found = f"{needed:,g} more and {used:,g} in use of {most:,g}"
    if needed + used > most:
        return Row(subject, "failed", found, "ask for a higher quota, or for less in the file", command)
    return Row(subject, "warning" if needed + used > most * _FULL else "ok", found)


def _quota(
    account: Account, subject: str, service: str, code: str, needed: float, used: float = 0
) -> Iterator[Row]:
    if needed <= 0:
        return
    client, asked = account.client("service-quotas"), {"ServiceCode": service, "QuotaCode": code}
    try:
        most = client.get_service_quota(**asked)["Quota"]["Value"]
    except ClientError as error:
        # An account that never asked for more has no quota of its own.
        if error.response["Error"].get("Code") != "NoSuchResourceException":
            raise
        most = client.get_aws_default_service_quota(**asked)["Quota"]["Value"]
    command = (
        f"aws service-quotas request-service-quota-increase --service-code {service} --quota-code {code} "
        f"--desired-value {math.ceil(needed + used)} --region {account.aws.names.environment.region}"
    )
    yield within(subject, needed, used, most, command)


def shards(account: Account) -> Iterator[Row]:
    """Check the shards of provisioned streams."""
    environment = account.aws.names.environment
    own = [n for n, s in environment.streams.items() if isinstance(s, KinesisStream) and s.is_created]
    provisioned = [n for n in own if environment.streams[n].sizing == "provisioned"]
    if not provisioned:
        return
    limits = account.client("kinesis").describe_limits()
    needed = sum(account.plan.streams[name].expected_partitions.value for name in provisioned)
    if account.has_stack("streams"):
        needed -= sum(_open_shards(account, account.aws.names.stream(name)) or 0 for name in provisioned)
    yield within("quota: Kinesis shards", max(0, needed), limits["OpenShardCount"], limits["ShardLimit"])


def _open_shards(account: Account, stream: str) -> int | None:
    found = _existing(account, "kinesis", "describe_stream_summary", StreamName=stream)
    return None if found is None else int(found["StreamDescriptionSummary"]["OpenShardCount"])


def glue_dpus(account: Account) -> Iterator[Row]:
    """Check the DPUs of all Glue jobs at once."""
    jobs = [job for job in account.plan.jobs.values() if job.engine == "glue"]
    needed = sum(job.max_workers.value * WORKERS[job.worker].dpu for job in jobs)
    yield from _quota(account, "quota: Glue DPUs, without other jobs", "glue", "L-08F3B322", needed)


def glue_runs(account: Account) -> Iterator[Row]:
    """Check the runs of all Glue jobs at once."""
    needed = sum(job.engine == "glue" for job in account.plan.jobs.values())
    yield from _quota(account, "quota: Glue runs, without other jobs", "glue", "L-5E4153CA", needed)


def emr_vcpus(account: Account) -> Iterator[Row]:
    """Check the vCPUs of all EMR Serverless jobs at once."""
    needed = sum(
        job.max_workers.value * job.vcpu for job in account.plan.jobs.values() if job.engine == "emr"
    )
    subject = "quota: EMR Serverless vCPUs, without other jobs"
    yield from _quota(account, subject, "emr-serverless", "L-D05C8A75", needed)


def brokers(account: Account) -> Iterator[Row]:
    """Check the brokers of own clusters."""
    names = account.aws.names
    own = {
        names.cluster(n)
        for n, c in names.environment.kafka.items()
        if isinstance(c, MskCluster) and not c.existing
    }
    needed = sum(each.brokers.value for each in account.plan.clusters.values() if each.brokers is not None)
    if not own or not needed:
        return
    found = account.call("kafka", "list_clusters_v2", "ClusterInfoList")
    others = [each.get("Provisioned", {}) for each in found if each["ClusterName"] not in own]
    used = sum(each.get("NumberOfBrokerNodes", 0) for each in others)
    yield from _quota(account, "quota: MSK brokers", "kafka", "L-EDD31C36", needed, used)


def vpcs(account: Account) -> Iterator[Row]:
    """Check that one more VPC fits."""
    if account.aws.names.environment.network.vpc is None and not account.has_stack("network"):
        used = len(account.call("ec2", "describe_vpcs", "Vpcs"))
        yield from _quota(account, "quota: VPCs", "vpc", "L-F678F1CE", 1, used)


def addresses(account: Account) -> Iterator[Row]:
    """Check the Elastic IPs of NAT gateways."""
    if account.plan.network.egress.value == "nat" and not account.has_stack("network"):
        used = len(account.client("ec2").describe_addresses()["Addresses"])
        yield from _quota(
            account, "quota: Elastic IPs", "ec2", "L-0263D0A3", account.plan.network.zones, used
        )


def endpoints(account: Account) -> Iterator[Row]:
    """Check the interface endpoints of the new VPC."""
    if account.plan.network.egress.value == "endpoints":
        needed = len(account.plan.network.services)
        yield from _quota(account, "quota: VPC endpoints", "vpc", "L-29B6F2EB", needed)


def alarms(account: Account) -> Iterator[Row]:
    """Check the number of alarms."""
    found = account.call("cloudwatch", "describe_alarms", "MetricAlarms")
    used = sum(not each["AlarmName"].startswith(account.aws.names.prefix) for each in found)
    row = within("quota: alarms", len(account.plan.alarms), used, _ALARMS)
    # No operation has the account's own quota, which may be higher.
    yield replace(row, verdict="warning") if row.verdict == "failed" else row


def zones(account: Account) -> Iterator[Row]:
    """Check that the region has the zones of a new VPC, for each engine."""
    environment = account.aws.names.environment
    if environment.network.vpc is not None:
        return
    found = account.client("ec2").describe_availability_zones()["AvailabilityZones"]
    usable = [each["ZoneId"] for each in found if each["State"] == "available"]
    wanted = environment.network.zone_ids or tuple(usable[: environment.zones])
    yield from _zones_of_services(account, wanted)
    lacking = [each for each in wanted if each not in usable]
    if lacking or len(wanted) < environment.zones:
        said = f"{', '.join(lacking) or f'{environment.zones} zones'}: not available; available: {', '.join(usable)}"
        yield Row("zones", "failed", said, "write network.zone_ids or network.availability_zones")
    else:
        yield Row("zones", "ok", ", ".join(wanted))


def _zones_of_services(account: Account, used: tuple[str, ...]) -> Iterator[Row]:
    environment = account.aws.names.environment
    for kind in {type(job) for job in environment.jobs.values()}:
        allowed = kind.zones.get(environment.region)
        if allowed is not None and (outside := [zone for zone in used if zone not in allowed]):
            said = f"not in {', '.join(outside)}; in {', '.join(allowed)}"
            remedy = "choose subnets in other zones" if environment.network.vpc else "write network.zone_ids"
            yield Row(f"zones of {kind.title}", "failed", said, remedy)


def subnets(account: Account) -> Iterator[Row]:
    """Check the given subnets: their VPC, zones, free addresses and routes to AWS."""
    network = account.aws.names.environment.network
    if network.vpc is None:
        return
    ec2 = account.client("ec2")
    found = ec2.describe_subnets(SubnetIds=list(network.subnets))["Subnets"]
    if foreign := [each["SubnetId"] for each in found if each["VpcId"] != network.vpc]:
        yield Row("subnets", "failed", f"{', '.join(foreign)}: not in {network.vpc}", "write network.subnets")
    yield from _zones_of_services(account, tuple(each["AvailabilityZoneId"] for each in found))
    free = sum(each["AvailableIpAddressCount"] for each in found)
    needed = sum(job.max_workers.value for job in account.plan.jobs.values())
    said = f"{free:,} free addresses for up to {needed:,} workers"
    if free < needed:
        yield Row("addresses of subnets", "failed", said, "name larger subnets")
    else:
        yield Row("addresses of subnets", "ok", said)
    where = [{"Name": "vpc-id", "Values": [network.vpc]}]
    tables = account.call("ec2", "describe_route_tables", "RouteTables", Filters=where)
    reached = account.call("ec2", "describe_vpc_endpoints", "VpcEndpoints", Filters=where)
    # In China some begin with "cn.com.amazonaws".
    region = account.aws.names.environment.region
    services = {each["ServiceName"].partition(f".{region}.")[2] for each in reached}
    lacking = [each for each in ("s3", *account.plan.network.services) if each not in services]
    for subnet in network.subnets:
        outwards = any(
            route.get("DestinationCidrBlock") == "0.0.0.0/0"
            and not route.get("GatewayId", "").startswith("igw-")
            for route in _table_of(subnet, tables).get("Routes", ())
        )
        if lacking and not outwards:
            said = f"no route out of the VPC, and no endpoint of {', '.join(lacking)}"
            yield Row(f"routes of {subnet}", "failed", said, "add a NAT gateway's route or the endpoints")
        else:
            yield Row(f"routes of {subnet}", "ok", "a route out of the VPC" if outwards else "endpoints")


def _table_of(
    subnet: str, tables: list[dict[str, list[dict[str, object]]]]
) -> dict[str, list[dict[str, str]]]:
    """Return the route table of a subnet: its own, else the VPC's main one."""
    for key, value in (("SubnetId", subnet), ("Main", True)):
        for table in tables:
            if any(each.get(key) == value for each in table["Associations"]):
                return table  # type: ignore[return-value]  # a response of boto3, which has no static type
    return {}


def kafka_versions(account: Account) -> Iterator[Row]:
    """Check that MSK offers the versions of own clusters."""
    clusters = account.aws.names.environment.kafka.items()
    own = {
        n: c for n, c in clusters if isinstance(c, MskCluster) and not c.existing and c.tier != "serverless"
    }
    if not own:
        return
    found = account.call("kafka", "list_kafka_versions", "KafkaVersions")
    offered = sorted(each["Version"] for each in found if each["Status"] == "ACTIVE")
    for name, cluster in own.items():
        if cluster.version in offered:
            yield Row(f"version of {name}", "ok", cluster.version)
        else:
            said = f"{cluster.version} is not offered; offered: {', '.join(offered)}"
            yield Row(f"version of {name}", "failed", said, f"write another kafka.{name}.version")


def bucket_names(account: Account) -> Iterator[Row]:
    """Check that the names of new buckets are free or ours, and that existing ones exist."""
    names = account.aws.names
    given = names.environment.storage.buckets
    created = () if account.has_stack("storage") else _BUCKETS
    for kind in (each for each in _BUCKETS if each in given or each in created):
        name = names.bucket(kind)
        try:
            account.client("s3").head_bucket(Bucket=name)
        except ClientError as error:
            code = error.response["Error"].get("Code")
            if code not in ("403", *_ABSENT):
                raise
            if code == "403" and kind in given:
                yield Row(f"bucket {name}", "not known", "only its owner, or who may list it, may ask")
            elif code == "403":
                yield Row(f"bucket {name}", "failed", "it belongs to somebody else", "choose another name")
            elif kind in given:
                yield Row(f"bucket {name}", "failed", "no such bucket", f"write storage.buckets.{kind}")
            else:
                yield Row(f"bucket {name}", "ok", "free")
            continue
        yield _left(f"bucket {name}") if kind not in given else Row(f"bucket {name}", "ok", "exists")


def stream_names(account: Account) -> Iterator[Row]:
    """Check that the names of new streams are free or ours, and that existing ones have the shards of the file."""
    names = account.aws.names
    for name, stream in names.environment.streams.items():
        if not isinstance(stream, KinesisStream) or (stream.existing or "").startswith("arn:"):
            continue
        if stream.existing is None and account.has_stack("streams"):
            continue
        full = names.stream(name)
        found = _open_shards(account, full)
        if stream.existing is None:
            yield Row(f"stream {full}", "ok", "free") if found is None else _left(f"stream {full}")
        elif found is None:
            yield Row(f"stream {full}", "failed", "no such stream", f"write streams.{name}.existing")
        elif stream.shards not in (None, found):
            remedy = f"write streams.{name}.shards: {found}"
            yield Row(
                f"stream {full}", "warning", f"{found} open shards; the file has {stream.shards}", remedy
            )
        else:
            yield Row(f"stream {full}", "ok", f"exists, {found} open shards")


def _left(subject: str) -> Row:
    said = "it exists, and no stack has it: the deployment imports it"
    return Row(
        subject, "warning", said, "delete it first if it is not of an earlier deployment of this environment"
    )


def clusters(account: Account) -> Iterator[Row]:
    """Check that existing MSK clusters are there and active."""
    for name, cluster in account.aws.names.environment.kafka.items():
        if not isinstance(cluster, MskCluster) or cluster.existing is None:
            continue
        found = _existing(account, "kafka", "describe_cluster_v2", ClusterArn=cluster.existing)
        state = "no such cluster" if found is None else found["ClusterInfo"]["State"]
        if state in ("ACTIVE", *_AT_WORK):
            yield Row(f"cluster {name}", "ok" if state == "ACTIVE" else "warning", state)
        else:
            yield Row(
                f"cluster {name}", "failed", state, f"write kafka.{name}.existing, or wait until it is active"
            )


def lake_formation(account: Account) -> Iterator[Row]:
    """Check that CloudFormation's role may grant in Lake Formation."""
    names = account.aws.names
    if names.environment.storage.lake_formation == "off":
        return
    found = (
        account.client("lakeformation").get_data_lake_settings()["DataLakeSettings"].get("DataLakeAdmins", ())
    )
    qualifier = names.environment.governance.qualifier or CDK_QUALIFIER
    role = f"cdk-{qualifier}-cfn-exec-role-{names.account}-{names.environment.region}"
    if any(each["DataLakePrincipalIdentifier"].endswith(f":role/{role}") for each in found):
        yield Row("Lake Formation", "ok", f"{role} is a data lake administrator")
    else:
        remedy = "make it one, in the console of Lake Formation"
        yield Row("Lake Formation", "failed", f"{role} is no data lake administrator", remedy)


def _existing(account: Account, service: str, operation: str, **given: str) -> dict[str, Any] | None:
    """Return the answer of an operation; None if its subject does not exist."""
    try:
        return dict(getattr(account.client(service), operation)(**given))
    except ClientError as error:
        if error.response["Error"].get("Code") in _ABSENT:
            return None
        raise


CHECKS: Mapping[str, Check] = MappingProxyType(
    {
        "bootstrap": bootstrap,
        "bootstrap key": bootstrap_key,
        "stacks": stacks,
        "quota: Kinesis shards": shards,
        "quota: Glue DPUs": glue_dpus,
        "quota: Glue runs": glue_runs,
        "quota: EMR Serverless vCPUs": emr_vcpus,
        "quota: MSK brokers": brokers,
        "quota: VPCs": vpcs,
        "quota: Elastic IPs": addresses,
        "quota: VPC endpoints": endpoints,
        "quota: alarms": alarms,
        "zones": zones,
        "subnets": subnets,
        "versions of MSK": kafka_versions,
        "buckets": bucket_names,
        "streams": stream_names,
        "clusters": clusters,
        "Lake Formation": lake_formation,
    }
)
"""By the subject that is shown if the question could not be asked."""
