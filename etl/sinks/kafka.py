"""Kafka sink: a message for each row, with its identity in two headers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial, reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.settings import Connection
from ..launch.sinks import KafkaSinkSettings
from ..record.batch_accounts import ObservedFigures
from ..record.errors import NoAnswerError, SinkError, StartError
from ..record.job_run_context import JobRun
from ..services.backoff import Backoff
from ..sources.kafka import login
from ..sources.kafka.connection import (
    CachedConnectionOptions,
    apply_bind_options,
    bootstrap_servers,
    closing_admin_client,
    topic_cleanup_policy,
    with_resolved_brokers,
)
from .base import (
    DELETED,
    ORDER,
    BatchIdentity,
    Refuse,
    Reread,
    WriteCounts,
    dead_letters_of_refused_rows,
    delete_condition,
    reason_not_storable,
    refuse_unwritable_map_keys,
    row_as_json,
)
from .delivery.kafka_tail import (
    BATCH_HEADER,
    DELIVERY_SECONDS,
    ID_HEADER,
    ORDER_HEADER,
    SOURCE_HEADER,
    TopicTail,
)
from .delivery.sink_end_offset_marks import TASK_RETRIED, StreamEndMarks

OVERHEAD_BYTES = 256
"""Bytes of a message beside key, value and header values: the record batch header (61), lengths, names of headers."""

_FAILED_AT: dict[str, float] = {}
"""When an attempt of this process to write a topic failed last, by the topic's name; a retried query has a new sink."""

_START_SECONDS = 60
_FIRST_API = "spark.sql.sources.useV1SourceList"


def open_sink(settings: KafkaSinkSettings, run: JobRun, _key: tuple[str, ...]) -> KafkaSink:
    """Make the sink; looks up only the brokers of an MSK cluster.

    Raises
    ------
    StartError
        The cluster's brokers are unknown.
    """
    connection = apply_bind_options(settings.connection, run.job.connections[settings.connection], run.binds)
    return KafkaSink(settings, with_resolved_brokers(connection))


@dataclass(frozen=True)
class KafkaSink:
    """A topic; the value of a message is the row as JSON.

    Parameters
    ----------
    settings
        Topic, and column of the key.
    connection
        Connection to its cluster, after :func:`etl.sources.kafka.connection.apply_bind_options`.
    """

    settings: KafkaSinkSettings
    connection: Connection
    acts_on_rdd: bool = False
    _policies: dict[str, str | None] = field(default_factory=dict, init=False, repr=False, compare=False)
    """``cleanup.policy`` of the topic at the start, by its name; asked for if a column is the key."""

    @cached_property
    def _login_options(self) -> CachedConnectionOptions:
        """Options of the login to the brokers, cached until a batch fails."""
        return CachedConnectionOptions(self.connection)

    @cached_property
    def _end_marks(self) -> StreamEndMarks:
        return StreamEndMarks(self.settings.topic)

    def spark_sink_options(self) -> Mapping[str, str]:
        """Return the options of Spark's Kafka sink."""
        return {
            **self._login_options.cached_or_read_options(),
            "topic": self.settings.topic,
            "includeHeaders": "true",
            "kafka.acks": "all",
            # The producer's retries then write no duplicates and keep the order.
            "kafka.enable.idempotence": "true",
            "kafka.max.request.size": str(self.settings.max_record_bytes + OVERHEAD_BYTES),
            "kafka.delivery.timeout.ms": str(DELIVERY_SECONDS * 1000),
            "kafka.max.block.ms": str(DELIVERY_SECONDS * 1000),
            "kafka.linger.ms": "20",
        }

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Check that the topic and the column of its key exist; with a key, ask whether the topic is compacted.

        Raises
        ------
        StartError
            The topic or column does not exist, or the cluster does not answer.
        """
        key, topic = self.settings.key, self.settings.topic
        refuse_unwritable_map_keys(schema, f"Kafka topic {topic}")
        if key is not None and key not in schema.fieldNames():
            raise StartError(
                f"Kafka topic {topic}: the sink's key is column {key}, which the rows do not have"
            )
        try:
            with closing_admin_client(
                spark, self._login_options.cached_or_read_options(), _START_SECONDS
            ) as (client, answer):
                there = topic in {str(name) for name in answer(client.listTopics().names())}
                if there and key is not None:
                    self._policies[topic] = topic_cleanup_policy(spark, client, answer, topic)
        except NoAnswerError as error:
            said = login.login_advice(error.__cause__, self.connection) or str(error)
            raise StartError(f"Kafka topic {topic}: {said}") from error
        if not there:
            raise StartError(f"Kafka topic {topic} does not exist on {bootstrap_servers(self.connection)}")

    def to_messages(self, rows: DataFrame, batch: str = "") -> DataFrame:
        """Convert rows to messages: identity, key, value, headers, and ``_refused`` for a row that cannot be sent.

        Parameters
        ----------
        batch
            Name of the batch, for a header; empty for no header.
        """
        names = _message_headers(rows, batch)
        headers = F.array(
            *(F.struct(F.lit(n).alias("key"), c.cast("binary").alias("value")) for n, c in names.items())
        )
        formed = rows.select(
            *_identity_column_names(rows),
            self._message_key.cast("binary").alias("key"),
            _message_value(rows).cast("binary").alias("value"),
            headers.alias("headers"),
            reason_not_storable(rows).alias("_unstorable"),
        )
        size = _total_bytes_column(
            F.col("key"), F.col("value"), *(F.col("headers")[i]["value"] for i in range(len(names)))
        )
        why = F.coalesce("_unstorable", self._refusal_reason(F.col("key"), size))
        return formed.withColumn("_refused", why).drop("_unstorable")

    @property
    def _message_key(self) -> Column:
        return (F.col(f"`{self.settings.key}`") if self.settings.key else F.col("_id")).cast("string")

    def _refusal_reason(self, key: Column, size: Column) -> Column:
        most = self.settings.max_record_bytes
        too_large = F.when(
            size > most, F.format_string(f"the message has %d bytes; the limit is {most}", size)
        )
        if "compact" not in (self._policies.get(self.settings.topic) or ""):
            return too_large
        # The broker refuses the other messages of the producer's batch with it.
        why = f"{self.settings.key} is null, and a compacted topic takes no message without a key"
        return F.when(key.isNull(), F.lit(why)).otherwise(too_large)

    def _dead_letters(self, rows: DataFrame, batch: str) -> DataFrame:
        size = _total_bytes_column(
            self._message_key, _message_value(rows), *_message_headers(rows, batch).values()
        )
        why = F.coalesce(reason_not_storable(rows), self._refusal_reason(self._message_key, size))
        return dead_letters_of_refused_rows(rows, why).where(F.col("_error").isNotNull())

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        """Write a message for each row.

        Guarantee: a repeated batch writes only the messages that the topic lacks, after a kill of the driver, a failure
        of the batch, or a repeated task. Every message has the name of its batch, and the topic
        is read from its end before the batch (:mod:`etl.sinks.delivery.sink_end_offset_marks`). Nothing is lost: the batch
        is complete when all in-sync brokers have every message. Duplicates remain possible if no read of the topic can
        detect them: from an executor that was cut off and still writes after that read, and from a batch after a reset
        of the checkpoint. A reader recognises them by the headers ``millrace-source`` and ``millrace-id``, which are the
        same each time (``docs/design/sinks.md#kafka-and-kinesis``). A topic that is compacted by the default key keeps
        one message for each identity.
        """
        try:
            # With the cached secret of the last batch; it is read again after a failed batch.
            self._login_options.cached_or_read_options()
            return self._write_compared_with_topic(rows, place, refuse, reread)
        except (StartError, NoAnswerError) as error:
            self._login_options.forget_options()
            raise SinkError(
                f"records cannot be written to Kafka topic {self.settings.topic}: {error}"
            ) from error
        except BaseException:
            self._login_options.forget_options()
            raise

    def _write_compared_with_topic(
        self, rows: DataFrame, place: BatchIdentity | None, refuse: Refuse, reread: Reread | None
    ) -> WriteCounts:
        spark = rows.sparkSession
        if place is None or not place.name:
            return self._send_messages_not_in_topic("", refuse, rows, None)
        topic, name = self.settings.topic, place.name
        tail = TopicTail(topic, self._login_options.cached_or_read_options(), partial(_FAILED_AT.get, topic))
        return self._end_marks.write_compared_with_mark(
            rows,
            place,
            reread,
            Backoff(f"Kafka topic {self.settings.topic}"),
            partial(tail.next_offsets, spark),
            partial(tail.identities_in_topic, spark, name),
            partial(self._send_messages_not_in_topic, name, refuse),
        )

    def _send_messages_not_in_topic(
        self, batch: str, refuse: Refuse, rows: DataFrame, existing: DataFrame | None
    ) -> WriteCounts:
        """Write the messages that are not known; without a batch none are known."""
        counted = ObservedFigures(F.count(F.lit(1)).alias("offered"), F.count("_refused").alias("refused"))
        good = counted.observe(self.to_messages(rows, batch)).where(F.col("_refused").isNull())
        sent: ObservedFigures | None = None
        if existing is not None:
            # A broadcast join keeps the order of a key's messages.
            good = good.join(F.broadcast(existing), _identity_column_names(rows), "left_anti")
            sent = ObservedFigures(F.count(F.lit(1)).alias("sent"))
            good = sent.observe(good)
        _use_second_write_api(rows.sparkSession)
        value = _failing_in_repeated_task(F.col("value")) if batch else F.col("value")
        messages = good.select("key", value.alias("value"), "headers")
        try:
            messages.write.format("kafka").options(**self.spark_sink_options()).mode("append").save()
        except BaseException:
            _FAILED_AT[self.settings.topic] = time.monotonic()
            raise
        figures = counted.values()
        refused = figures["refused"]
        if refused:
            # A second read, only for batches with such rows.
            refuse(self._dead_letters(rows, batch))
        written = figures["offered"] - refused if sent is None else sent.values()["sent"]
        return WriteCounts(figures["offered"], written, refused)


def _message_value(rows: DataFrame) -> Column:
    """Return a row as JSON; null for a delete, as in a compacted topic."""
    return F.when(~delete_condition(rows), row_as_json(rows.drop(DELETED, ORDER)))


def _identity_column_names(rows: DataFrame) -> list[str]:
    return [name for name in ("_id", "_source") if name in rows.columns]


def _message_headers(rows: DataFrame, batch: str) -> dict[str, Column]:
    """Return names and values of a message's headers."""
    headers = {ID_HEADER: F.col("_id")}
    if "_source" in rows.columns:
        headers[SOURCE_HEADER] = F.col("_source")
    if ORDER in rows.columns:
        headers[ORDER_HEADER] = F.col(ORDER)
    if batch:
        headers[BATCH_HEADER] = F.lit(batch)
    return headers


def _failing_in_repeated_task(column: Column) -> Column:
    """Return the column with a first row that fails a repeated task: an earlier attempt may have sent a part of it.

    No Spark expression has the attempt; the name of the thread has it, since Spark 3.2
    (``Executor.TaskRunner``): ``... for task 3.1 in stage 2.0 (TID 7)``, where the second numbers are attempts.
    """
    first = F.monotonically_increasing_id().bitwiseAND(F.lit(2**33 - 1)) == 0
    thread = F.expr("java_method('java.lang.Thread', 'currentThread')")
    later = thread.rlike(r"for task \d+\.[1-9]|in stage \d+\.[1-9]")
    return F.when(first & later, F.raise_error(F.lit(TASK_RETRIED)).cast("binary")).otherwise(column)


def _use_second_write_api(spark: SparkSession) -> None:
    """Let Spark write to Kafka by its second API: figures observed below the first one never arrive."""
    old = (spark.conf.get(_FIRST_API) or "").split(",")
    spark.conf.set(_FIRST_API, ",".join(name for name in old if name.strip() != "kafka"))


def _total_bytes_column(*parts: Column) -> Column:
    return reduce(Column.__add__, (F.coalesce(F.octet_length(part), F.lit(0)) for part in parts))
