"""What one job may do: actions and resources named, no managed policies, nothing for another job.

Sources: the action lists of ``docs/adr/0102-job-permissions.md``, which names the
AWS page behind each.
"""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_iam as iam

from infra.launch import event_log_prefix
from infra.settings import kafka_clusters, sources
from infra.spark import database_location
from millrace.config.model import DeriveQuery, GlueJob, KafkaTopic, KinesisStream, LandQuery, MskCluster
from millrace.config.names import Names
from millrace.sizing.model import JobPlan

PARTITION = "aws"


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

    def statements(self) -> list[iam.PolicyStatement]:
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

    def _sources(self) -> list[iam.PolicyStatement]:
        environment = self.names.environment
        job = environment.jobs[self.plan.name]
        found: list[iam.PolicyStatement] = []
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

    def _kafka(
        self, clusters: list[str], streams: dict[str, KinesisStream | KafkaTopic]
    ) -> list[iam.PolicyStatement]:
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
            # Finding a cluster by name has no narrower resource in IAM.
            _allow("FindClusters", ["kafka:ListClustersV2"], ["*"]),
            _allow("FindBrokers", ["kafka:GetBootstrapBrokers"], cluster_arns),
            _allow("ConnectClusters", ["kafka-cluster:Connect"], cluster_arns),
            _allow(
                "ReadTopics",
                ["kafka-cluster:DescribeTopic", "kafka-cluster:ReadData"],
                [self._arn("kafka", topic) for topic in topics],
            ),
            _allow("ConsumerGroups", ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"], groups),
        ]

    def _tables(self) -> list[iam.PolicyStatement]:
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

    def _objects(self) -> list[iam.PolicyStatement]:
        lake, location = self._bucket("lake"), database_location(self.names).split("/", 3)[3]
        checkpoints, logs = self._bucket("checkpoints"), self._bucket("event-logs")
        written = [f"{location}/{table}" for table in self.written_tables]
        read = [f"{location}/{table}" for table in self.read_tables]
        log_prefix = event_log_prefix(self.plan)
        found = [
            _allow("WriteTableFiles", _READ_WRITE, [f"{lake}/{prefix}/*" for prefix in written]),
            _list("ListTableFiles", lake, [*written, *read]),
            _allow("Checkpoints", _READ_WRITE, [f"{checkpoints}/{self.plan.name}/*"]),
            _list("ListCheckpoints", checkpoints, [self.plan.name]),
            _allow("EventLogs", _READ_WRITE, [f"{logs}/{log_prefix}/*"]),
            _list("ListEventLogs", logs, [log_prefix]),
            # All published files, not only today's: an executor that joins a run after the next
            # deployment still loads the files with which the run began.
            _allow("LoadFiles", ["s3:GetObject"], [f"arn:{PARTITION}:s3:::{self.assets_bucket}/*"]),
        ]
        if read:
            found.append(
                _allow("ReadTableFiles", ["s3:GetObject"], [f"{lake}/{prefix}/*" for prefix in read])
            )
        return found

    def _keys(self) -> list[iam.PolicyStatement]:
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
            # The owner's key is not known here; whatever it is, only through Kinesis.
            via = f"kinesis.{environment.region}.amazonaws.com"
            found.append(
                _allow(
                    "DecryptExistingStreams",
                    ["kms:Decrypt"],
                    [self._arn("kms", "key/*")],
                    {"StringEquals": {"kms:ViaService": via}},
                )
            )
        return found

    def _telemetry(self) -> list[iam.PolicyStatement]:
        # Glue appends the name of the security configuration to a log group's name.
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
            ),
            # Neither action knows a narrower resource; metrics are held to their namespaces.
            _allow("FindLogGroups", ["logs:DescribeLogGroups"], ["*"]),
            _allow(
                "PutMetrics",
                ["cloudwatch:PutMetricData"],
                ["*"],
                {"StringEquals": {"cloudwatch:namespace": ["Glue", "Millrace"]}},
            ),
        ]

    def _bucket(self, kind: str) -> str:
        return f"arn:{PARTITION}:s3:::{self.names.bucket(kind)}"  # type: ignore[arg-type]  # narrowed by callers


_READ_WRITE = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]


def glue_network_statements(
    names: Names, *, subnet_ids: list[str], security_group_id: str
) -> list[iam.PolicyStatement]:
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
        # Describing has no narrower resource in IAM.
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
        ),
        _allow(
            "MakeInterfaces",
            ["ec2:CreateNetworkInterface"],
            [
                interfaces,
                ec2(f"security-group/{security_group_id}"),
                *(ec2(f"subnet/{subnet}") for subnet in subnet_ids),
            ],
        ),
        _allow(
            "TagInterfaces",
            ["ec2:CreateTags", "ec2:DeleteTags"],
            [interfaces],
            {"ForAllValues:StringEquals": {"aws:TagKeys": ["aws-glue-service-resource"]}},
        ),
        _allow(
            "DropInterfaces",
            ["ec2:DeleteNetworkInterface"],
            [interfaces],
            {"StringLike": {"aws:ResourceTag/aws-glue-service-resource": "*"}},
        ),
    ]


def _allow(
    sid: str, actions: list[str], resources: list[str], conditions: dict[str, object] | None = None
) -> iam.PolicyStatement:
    return iam.PolicyStatement(sid=sid, actions=actions, resources=resources, conditions=conditions)


def _list(sid: str, bucket: str, prefixes: list[str]) -> iam.PolicyStatement:
    patterns = [pattern for prefix in prefixes for pattern in (prefix, f"{prefix}/*")]
    return _allow(sid, ["s3:ListBucket"], [bucket], {"StringLike": {"s3:prefix": patterns}})
