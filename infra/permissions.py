"""What one job may do: actions and resources named, no managed policies, nothing for another job.

Sources: the action lists of ``docs/adr/0102-job-permissions.md``, which names the
AWS page behind each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aws_cdk import aws_iam as iam

from infra.launch import event_log_prefix
from infra.settings import kafka_clusters, sources
from infra.spark import database_location
from millrace.config.model import DeriveQuery, GlueJob, KafkaTopic, KinesisStream, LandQuery, MskCluster
from millrace.config.names import Names
from millrace.sizing.model import JobPlan

PARTITION = "aws"

_FILES = "Files below one prefix: their names are made at run time"
_NO_NARROWER = "IAM knows no narrower resource for these actions"
_INTERFACES = "Glue makes network interfaces at run time; their tag holds it to its own"
_REMADE = "The random end of a cluster's ARN changes when the cluster is made again under its name"


@dataclass(frozen=True)
class Grant:
    """One statement of a role's policy.

    Attributes
    ----------
    sid
        Its name.
    actions, resources
        What may be done to what.
    why
        Reason for the wildcards among the resources; without one, a wildcard is a finding.
    conditions
        IAM conditions.
    """

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    why: str | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)

    @property
    def wildcards(self) -> tuple[str, ...]:
        """Resources that stand for more than one thing."""
        return tuple(resource for resource in self.resources if "*" in resource)

    def statement(self) -> iam.PolicyStatement:
        """Write it for a policy."""
        return iam.PolicyStatement(
            sid=self.sid,
            actions=list(self.actions),
            resources=list(self.resources),
            conditions=dict(self.conditions),
        )


@dataclass(frozen=True)
class Keys:
    """ARNs of the keys that a job's data is encrypted with; ``streams`` is ``None`` when no stream is ours."""

    data: str
    logs: str
    streams: str | None


@dataclass(frozen=True)
class JobPermissions:
    """The statements of one job's role.

    Parameters
    ----------
    names
        The deployed names.
    plan
        The job.
    keys
        The keys of what it reads and writes.
    assets_bucket
        The bucket where CDK publishes files.
    log_group
        Name of the job's log group.
    """

    names: Names
    plan: JobPlan
    keys: Keys
    assets_bucket: str
    log_group: str

    def grants(self) -> list[Grant]:
        """All of them, in a fixed order."""
        return [
            *self._sources(),
            *self._tables(),
            *self._objects(),
            *self._keys(),
            *self._telemetry(),
        ]

    @property
    def written_tables(self) -> tuple[str, ...]:
        """Tables that the job makes and appends to."""
        queries = self.names.environment.jobs[self.plan.name].queries.values()
        return tuple(q.table if isinstance(q, LandQuery) else q.sink.table for q in queries)

    @property
    def read_tables(self) -> tuple[str, ...]:
        """Tables that the job reads without writing them: references, and other jobs' landing tables."""
        found: list[str] = []
        for query in self.names.environment.jobs[self.plan.name].queries.values():
            if isinstance(query, DeriveQuery):
                found += [query.source, *(item.table for item in query.enrich)]
        return tuple(t for t in dict.fromkeys(found) if t not in self.written_tables)

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{PARTITION}:{service}:{self.names.environment.region}:{self.names.account}:{resource}"

    def _sources(self) -> list[Grant]:
        environment = self.names.environment
        job = environment.jobs[self.plan.name]
        found: list[Grant] = []
        streams = sources(environment, job)
        kinesis = [name for name, stream in streams.items() if isinstance(stream, KinesisStream)]
        if kinesis:
            actions = [
                "kinesis:DescribeStreamSummary",
                "kinesis:GetRecords",
                "kinesis:GetShardIterator",
                "kinesis:ListShards",
            ]
            if isinstance(job, GlueJob):
                # Glue's own connector describes the stream the older way.
                actions.append("kinesis:DescribeStream")
            found.append(
                _allow(
                    "ReadStreams",
                    actions,
                    [self._arn("kinesis", f"stream/{self.names.stream(s)}") for s in kinesis],
                )
            )
        owned = [c for c in kafka_clusters(environment, job) if isinstance(environment.kafka[c], MskCluster)]
        if owned:
            found += self._kafka(owned, streams)
        return found

    def _kafka(self, clusters: list[str], streams: dict[str, KinesisStream | KafkaTopic]) -> list[Grant]:
        # The last part of a cluster's ARN is a random id that changes when the cluster is made
        # again under its name; the role stays right, and needs nothing of the Kafka stack.
        topics = [
            f"topic/{self.names.cluster(stream.cluster)}/*/{self.names.stream(name)}"
            for name, stream in streams.items()
            if isinstance(stream, KafkaTopic) and stream.cluster in clusters
        ]
        cluster_arns = [self._arn("kafka", f"cluster/{self.names.cluster(c)}/*") for c in clusters]
        groups = [
            # Spark's own prefix; its groups hold no offsets, the checkpoint does.
            self._arn("kafka", f"group/{self.names.cluster(c)}/*/spark-kafka-source-*")
            for c in clusters
        ]
        return [
            _allow("FindClusters", ["kafka:ListClustersV2"], ["*"], why=_NO_NARROWER),
            _allow("FindBrokers", ["kafka:GetBootstrapBrokers"], cluster_arns, why=_REMADE),
            _allow("ConnectClusters", ["kafka-cluster:Connect"], cluster_arns, why=_REMADE),
            _allow(
                "ReadTopics",
                ["kafka-cluster:DescribeTopic", "kafka-cluster:ReadData"],
                [self._arn("kafka", topic) for topic in topics],
                why=_REMADE,
            ),
            _allow(
                "ConsumerGroups",
                ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"],
                groups,
                why="Spark makes up the end of a group name at every start",
            ),
        ]

    def _tables(self) -> list[Grant]:
        database = self.names.database
        catalog = [self._arn("glue", "catalog"), self._arn("glue", f"database/{database}")]

        def tables(names: tuple[str, ...]) -> list[str]:
            return [self._arn("glue", f"table/{database}/{name}") for name in names]

        found = [
            _allow(
                "WriteTables",
                ["glue:CreateTable", "glue:GetDatabase", "glue:GetTable", "glue:UpdateTable"],
                [*catalog, *tables(self.written_tables)],
            )
        ]
        if self.read_tables:
            found.append(_allow("ReadTables", ["glue:GetTable"], [*catalog, *tables(self.read_tables)]))
        return found

    def _objects(self) -> list[Grant]:
        lake, location = self._bucket("lake"), database_location(self.names).split("/", 3)[3]
        checkpoints, logs = self._bucket("checkpoints"), self._bucket("event-logs")
        written = [f"{location}/{table}" for table in self.written_tables]
        read = [f"{location}/{table}" for table in self.read_tables]
        log_prefix = event_log_prefix(self.plan)
        found = [
            _allow("WriteTableFiles", _READ_WRITE, [f"{lake}/{prefix}/*" for prefix in written], why=_FILES),
            _list("ListTableFiles", lake, [*written, *read]),
            _allow("Checkpoints", _READ_WRITE, [f"{checkpoints}/{self.plan.name}/*"], why=_FILES),
            _list("ListCheckpoints", checkpoints, [self.plan.name]),
            _allow("EventLogs", _READ_WRITE, [f"{logs}/{log_prefix}/*"], why=_FILES),
            _list("ListEventLogs", logs, [log_prefix]),
            _allow(
                "LoadFiles",
                ["s3:GetObject"],
                [f"arn:{PARTITION}:s3:::{self.assets_bucket}/*"],
                why="An executor that joins a run after the next deployment loads the files of the run's start",
            ),
        ]
        if read:
            found.append(
                _allow(
                    "ReadTableFiles", ["s3:GetObject"], [f"{lake}/{prefix}/*" for prefix in read], why=_FILES
                )
            )
        return found

    def _keys(self) -> list[Grant]:
        environment = self.names.environment
        found = [
            _allow("EncryptData", ["kms:Decrypt", "kms:GenerateDataKey"], [self.keys.data, self.keys.logs])
        ]
        kinesis = [
            stream
            for stream in sources(environment, environment.jobs[self.plan.name]).values()
            if isinstance(stream, KinesisStream)
        ]
        if self.keys.streams is not None and any(stream.existing is None for stream in kinesis):
            found.append(_allow("DecryptStreams", ["kms:Decrypt"], [self.keys.streams]))
        if any(stream.existing is not None for stream in kinesis):
            via = f"kinesis.{environment.region}.amazonaws.com"
            found.append(
                _allow(
                    "DecryptExistingStreams",
                    ["kms:Decrypt"],
                    [self._arn("kms", "key/*")],
                    {"StringEquals": {"kms:ViaService": via}},
                    why="The key of a stream that is not ours is not known; it is used through Kinesis only",
                )
            )
        return found

    def _telemetry(self) -> list[Grant]:
        groups = [self._arn("logs", f"log-group:{self.log_group}*")]
        return [
            _allow(
                "WriteLogs",
                [
                    "logs:AssociateKmsKey",
                    "logs:CreateLogGroup",
                    "logs:CreateLogStream",
                    "logs:DescribeLogStreams",
                    "logs:PutLogEvents",
                ],
                groups,
                why="Glue appends the name of the security configuration to a log group's name",
            ),
            _allow("FindLogGroups", ["logs:DescribeLogGroups"], ["*"], why=_NO_NARROWER),
            _allow(
                "PutMetrics",
                ["cloudwatch:PutMetricData"],
                ["*"],
                {"StringEquals": {"cloudwatch:namespace": ["Glue", "Millrace"]}},
                why=_NO_NARROWER,
            ),
        ]

    def _bucket(self, kind: str) -> str:
        return f"arn:{PARTITION}:s3:::{self.names.bucket(kind)}"  # type: ignore[arg-type]  # narrowed by callers


_READ_WRITE = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]


def glue_network_grants(names: Names, *, subnet_ids: list[str], security_group_id: str) -> list[Grant]:
    """Return what Glue does in a VPC with the job's role: network interfaces of its own, and looking around.

    Parameters
    ----------
    names
        The deployed names.
    subnet_ids, security_group_id
        Where the job's connections lead.
    """
    region, account = names.environment.region, names.account

    def ec2(resource: str) -> str:
        return f"arn:{PARTITION}:ec2:{region}:{account}:{resource}"

    interfaces = ec2("network-interface/*")
    return [
        _allow(
            "LookAround",
            [
                "ec2:DescribeNetworkInterfaces",
                "ec2:DescribeRouteTables",
                "ec2:DescribeSecurityGroups",
                "ec2:DescribeSubnets",
                "ec2:DescribeVpcAttribute",
                "ec2:DescribeVpcEndpoints",
            ],
            ["*"],
            why=_NO_NARROWER,
        ),
        _allow(
            "MakeInterfaces",
            ["ec2:CreateNetworkInterface"],
            [
                interfaces,
                ec2(f"security-group/{security_group_id}"),
                *(ec2(f"subnet/{subnet}") for subnet in subnet_ids),
            ],
            why=_INTERFACES,
        ),
        _allow(
            "TagInterfaces",
            ["ec2:CreateTags", "ec2:DeleteTags"],
            [interfaces],
            {"ForAllValues:StringEquals": {"aws:TagKeys": ["aws-glue-service-resource"]}},
            why=_INTERFACES,
        ),
        _allow(
            "DropInterfaces",
            ["ec2:DeleteNetworkInterface"],
            [interfaces],
            {"StringLike": {"aws:ResourceTag/aws-glue-service-resource": "*"}},
            why=_INTERFACES,
        ),
    ]


def _allow(
    sid: str,
    actions: Sequence[str],
    resources: Sequence[str],
    conditions: Mapping[str, Any] | None = None,
    *,
    why: str | None = None,
) -> Grant:
    return Grant(sid, tuple(actions), tuple(resources), why, conditions or {})


def _list(sid: str, bucket: str, prefixes: list[str]) -> Grant:
    patterns = [pattern for prefix in prefixes for pattern in (prefix, f"{prefix}/*")]
    return _allow(sid, ["s3:ListBucket"], [bucket], {"StringLike": {"s3:prefix": patterns}})
