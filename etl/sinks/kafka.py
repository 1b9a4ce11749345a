"""Kafka: a message for each row, its identity in two headers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.types import StructType

from etl.accounts import Observed
from etl.errors import StartError
from etl.settings import Connection
from etl.settings_sinks import KafkaSinkSettings
from etl.sinks.base import Again, Place, Refuse, Written, letters_of, text_of
from etl.sources import kafka

ID_HEADER, SOURCE_HEADER = "millrace-id", "millrace-source"

OVERHEAD_BYTES = 256
"""Of a message beside key, value and the texts of its headers: the batch's head (61), lengths, names of headers."""

_START_SECONDS = 60
_FIRST_API = "spark.sql.sources.useV1SourceList"

DELIVERY_MILLISECONDS = 180_000
"""How long the producer tries to bring a message to a busy broker before the batch fails."""


@dataclass(frozen=True)
class KafkaSink:
    """A topic; the value of a message is the row as JSON.

    Parameters
    ----------
    settings
        The topic, and the column of the key.
    connection
        How to reach its cluster, after :func:`etl.sources.kafka.bind`.
    """

    settings: KafkaSinkSettings
    connection: Connection
    sends: bool = False

    def options(self) -> Mapping[str, str]:
        """Options of Spark's Kafka sink."""
        return {
            **kafka.connecting(self.connection),
            "topic": self.settings.topic,
            "includeHeaders": "true",
            "kafka.acks": "all",
            # The producer's own retries then double nothing and keep the order.
            "kafka.enable.idempotence": "true",
            "kafka.max.request.size": str(self.settings.max_record_bytes + OVERHEAD_BYTES),
            "kafka.delivery.timeout.ms": str(DELIVERY_MILLISECONDS),
            "kafka.max.block.ms": str(DELIVERY_MILLISECONDS),
            "kafka.linger.ms": "20",
        }

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Check that the topic and the column of its key are there.

        Raises
        ------
        StartError
            They are not, or the cluster cannot be asked.
        """
        key, topic = self.settings.key, self.settings.topic
        if key is not None and key not in schema.fieldNames():
            raise StartError(f"Kafka topic {topic}: rows have no column {key} for its key")
        topics = self._topics(spark)
        if topic not in topics:
            raise StartError(f"there is no Kafka topic {topic} on {kafka.bootstrap_servers(self.connection)}")

    def _topics(self, spark: SparkSession) -> set[str]:
        jvm: Any = spark._jvm
        settings = jvm.java.util.Properties()
        for name, value in kafka.connecting(self.connection).items():
            settings.put(name.removeprefix("kafka."), value)
        admin = None
        try:
            admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
            names = admin.listTopics().names().get(_START_SECONDS, jvm.java.util.concurrent.TimeUnit.SECONDS)
            return {str(name) for name in names}
        except Py4JJavaError as error:
            raise StartError(
                f"Kafka topic {self.settings.topic}: {error.java_exception.toString()}"
            ) from error
        finally:
            if admin is not None:
                admin.close()

    def messages(self, rows: DataFrame) -> DataFrame:
        """Rows as messages: key, value, headers, and ``_refused`` where one is too large."""
        identity = [(ID_HEADER, F.col("_id"))]
        if "_source" in rows.columns:
            identity.append((SOURCE_HEADER, F.col("_source")))
        headers = F.array(
            *(F.struct(F.lit(n).alias("key"), c.cast("binary").alias("value")) for n, c in identity)
        )
        formed = rows.select(
            self._key.cast("binary").alias("key"),
            text_of(rows).cast("binary").alias("value"),
            headers.alias("headers"),
        )
        size = _bytes_of(
            F.col("key"), F.col("value"), *(F.col("headers")[i]["value"] for i in range(len(identity)))
        )
        return formed.withColumn("_refused", self._reason(size))

    @property
    def _key(self) -> Column:
        return (F.col(f"`{self.settings.key}`") if self.settings.key else F.col("_id")).cast("string")

    def _reason(self, size: Column) -> Column:
        most = self.settings.max_record_bytes
        return F.when(size > most, F.format_string(f"a message of %d bytes; the most is {most}", size))

    def _letters(self, rows: DataFrame) -> DataFrame:
        sources = [F.col("_source")] if "_source" in rows.columns else []
        size = _bytes_of(self._key, text_of(rows), F.col("_id"), *sources)
        return letters_of(rows, self._reason(size)).where(F.col("_error").isNotNull())

    def write(
        self,
        rows: DataFrame,
        place: Place | None,  # noqa: ARG002 - identity tells batches apart
        refuse: Refuse,
        again: Again | None = None,  # noqa: ARG002 - one attempt
    ) -> Written:
        """Write a message for each row.

        Guarantee: at least once. A topic takes no message back: a batch or a task that comes again writes
        its messages again (``docs/adr/0271-kafka-and-kinesis-sinks.md`` says why no transaction mends that). A
        reader tells them apart by the headers ``millrace-source`` and ``millrace-id``, which are the same
        each time. Nothing is left out: the batch counts when all brokers in sync have every message. A
        topic that is compacted by the default key keeps one message for each identity.
        """
        counted = Observed(F.count(F.lit(1)).alias("offered"), F.count("_refused").alias("refused"))
        good = counted.on(self.messages(rows)).where(F.col("_refused").isNull()).drop("_refused")
        _by_second_api(rows.sparkSession)
        good.write.format("kafka").options(**self.options()).mode("append").save()
        figures = counted.values()
        if figures["refused"]:
            # A second read, by batches that have such rows only.
            refuse(self._letters(rows))
        return Written(figures["offered"], figures["offered"] - figures["refused"], figures["refused"])


def _by_second_api(spark: SparkSession) -> None:
    """Let Spark write to Kafka by its second API: figures observed below the first one never come."""
    old = (spark.conf.get(_FIRST_API) or "").split(",")
    spark.conf.set(_FIRST_API, ",".join(name for name in old if name.strip() != "kafka"))


def _bytes_of(*parts: Column) -> Column:
    return reduce(Column.__add__, (F.coalesce(F.octet_length(part), F.lit(0)) for part in parts))
