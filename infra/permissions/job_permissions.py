"""Permissions of one job: named actions and resources, no managed policies of AWS, nothing for another job.

Sources: the action lists of ``docs/design/permissions.md#roles-of-jobs``, which names the
AWS page behind each; for Kafka the MSK guide, "IAM access control".
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace.config.aws.iam_statements import (
    FILES,
    INTERFACES,
    NO_NARROWER,
    Grant,
    allow,
    allow_listing_prefixes,
    deny,
    merge_grants,
)
from millrace.config.aws.regions import kms_via_service_names
from millrace.config.aws.resource_names import VERSIONS, Names
from millrace.config.base import grouped
from millrace.config.model import Job
from millrace.config.network_storage_governance_observability import ExistingTable
from millrace.config.queries import DeriveQuery, OneStreamQueryBase
from millrace.config.sinks import KINDS
from millrace.config.sinks.base import SinkContext
from millrace.sizing.alarms.reported_metrics import metric_namespace
from millrace.sizing.plan_model import JobPlan

from ..launch.job_spark_settings import database_location
from ..launch.launch_document import event_log_prefix
from ..launch.launch_settings import source_streams_of_job
from .source_permissions import kafka_secret_grants, source_grants


@dataclass(frozen=True)
class JobPermissions:
    """The statements of one job's role.

    Parameters
    ----------
    data_key, logs_key, streams_key
        ARNs of the keys of the data that the job reads and writes; no ``streams_key`` when the environment owns no stream.
    assets
        Bucket and prefix where CDK publishes the files of the job's stack only.
    log_group
        Name of the job's log group.
    workspace
        ARN of the Prometheus workspace that the job writes to, if it does.
    """

    names: Names
    plan: JobPlan
    data_key: str
    logs_key: str
    streams_key: str | None
    assets: str
    log_group: str
    workspace: str | None = None

    def grants(self) -> list[Grant]:
        """Return all statements, in a fixed order, without those that would be for no resource."""
        statements = [
            *source_grants(self.names, self.plan.name),
            *self._sink_grants(),
            *kafka_secret_grants(self.names, self._job),
            *self._table_grants(),
            *self._s3_object_grants(),
            *self._key_grants(),
            *self._telemetry_grants(),
            allow("RemoteWrite", ["aps:RemoteWrite"], [self.workspace] if self.workspace else []),
            *grants_denying_version_writes(self.names),
        ]
        return [grant for grant in statements if grant.resources]

    @property
    def written_tables(self) -> tuple[str, ...]:
        """Tables that the job makes and appends to."""
        queries = self._job.queries.values()
        return tuple(table for query in queries for table in query.created_tables_by_place.values())

    @property
    def benchmark_tables(self) -> tuple[str, ...]:
        """Tables of a benchmark beside the tables that queries on topics write; each run creates and drops them."""
        streams = self.names.environment.streams
        on_topic = any(
            isinstance(query, OneStreamQueryBase) and streams[query.source].splits
            for query in self._job.queries.values()
        )
        return tuple(f"{table}_benchmark" for table in self.written_tables) if on_topic else ()

    @property
    def tables_only_read(self) -> tuple[str, ...]:
        """Tables that the job reads without writing them: references, and other jobs' landing tables.

        Those of somebody else's databases are in :attr:`existing_tables_read`.
        """
        others = {*self.written_tables, *self.names.environment.tables}
        return tuple(table for table in self._tables_read if table not in others)

    @property
    def existing_tables_read(self) -> tuple[ExistingTable, ...]:
        """Tables that somebody else owns and the job reads."""
        tables = self.names.environment.tables
        return tuple(tables[name] for name in self._tables_read if name in tables)

    @property
    def _tables_read(self) -> tuple[str, ...]:
        """Tables that the job reads, its own too, each once."""
        tables: list[str] = []
        for query in self._job.queries.values():
            tables += [table for table, _ in query.source_tables_and_routes]
            tables += [item.table for end in query.sinks_by_place.values() for item in end.enrich]
        return tuple(dict.fromkeys(tables))

    @property
    def _job(self) -> Job:
        return self.names.environment.jobs[self.plan.name]

    def _sink_grants(self) -> list[Grant]:
        """Return the grants of the job's sinks beside the tables of the lake, in the order of the kinds."""
        ends = [
            (end.sink, isinstance(query, DeriveQuery) and bool(query.latest_by))
            for query in self._job.queries.values()
            for end in query.sinks_by_place.values()
        ]
        ends.sort(key=lambda each: list(KINDS).index(each[0].kind))
        return merge_grants(
            grant
            for sink, deletes in ends
            for grant in sink.grants(SinkContext(self.names, deletes=deletes, streams_key=self.streams_key))
        )

    def _table_grants(self) -> list[Grant]:
        database = self.names.database
        catalog = [self.names.arn("glue", "catalog"), self.names.arn("glue", f"database/{database}")]

        def table_arns(names: tuple[str, ...]) -> list[str]:
            return [*catalog, *(self.names.arn("glue", f"table/{database}/{name}") for name in names)]

        arns = dict.fromkeys(
            arn
            for table in self.existing_tables_read
            for arn in (
                catalog[0],
                self.names.arn("glue", f"database/{table.database}"),
                self.names.arn("glue", f"table/{table.database}/{table.table}"),
            )
        )
        return [
            allow(
                "WriteTables",
                ["glue:CreateTable", "glue:GetDatabase", "glue:GetTable", "glue:UpdateTable"],
                table_arns(self.written_tables),
            ),
            allow(
                "BenchmarkTables",
                ["glue:CreateTable", "glue:DeleteTable", "glue:GetTable", "glue:UpdateTable"],
                table_arns(self.benchmark_tables) if self.benchmark_tables else [],
            ),
            allow(
                "ReadTables",
                ["glue:GetTable"],
                table_arns(self.tables_only_read) if self.tables_only_read else [],
            ),
            # What EMR's extensions of Spark may ask of the catalog before its tables.
            allow("ReadCatalog", ["glue:GetCatalog"], catalog[:1]),
            allow("ReadGivenTables", ["glue:GetTable"], list(arns)),
        ]

    def _s3_object_grants(self) -> list[Grant]:
        lake, location = self.names.bucket_arn("lake"), database_location(self.names).split("/", 3)[3]
        checkpoints, logs = self.names.bucket_arn("checkpoints"), self.names.bucket_arn("event-logs")
        written = [f"{location}/{table}" for table in (*self.written_tables, *self.benchmark_tables)]
        read = [f"{location}/{table}" for table in self.tables_only_read]
        folder = self.names.checkpoint_folder(self.plan.name)
        log_prefix, erasures = event_log_prefix(self.plan), f"{location}/_erasures/{self.plan.name}"
        return [
            allow("WriteTableFiles", _READ_WRITE, [f"{lake}/{prefix}/*" for prefix in written], why=FILES),
            allow_listing_prefixes("ListTableFiles", lake, [*written, *read, erasures]),
            # The record of an erasure lies beside the tables; nobody changes it, but a run that was killed writes it again.
            allow("Erasures", ["s3:GetObject", "s3:PutObject"], [f"{lake}/{erasures}/*"], why=FILES),
            allow("Checkpoints", _READ_WRITE, [f"{checkpoints}/{folder}/*"], why=FILES),
            allow_listing_prefixes("ListCheckpoints", checkpoints, [folder]),
            *self._reader_checkpoint_grants(checkpoints),
            allow("EventLogs", _READ_WRITE, [f"{logs}/{log_prefix}/*"], why=FILES),
            allow_listing_prefixes("ListEventLogs", logs, [log_prefix]),
            allow(
                "LoadFiles",
                ["s3:GetObject"],
                [self.names.s3_arn(f"{self.assets}/*")],
                why="Files are named by their content, and an executor that joins a run after the next deployment loads the files of the run's start",
            ),
            allow("ReadTableFiles", ["s3:GetObject"], [f"{lake}/{prefix}/*" for prefix in read], why=FILES),
            *self._existing_table_file_grants(),
        ]

    def _reader_checkpoint_grants(self, checkpoints: str) -> list[Grant]:
        """Return the grants with which upkeep finds how far other jobs' queries have read before it expires snapshots."""
        environment, job = self.names.environment, self.plan.name
        if environment.storage.upkeep is None:
            return []
        others = dict.fromkeys(
            f"{self.names.checkpoint_folder(reader)}/{query}"
            for table in environment.maintained_tables(job)
            for reader, query in environment.readers_of_table(table)
            if reader != job
        )
        if not others:
            return []
        return [
            allow(
                "ReadersCheckpoints",
                ["s3:GetObject"],
                [f"{checkpoints}/{other}/{log}/*" for other in others for log in ("commits", "offsets")],
                why=FILES,
            ),
            allow_listing_prefixes("ListReadersCheckpoints", checkpoints, list(others)),
        ]

    def _existing_table_file_grants(self) -> list[Grant]:
        places = [table.location.removeprefix("s3://").rstrip("/") for table in self.existing_tables_read]
        files = [self.names.s3_arn(f"{place}/*") for place in places]
        buckets = grouped((bucket, prefix) for bucket, _, prefix in (each.partition("/") for each in places))
        return [
            allow("ReadGivenFiles", ["s3:GetObject"], files, why=FILES),
            *(
                allow_listing_prefixes(f"ListGivenFiles{number}", self.names.s3_arn(bucket), prefixes)
                for number, (bucket, prefixes) in enumerate(buckets.items(), start=1)
            ),
        ]

    def _key_grants(self) -> list[Grant]:
        environment = self.names.environment
        read = source_streams_of_job(environment, self._job).values()
        owned = [self.streams_key for stream in read if stream.is_created and self.streams_key is not None]
        keys = [stream.foreign_kms_key for stream in read] + [
            table.key for table in self.existing_tables_read
        ]
        assets = environment.governance.bootstrap_key
        return [
            allow("EncryptData", ["kms:Decrypt", "kms:GenerateDataKey"], [self.data_key, self.logs_key]),
            # The bucket also holds other stacks' files: use the key through S3 only, for what the role may read there.
            allow(
                "DecryptFiles",
                ["kms:Decrypt"],
                [] if assets is None else [assets],
                {"StringEquals": {"kms:ViaService": self._via_service_names("s3")}},
            ),
            allow("DecryptStreams", ["kms:Decrypt"], owned[:1]),
            allow("DecryptGiven", ["kms:Decrypt"], [key for key in dict.fromkeys(keys) if key is not None]),
            *(
                allow(
                    "DecryptExistingStreams",
                    ["kms:Decrypt"],
                    [self.names.arn("kms", "key/*")],
                    {"StringEquals": {"kms:ViaService": self._via_service_names(service)}},
                    why=f"The key of a stream that is not ours is not known; it is used through {service.title()} only",
                )
                for service in dict.fromkeys(stream.kms_via_service for stream in read)
                if service is not None
            ),
        ]

    def _via_service_names(self, service: str) -> str | list[str]:
        """Return the name of a service in the condition ``kms:ViaService``."""
        via = kms_via_service_names(service, self.names.environment.region)
        return via if len(via) > 1 else via[0]

    def _telemetry_grants(self) -> list[Grant]:
        # Not `GROUP*`: that also matches the group of a job whose name begins with this one's.
        name = self.names.job(self.plan.name)
        endings = ["", ":*", *(ending.format(job=name) for ending in self._job.log_group_endings)]
        groups = [self.names.arn("logs", f"log-group:{self.log_group}{ending}") for ending in endings]
        own = [metric_namespace(name), *self._job.metric_namespaces]
        return [
            allow(
                "WriteLogs",
                [
                    "logs:AssociateKmsKey",
                    "logs:CreateLogGroup",
                    "logs:CreateLogStream",
                    "logs:DescribeLogStreams",
                    "logs:PutLogEvents",
                ],
                groups,
                why="Streams, and on Glue groups below the job's own, have names that are made at run time",
            ),
            allow("FindLogGroups", ["logs:DescribeLogGroups"], ["*"], why=NO_NARROWER),
            # Metrics of this job only, as other jobs' alarms use theirs. Glue writes its own with this role.
            allow(
                "PutMetrics",
                ["cloudwatch:PutMetricData"],
                ["*"],
                {"StringEquals": {"cloudwatch:namespace": own if len(own) > 1 else own[0]}},
                why=NO_NARROWER,
            ),
        ]


_READ_WRITE = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]


WRITES = ["s3:DeleteObject", "s3:DeleteObjectVersion", "s3:PutObject", "s3:PutObjectAcl"]
"""Actions that change an object."""


def grants_denying_version_writes(names: Names) -> list[Grant]:
    """Return the statements that keep the deployed versions from everybody but deployers.

    CloudFormation deploys a kept template with the rights of the bootstrap: whoever writes one is the account's administrator.
    """
    return [
        deny(
            "NeverVersions",
            WRITES,
            [names.s3_arn(f"{names.bucket('checkpoints')}/{VERSIONS}/*")],
            why=FILES,
        ),
        deny(
            "NeverDigests",
            ["ssm:DeleteParameter", "ssm:DeleteParameters", "ssm:PutParameter"],
            [names.arn("ssm", f"parameter{names.versions_parameter('*')}")],
            why="The digests of all jobs' versions",
        ),
    ]


def glue_network_grants(names: Names, *, subnet_ids: list[str], security_group_ids: list[str]) -> list[Grant]:
    """Return the grants that Glue needs in a VPC with the job's role: to make network interfaces and to read the network.

    Parameters
    ----------
    subnet_ids, security_group_ids
        Targets of the job's connections.
    """
    interfaces = names.arn("ec2", "network-interface/*")
    return [
        allow(
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
            why=NO_NARROWER,
        ),
        allow(
            "MakeInterfaces",
            ["ec2:CreateNetworkInterface"],
            [
                interfaces,
                *(names.arn("ec2", f"security-group/{group}") for group in security_group_ids),
                *(names.arn("ec2", f"subnet/{subnet}") for subnet in subnet_ids),
            ],
            why=INTERFACES,
        ),
        allow(
            "TagInterfaces",
            ["ec2:CreateTags", "ec2:DeleteTags"],
            [interfaces],
            {"ForAllValues:StringEquals": {"aws:TagKeys": ["aws-glue-service-resource"]}},
            why=INTERFACES,
        ),
        allow(
            "DropInterfaces",
            ["ec2:DeleteNetworkInterface"],
            [interfaces],
            # Not by Glue's tag: one that a run left before it was tagged would keep the network's stack from going.
            {"ArnEquals": {"ec2:Subnet": [names.arn("ec2", f"subnet/{subnet}") for subnet in subnet_ids]}},
            why=INTERFACES,
        ),
    ]
