"""Spark settings that the core depends on, however the session was started."""

from __future__ import annotations

from pyspark.sql import SparkSession

from ..launch.settings import JobSettings
from ..record.errors import StartError

_RULE = "org.apache.spark.sql.execution.adaptive.AQEPropagateEmptyRelation"

RUNTIME = {
    "spark.sql.session.timeZone": "UTC",
    # With the default (EXCEPTION) one malformed timestamp in a record fails the job.
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    # A wrong value must not hide the right ones when the reason for a dead letter is determined.
    "spark.sql.json.enablePartialResults": "true",
    # Overflow and wrong types in from_json make dead letters, not errors of the job.
    "spark.sql.ansi.enabled": "false",
    # On Spark 4 decode and encode, by default, fail on bytes that are no text of the charset, and know few charsets; an empty
    # separator splits otherwise. A transform has the results of Spark 3.5.
    "spark.sql.legacy.codingErrorAction": "true",
    "spark.sql.legacy.javaCharsets": "true",
    "spark.sql.legacy.truncateForEmptyRegexSplit": "true",
    # Identities of results are written as JSON: with nulls in it, the same key would be another identity.
    "spark.sql.jsonGenerator.ignoreNullFields": "true",
    # A schema's TIMESTAMP is a moment, in payloads, tables and transforms.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Iceberg refuses every write with LEGACY.
    "spark.sql.storeAssignmentPolicy": "ANSI",
    # If this rule empties a plan, the batch's observed figures never arrive.
    "spark.sql.adaptive.optimizer.excludedRules": _RULE,
    # With the default (EXCEPTION) a day before 1582, or a time before 1900, fails a write of Parquet files. CORRECTED is the
    # default of Spark 4: such days are written unchanged, not converted to another calendar.
    "spark.sql.parquet.datetimeRebaseModeInWrite": "CORRECTED",
    # With the default (INT96) Arrow and others read a time before 1678 as another one: their nanoseconds overflow.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Java compiles no method of more bytes: code of a whole stage, as of a change event's decoding, would be interpreted for each record.
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A batch is cached for two reads: a dictionary of each column takes longer than it spares.
    "spark.sql.inMemoryColumnarStorage.compressed": "false",
    # Rates, latency, watermark and state of each query in Spark's own metrics system.
    "spark.sql.streaming.metricsEnabled": "true",
}
"""Set on the session before the first query; each query works on a copy of them."""


def prepare_or_refuse_session(spark: SparkSession, job: JobSettings) -> None:
    """Set the settings that the core depends on, and refuse a session that cannot run the job.

    Parameters
    ----------
    spark
        The job's session, before its catalog is first used.

    Raises
    ------
    StartError
        Speculation is on with a source whose batches do not replay: two attempts of a task would read
        different records.
    """
    once = {q.name: s.kind.title() for q in job.queries for s in q.sources if not s.REPLAYS}
    if once and (spark.conf.get("spark.speculation", "false") or "").lower() == "true":
        read = ", ".join(dict.fromkeys(once.values()))
        raise StartError(
            f"query {', '.join(once)}: spark.speculation must be false, because a second attempt of a task that reads "
            f"{read} would read other records; set it to false"
        )
    for key, value in RUNTIME.items():
        spark.conf.set(key, value)
    # Each query has its own session; a cached table would hide another query's commits.
    spark.conf.set(f"spark.sql.catalog.{job.catalog}.cache-enabled", "false")
