"""Checks of jobs: what they read and write, their code, the limits of their engine."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path as FilePath

from millrace.config.checks.columns import ColumnCatalog, check_columns, check_redact, check_rules
from millrace.config.checks.kafka import (
    check_lag_group_overlap,
    check_reading,
    check_shared_topics,
    partition_lists_by_stream_and_table,
)
from millrace.config.checks.queries import (
    check_distinct_targets,
    check_format,
    check_read_routes_exist,
    check_routes,
    check_sink,
    check_state,
    check_transform_and_its_state,
)
from millrace.config.checks.transforms import ProjectModules
from millrace.config.document.explain_validation_errors import findings_of_unknown_name
from millrace.config.document.problems import Finding, Path, dotted_path
from millrace.config.model import Environment, Job, Stream
from millrace.config.periodic_bounded_run_checks import bounded_run_findings
from millrace.config.queries import (
    DeriveQuery,
    LandQuery,
    OneStreamQueryBase,
    Query,
    Reading,
    RoutesBase,
    WritesSink,
)

_MOST_QUERIES = 100
"""Most queries of a job: a stop switches off one alarm of each, in one request (botocore's model, ``DisableAlarmActions``)."""

_OWNED_PREFIXES = (
    "spark.dynamicAllocation.",
    "spark.emr-serverless.",
    "spark.eventLog.",
    "spark.hadoop.fs.s3",
    "spark.jars",
    "spark.pyspark.",
    "spark.sql.catalog.",
    "spark.submit.",
)
_OWNED = frozenset(
    {
        "spark.app.name",
        "spark.driver.cores",
        "spark.driver.memory",
        "spark.executor.cores",
        "spark.executor.instances",
        "spark.executor.memory",
        "spark.executorEnv.PYSPARK_PYTHON",
        "spark.extraListeners",
        "spark.master",
        "spark.scheduler.mode",
        "spark.serializer",
        "spark.speculation",
        "spark.sql.defaultCatalog",
        "spark.sql.extensions",
        "spark.sql.streaming.checkpointLocation",
    }
)
FIXED_IN_CORE = frozenset(
    {
        "spark.sql.adaptive.optimizer.excludedRules",
        "spark.sql.ansi.enabled",
        "spark.sql.codegen.hugeMethodLimit",
        "spark.sql.inMemoryColumnarStorage.compressed",
        "spark.sql.json.enablePartialResults",
        "spark.sql.jsonGenerator.ignoreNullFields",
        "spark.sql.legacy.codingErrorAction",
        "spark.sql.legacy.javaCharsets",
        "spark.sql.legacy.timeParserPolicy",
        "spark.sql.legacy.truncateForEmptyRegexSplit",
        "spark.sql.parquet.datetimeRebaseModeInWrite",
        "spark.sql.parquet.outputTimestampType",
        "spark.sql.session.timeZone",
        "spark.sql.storeAssignmentPolicy",
        "spark.sql.streaming.metricsEnabled",
        "spark.sql.timestampType",
    }
)
"""Settings that the core sets itself, whatever the job's are: ``etl.queries.required_spark_settings.RUNTIME``; a test compares the two."""


def check_jobs(environment: Environment, streams: Iterable[str], root: FilePath) -> Iterator[Finding]:
    """Check every job.

    Parameters
    ----------
    streams
        Names of all declared streams.
    root
        Folder of the project, with schemas and transforms.
    """
    landing = environment.landing_queries
    known_streams, known_tables = sorted(streams), sorted(landing)
    # Queries that share the partitions of one topic may append to one table: their records never overlap.
    shared_out = _tables_written_from_shared_topic(environment)
    writers: dict[str, str] = {}
    catalog, modules = ColumnCatalog.from_schema_files(environment, root), ProjectModules(root)
    yield from bounded_run_findings(environment)
    for name, job in environment.jobs.items():
        path = ("jobs", name)
        yield from _check_spark_settings(path, job)
        if len(job.queries) > _MOST_QUERIES:
            yield Finding(
                (*path, "queries"),
                f"{len(job.queries)} queries",
                f"at most {_MOST_QUERIES}, whose alarms one request of CloudWatch switches off during a stop: divide the queries over more jobs",
            )
        for query_name, query in job.queries.items():
            query_path = (*path, "queries", query_name)
            yield from _check_written_tables(query_path, query, environment, writers, shared_out)
            for place, reading in query.stream_readings_by_place.items():
                yield from _check_reading(
                    (*query_path, *place), query, reading, environment, known_streams, root
                )
            if isinstance(query, RoutesBase):
                yield from check_routes(query_path, query, environment)
            if isinstance(query, LandQuery) and query.fan_out:
                yield from _check_fan_out((*query_path, "fan_out"), environment.streams.get(query.source))
            if isinstance(query, OneStreamQueryBase):
                yield from check_reading(environment, query_path, job, query.source, query)
            if isinstance(query, DeriveQuery):
                yield from findings_of_unknown_name(
                    (*query_path, "source"), query.source, known_tables, "the table of a land query"
                )
                yield from check_read_routes_exist(query_path, query, landing)
                yield from check_state(query_path, query, known_tables)
            for place, end in query.sinks_by_place.items():
                yield from _check_enrichments((*query_path, *place), end, query)
                yield from check_transform_and_its_state((*query_path, *place), end, modules)
                yield from check_columns((*query_path, *place), end, catalog, modules)
                yield from check_sink((*query_path, *place), end, query, environment, landing, root)

    for check in (
        check_distinct_targets,
        _check_fan_out_consumer_count,
        check_shared_topics,
        check_lag_group_overlap,
    ):
        yield from check(environment)


def _tables_written_from_shared_topic(environment: Environment) -> set[str]:
    """Return tables whose writers all read parts of one shared topic."""
    writers = environment.table_writers
    return {
        table
        for (_, table), group in partition_lists_by_stream_and_table(environment).items()
        if len(group) == len(writers[table])
    }


def _check_fan_out(path: Path, stream: Stream | None) -> Iterator[Finding]:
    if stream is not None and not stream.fans_out:
        yield Finding(path, "true", f"false for a {stream.title}: fan-out is Kinesis' own")
    elif stream is not None and stream.belongs_to_others:
        yield Finding(
            path,
            "true",
            "false for an existing stream: fan-out would register a consumer at a stream of somebody else",
        )


def _check_fan_out_consumer_count(environment: Environment) -> Iterator[Finding]:
    readers = Counter(
        query.source for _, _, query in environment.queries if isinstance(query, LandQuery) and query.fan_out
    )
    for name, stream in environment.streams.items():
        if not stream.fans_out:
            continue
        own = readers[name]
        count = own + len(stream.consumers_of_other_programs)
        most = stream.most_consumers(advantage=environment.governance.on_demand_advantage)
        if count > most:
            yield Finding(
                ("streams", name, "fan_out_consumers"),
                f"{count} consumers",
                f"at most {most} for a stream, the {own} of this environment's jobs among them",
            )


def is_reserved_spark_key(key: str) -> bool:
    """Return true if a Spark setting cannot be given for a job, because Millrace or the core sets it."""
    return key in _OWNED | FIXED_IN_CORE or key.startswith(_OWNED_PREFIXES)


def _check_spark_settings(path: Path, job: Job) -> Iterator[Finding]:
    for key, value in job.spark.items():
        if not key.startswith("spark."):
            yield Finding((*path, "spark", key), value, "a key that begins with spark.")
        elif key in FIXED_IN_CORE:
            yield Finding(
                (*path, "spark", key),
                value,
                "any setting but those that the core sets for each query",
                "remove it: the core would ignore it",
            )
        elif is_reserved_spark_key(key):
            yield Finding(
                (*path, "spark", key),
                value,
                "any setting but those that Millrace derives from the plan and the job",
                "remove it, or pin the plan's number (cores, max_workers)",
            )
        elif key.endswith(("redaction.regex", "redaction.options.regex")):
            try:
                re.compile(value)
            except re.error as error:
                yield Finding((*path, "spark", key), value, f"a regular expression: {error}")


def _check_written_tables(
    path: Path, query: Query, environment: Environment, writers: dict[str, str], shared_out: Iterable[str]
) -> Iterator[Finding]:
    """Check that no two queries write one table, and that none writes a table of somebody else."""
    for key, table in query.created_tables_by_place.items():
        here = (*path, *key)
        first = writers.setdefault(table, dotted_path(here))
        if first != dotted_path(here) and table not in shared_out:
            yield Finding(here, table, f"a table that nothing else writes; {first} names this one")
        if table in environment.tables:
            yield Finding(
                here, table, "a table of this environment: those under tables are read, never written"
            )


def _check_reading(
    path: Path, query: Query, reading: Reading, environment: Environment, streams: list[str], root: FilePath
) -> Iterator[Finding]:
    yield from findings_of_unknown_name((*path, "source"), reading.source, streams, "a declared stream")
    yield from check_format(path, reading, root)
    yield from check_redact((*path, "redact"), reading, root)
    yield from check_rules((*path, "rules"), reading, root)
    stream = environment.streams.get(reading.source)
    if query.sinks_by_place and stream is not None and not stream.repeats:
        yield Finding(
            (*path, "source"),
            reading.source,
            "a Kafka topic: a Kinesis batch holds other records when it is replayed; land it, then derive",
        )


def _check_enrichments(path: Path, end: WritesSink, query: Query) -> Iterator[Finding]:
    added: set[str] = set()
    for position, enrichment in enumerate(end.enrich):
        here = (*path, "enrich", position)
        if enrichment.table in query.created_tables_by_place.values():
            yield Finding((*here, "table"), enrichment.table, "a table other than the one this query writes")
        for column in enrichment.columns:
            if column.startswith("_"):
                yield Finding(
                    (*here, "columns", column),
                    column,
                    "a name that does not begin with _; Millrace's own columns do",
                )
            if column in added:
                yield Finding((*here, "columns", column), column, "a column that no earlier enrichment adds")
            added.add(column)
