"""Grants of access to data for the commands that need it: checkpoints, tables, streams, event logs, the bill."""

from __future__ import annotations

from typing import get_args

from aws_cdk import DefaultStackSynthesizer

from millrace.config.aws.iam_statements import (
    FILES,
    FINDS_BROKERS,
    NO_NARROWER,
    REMADE,
    Grant,
    allow,
    allow_listing_prefixes,
)
from millrace.config.job_networks import reason_job_runs_in_vpc
from millrace.config.model import ExternalCluster, MskCluster
from millrace.config.network_storage_governance_observability import Bucket
from millrace.config.sources.kafka import READS_TOPIC, arn_within_cluster

from ..environment_permission_scope import PermissionScope
from ..launch.job_spark_settings import database_location
from .job_permissions import grants_denying_version_writes

_AUDIT_GROUP = "millrace-audit"
_ALL_ALARMS = "The quota counts all alarms of the account"


def grants_to_read_checkpoints(scope: PermissionScope) -> list[Grant]:
    """Read the checkpoints of all jobs."""
    bucket = scope.names.bucket_arn("checkpoints")
    return [
        # On the complete bucket: a caller that may not list it gets 403, not 404, for an object that does not exist (API
        # reference, GetObject), and a request for an object has no prefix for a condition.
        allow("ListCheckpoints", ["s3:ListBucket"], [bucket]),
        allow(
            "ReadCheckpoints",
            ["s3:GetObject"],
            [f"{bucket}/{folder}/*" for folder in scope.checkpoint_folders],
            why=FILES,
        ),
        *scope.s3_key_grants("Decrypt", ["kms:Decrypt"], "data"),
    ]


def grants_to_write_checkpoints(scope: PermissionScope) -> list[Grant]:
    """Change the checkpoints of all jobs, and the files that commands put beside them for a run."""
    bucket = scope.names.bucket_arn("checkpoints")
    actions = ["s3:DeleteObject", "s3:PutObject"]
    if "checkpoints" in scope.names.environment.storage.buckets:
        # The environment's own bucket keeps no versions; an existing one may, and corrected payloads must not stay in it.
        actions.append("s3:DeleteObjectVersion")
    return [
        allow(
            "WriteCheckpoints",
            actions,
            [f"{bucket}/{folder}/*" for folder in scope.checkpoint_folders],
            why=FILES,
        ),
        *grants_denying_version_writes(scope.names),
        *scope.s3_key_grants("Encrypt", ["kms:GenerateDataKey"], "data"),
    ]


def grants_to_read_catalog_tables(scope: PermissionScope) -> list[Grant]:
    """Read the columns and locations of the jobs' tables."""
    databases = dict.fromkeys(f"database/{name.split('.')[0]}" for name in scope.tables)
    tables = [f"table/{name.replace('.', '/')}" for name in scope.tables]
    named = ["catalog", *databases, *tables] if tables else []
    return [allow("ReadCatalog", ["glue:GetTable"], [scope.names.arn("glue", each) for each in named])]


def grants_to_read_table_metadata(scope: PermissionScope) -> list[Grant]:
    """Read the metadata files of all tables of the jobs, which have the columns."""
    given = [
        each
        for each in scope.names.environment.tables.values()
        if f"{each.database}.{each.table}" in scope.tables
    ]
    arns = [scope.names.s3_arn(each.location.removeprefix("s3://").rstrip("/")) for each in given]
    keys = dict.fromkeys(each.key for each in given if each.key is not None)
    return [
        allow(
            "ReadTableMetadata",
            ["s3:GetObject"],
            [f"{arn}/metadata/*" for arn in (*_own_table_arns(scope), *arns)],
            why=FILES,
        ),
        *scope.s3_key_grants("Decrypt", ["kms:Decrypt"], "data"),
        allow("DecryptGivenTables", ["kms:Decrypt"], list(keys), scope.condition_via_service("s3")),
    ]


def grants_to_read_table_files(scope: PermissionScope) -> list[Grant]:
    """Read the files of the environment's own tables."""
    files = [f"{arn}/*" for arn in _own_table_arns(scope)]
    return [
        allow("ReadTableFiles", ["s3:GetObject"], files, why=FILES),
        *scope.s3_key_grants("Decrypt", ["kms:Decrypt"], "data"),
    ]


def _own_table_arns(scope: PermissionScope) -> list[str]:
    location = scope.names.s3_arn(database_location(scope.names).removeprefix("s3://"))
    tables = [name.split(".") for name in scope.tables]
    return [f"{location}/{table}" for database, table in tables if database == scope.names.database]


def grants_to_read_streams(scope: PermissionScope) -> list[Grant]:
    """Read the streams of this account that have metrics of their own, as Kinesis has; others are not audited."""
    result = {
        name: each for name, each in scope.names.environment.streams.items() if each.metrics is not None
    }
    arns = {
        name: arn
        for name in result
        if (arn := scope.names.stream_arn(name)).split(":")[4] == scope.names.account
    }
    created = any(result[name].is_created for name in arns)
    keys = dict.fromkeys(key for name in arns if (key := result[name].foreign_kms_key) is not None)
    return [
        allow(
            "ReadStreams",
            ["kinesis:GetRecords", "kinesis:GetShardIterator", "kinesis:ListShards"],
            list(dict.fromkeys(arns.values())),
        ),
        *(scope.key_grants("DecryptStreams", ["kms:Decrypt"], "kinesis", "streams") if created else ()),
        allow("DecryptGivenStreams", ["kms:Decrypt"], list(keys), scope.condition_via_service("kinesis")),
    ]


def grants_to_read_topics(scope: PermissionScope) -> list[Grant]:
    """Read topics and their offsets, with the consumer group of the audit, which commits nothing."""
    names, known = scope.names, scope.names.environment.kafka
    topics = {
        name: each.cluster_name
        for name, each in names.environment.streams.items()
        if each.cluster_name is not None
    }
    places = {
        cluster: base
        for cluster in dict.fromkeys(topics.values())
        if (base := names.cluster_arn(cluster)) is not None
    }
    by_name = any(not isinstance(known[cluster], ExternalCluster) for cluster in topics.values())
    read = [names.stream_arn(name) for name, cluster in topics.items() if cluster in places]
    groups = [arn_within_cluster(names, cluster, "group", _AUDIT_GROUP) for cluster in places]
    return [
        allow("FindBrokers", FINDS_BROKERS, ["*"] if by_name else [], why=NO_NARROWER),
        allow("ConnectClusters", ["kafka-cluster:Connect"], list(places.values()), why=REMADE),
        allow("ReadTopics", READS_TOPIC, read, why=REMADE),
        allow("AuditGroup", ["kafka-cluster:DescribeGroup"], groups, why=REMADE),
    ]


def grants_to_read_event_logs(scope: PermissionScope) -> list[Grant]:
    """Read the jobs' Spark event logs."""
    bucket = scope.names.bucket_arn("event-logs")
    prefixes = [f"{section.engine}/{job}" for job, section in scope.names.environment.jobs.items()]
    return [
        allow("ReadEventLogs", ["s3:GetObject"], [f"{bucket}/{prefix}/*" for prefix in prefixes], why=FILES),
        allow_listing_prefixes("ListEventLogs", bucket, prefixes),
        *scope.s3_key_grants("Decrypt", ["kms:Decrypt"], "logs"),
    ]


def grants_to_read_costs(scope: PermissionScope) -> list[Grant]:
    """Ask Cost Explorer for what carries the environment's tags."""
    view = f"arn:{scope.names.aws_partition}:billing::{scope.names.account}:billingview/primary"
    return [
        allow("ReadBill", ["ce:GetCostAndUsage"], [view]),
        allow("ReadBillTags", ["ce:ListCostAllocationTags"], ["*"], why=NO_NARROWER),
    ]


def grants_to_read_what_decides_deployment(scope: PermissionScope) -> list[Grant]:
    """Ask the account what decides a deployment; a question without permission is not known, and stops nothing."""
    names = scope.names
    environment = names.environment
    network, streams = environment.network, environment.streams
    msk = [each for each in environment.kafka.values() if isinstance(each, MskCluster)]
    kinds = {job.engine for job in environment.jobs.values()}
    anywhere = [
        "access-analyzer:ValidatePolicy",
        "iam:GetAccountSummary",
        "servicequotas:GetAWSDefaultServiceQuota",
        "states:ValidateStateMachineDefinition",
    ]
    resources = (
        ("Subnets", "RouteTables", "VpcEndpoints")
        if network.vpc
        else ("AvailabilityZones", "Vpcs", "Addresses")
    )
    anywhere += [f"ec2:Describe{each}" for each in resources]
    anywhere += ["kafka:ListClustersV2", "kafka:ListKafkaVersions"] if environment.created_clusters else []
    quotas = [
        *(("vpc/L-F678F1CE", "vpc/L-29B6F2EB", "ec2/L-0263D0A3") if network.vpc is None else ()),
        *(("glue/L-08F3B322", "glue/L-5E4153CA") if "glue" in kinds else ()),
        *(("emr-serverless/L-D05C8A75",) if "emr" in kinds else ()),
        *(("kafka/L-EDD31C36",) if environment.created_clusters else ()),
    ]
    kinesis = [
        name for name, each in streams.items() if each.kind == "kinesis" and not each.cross_account_role
    ]
    if any(streams[name].is_created for name in kinesis):
        anywhere.append("kinesis:DescribeLimits")
    if environment.storage.lake_formation != "off":
        anywhere.append("lakeformation:GetDataLakeSettings")
    buckets = list(dict.fromkeys(scope.names.bucket_arn(kind) for kind in get_args(Bucket)))
    outside = any(reason_job_runs_in_vpc(environment, job) is None for job in environment.jobs)
    policies = [scope.names.s3_arn(each) for each in environment.storage.buckets.values()] if outside else []
    keys = [key for _, key in environment.storage.keys if key is not None] if outside else []
    assets = scope.names.s3_arn(
        scope.bootstrap_resource_name(DefaultStackSynthesizer.DEFAULT_FILE_ASSETS_BUCKET_NAME)
    )
    return [
        allow("AskAccount", sorted(anywhere), ["*"], why=NO_NARROWER),
        allow(
            "AskQuotas",
            ["servicequotas:GetServiceQuota"],
            [names.arn("servicequotas", each) for each in quotas],
        ),
        allow(
            "AskAlarms", ["cloudwatch:DescribeAlarms"], [names.arn("cloudwatch", "alarm:*")], why=_ALL_ALARMS
        ),
        allow("AskStreams", ["kinesis:DescribeStreamSummary"], [names.stream_arn(name) for name in kinesis]),
        allow("AskClusters", ["kafka:DescribeClusterV2"], [each.existing for each in msk if each.existing]),
        allow("FindBuckets", ["s3:GetEncryptionConfiguration", "s3:ListBucket"], buckets),
        allow("AskBucketPolicies", ["s3:GetBucketPolicy"], policies),
        allow("AskKeyPolicies", ["kms:GetKeyPolicy"], keys),
        allow("AskBootstrapKey", ["s3:GetEncryptionConfiguration"], [assets]),
    ]
