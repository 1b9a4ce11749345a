"""What a job may write beside the tables of the lake: one sink, one or two statements.

Sources: the service authorization reference's pages of each service, and for Kafka the MSK guide, "IAM access
control". ``docs/adr/0102-job-permissions.md`` has the table.
"""

from __future__ import annotations

from dataclasses import dataclass

from infra.grants import FILES, NO_NARROWER, REMADE, Grant, allow, list_prefixes
from infra.sinks import folder, sinks, written_clusters, written_topics
from infra.source_permissions import FINDS_BROKERS
from millrace.config.model import MskCluster
from millrace.config.names import Names
from millrace.config.queries import DeriveQuery
from millrace.config.sinks import (
    DeltaSink,
    DynamoDbSink,
    JdbcSink,
    KinesisSink,
    OpenSearchSink,
    ParquetSink,
)
from millrace.sizing.model import JobPlan


@dataclass(frozen=True)
class SinkPermissions:
    """The statements of one job's sinks.

    Parameters
    ----------
    names
        The deployed names.
    plan
        The job.
    streams_key
        ARN of the key of the environment's own streams; ``None`` when it has none.
    """

    names: Names
    plan: JobPlan
    streams_key: str | None = None

    def grants(self) -> list[Grant]:
        """All of them, in a fixed order."""
        found = sinks(self.names.environment.jobs[self.plan.name])
        return [
            *self._databases([s for s in found if isinstance(s, JdbcSink)]),
            *self._items([s for s in found if isinstance(s, DynamoDbSink)]),
            *self._streams([s for s in found if isinstance(s, KinesisSink)]),
            *self._topics(),
            *self._indexes([s for s in found if isinstance(s, OpenSearchSink)]),
            *self._files([s for s in found if isinstance(s, ParquetSink | DeltaSink)]),
        ]

    def _arn(self, service: str, resource: str) -> str:
        return f"arn:{self.names.partition}:{service}:{self.names.environment.region}:{self.names.account}:{resource}"

    def _databases(self, found: list[JdbcSink]) -> list[Grant]:
        if not found:
            return []
        secrets = list(dict.fromkeys(sink.secret for sink in found))
        grants = [allow("ReadSecrets", ["secretsmanager:GetSecretValue"], secrets)]
        keys = list(dict.fromkeys(sink.secret_key for sink in found if sink.secret_key is not None))
        return [*grants, *([allow("DecryptSecrets", ["kms:Decrypt"], keys)] if keys else [])]

    def _items(self, found: list[DynamoDbSink]) -> list[Grant]:
        if not found:
            return []
        tables = [self._arn("dynamodb", f"table/{sink.table}") for sink in found]
        actions = ["dynamodb:BatchWriteItem", "dynamodb:DescribeTable", "dynamodb:PutItem"]
        keys = list(dict.fromkeys(sink.table_key for sink in found if sink.table_key is not None))
        use = [allow("UseItemKeys", ["kms:Decrypt", "kms:GenerateDataKey"], keys)] if keys else []
        job = self.names.environment.jobs[self.plan.name]
        latest = [q.sink for q in job.queries.values() if isinstance(q, DeriveQuery) and q.latest_by]
        emptied = [self._arn("dynamodb", f"table/{s.table}") for s in latest if isinstance(s, DynamoDbSink)]
        delete = [allow("DeleteItems", ["dynamodb:DeleteItem"], emptied)] if emptied else []
        return [allow("WriteItems", actions, tables), *delete, *use]

    def _streams(self, found: list[KinesisSink]) -> list[Grant]:
        if not found:
            return []
        streams = self.names.environment.streams
        arns = [self.names.stream_arn(sink.stream) for sink in found]
        # Reading is for a batch that comes again: what the stream holds of it is left out.
        actions = [
            "kinesis:DescribeStreamSummary",
            "kinesis:GetRecords",
            "kinesis:GetShardIterator",
            "kinesis:ListShards",
            "kinesis:PutRecords",
        ]
        grants = [allow("WriteStreams", actions, arns)]
        keys = [key for sink in found if (key := _key_of(streams[sink.stream], self.streams_key)) is not None]
        encrypt = (
            [allow("EncryptStreams", ["kms:Decrypt", "kms:GenerateDataKey"], list(dict.fromkeys(keys)))]
            if keys
            else []
        )
        return [*grants, *encrypt]

    def _topics(self) -> list[Grant]:
        environment = self.names.environment
        job = environment.jobs[self.plan.name]
        topics = written_topics(environment, job)
        found: list[Grant] = []
        for cluster in written_clusters(environment, job):
            settings = environment.kafka[cluster]
            label = "".join(part.title() for part in cluster.split("-"))
            base = ""
            names = [self.names.stream(name) for name, topic in topics.items() if topic.cluster == cluster]
            if isinstance(settings, MskCluster):
                base = self._arn("kafka", f"cluster/{self._cluster(cluster, settings)}")
                found.append(allow(f"FindBrokers{label}", FINDS_BROKERS, ["*"], why=NO_NARROWER))
            elif settings.arn is not None:
                base = settings.arn
            if settings.authentication.kind != "iam" or not base:
                continue
            why = REMADE if "*" in base else None
            writing = [f"{base.replace(':cluster/', ':topic/', 1)}/{name}" for name in names]
            found += [
                # The producer numbers its messages, so that its own retries double nothing.
                allow(
                    f"ConnectTo{label}",
                    ["kafka-cluster:Connect", "kafka-cluster:WriteDataIdempotently"],
                    [base],
                    why=why,
                ),
                # Reading is for a batch that comes again: what the topic holds of it is left out.
                allow(
                    f"Write{label}",
                    ["kafka-cluster:DescribeTopic", "kafka-cluster:ReadData", "kafka-cluster:WriteData"],
                    writing,
                    why=why,
                ),
                allow(
                    f"ReadBack{label}",
                    ["kafka-cluster:AlterGroup", "kafka-cluster:DescribeGroup"],
                    [f"{base.replace(':cluster/', ':group/', 1)}/spark-kafka-relation-*"],
                    why="Spark makes up the end of a group name at every read",
                ),
            ]
        return found

    def _cluster(self, name: str, settings: MskCluster) -> str:
        if settings.existing is not None:
            return settings.existing.split(":cluster/")[1]
        return f"{self.names.cluster(name)}/*"

    def _indexes(self, found: list[OpenSearchSink]) -> list[Grant]:
        if not found:
            return []
        return [
            allow("WriteDocuments", ["es:ESHttpPost"], [f"{s.domain}/{s.index}/_bulk" for s in found]),
            allow("FindIndexes", ["es:ESHttpHead"], [f"{s.domain}/{s.index}" for s in found]),
        ]

    def _files(self, found: list[ParquetSink | DeltaSink]) -> list[Grant]:
        if not found:
            return []
        lake = f"arn:{self.names.partition}:s3:::{self.names.bucket('lake')}"
        places = [folder(sink, self.names) for sink in found]
        actions = ["s3:AbortMultipartUpload", "s3:DeleteObject", "s3:GetObject", "s3:PutObject"]
        return [
            allow("WriteFiles", actions, [f"{lake}/{place}/*" for place in places], why=FILES),
            list_prefixes("ListFiles", lake, places),
        ]


def _key_of(stream: object, own: str | None) -> str | None:
    existing = getattr(stream, "existing", None)
    return own if existing is None else getattr(stream, "existing_key", None)
