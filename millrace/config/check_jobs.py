"""Checks of jobs: what they read and write, where their code is, what their engine offers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path as FilePath

from millrace.config.check_formats import check_format
from millrace.config.check_lists import check_lag_groups, check_lists, shares
from millrace.config.check_reading import check_reading
from millrace.config.check_routes import check_read_routes, check_routes
from millrace.config.check_sinks import check_places, check_sink
from millrace.config.document import is_file
from millrace.config.engines import EMR_DISK_GIB, EMR_MEMORY_GIB, GIB, emr_memory_range, glue_workers
from millrace.config.explain import nearest
from millrace.config.model import EmrJob, Environment, GlueJob, Job, KafkaTopic, KinesisStream
from millrace.config.problems import MISSING, Finding, Path
from millrace.config.queries import (
    DeriveQuery,
    DirectQuery,
    DirectRouteQuery,
    Landing,
    LandQuery,
    Query,
    Route,
    Routing,
    State,
    StreamQuery,
    Written,
    written,
)
from millrace.config.units import format_duration

_MINUTE = timedelta(minutes=1)
_WORD = re.compile(r"\w+")
GLUE_LONGEST_TIMEOUT = timedelta(days=7)
"""A streaming job's timeout must be below it (Glue developer guide, "Streaming jobs"); the same span
is the longest that an EMR Serverless application may idle (10,080 minutes)."""

_MOST_CONSUMERS = 20
"""Registered consumers of one Kinesis stream (Kinesis quotas)."""

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
        "spark.serializer",
        "spark.speculation",
        "spark.sql.adaptive.optimizer.excludedRules",
        "spark.sql.defaultCatalog",
        "spark.sql.extensions",
        "spark.sql.session.timeZone",
        "spark.sql.streaming.checkpointLocation",
    }
)


def check_jobs(environment: Environment, streams: Iterable[str], root: FilePath) -> Iterator[Finding]:
    """Check every job.

    Parameters
    ----------
    environment
        Its valid parts.
    streams
        Names of all declared streams.
    root
        The project, where schemas and transforms are looked up.
    """
    landing = {
        query.table
        for job in environment.jobs.values()
        for query in job.queries.values()
        if isinstance(query, Landing)
    }
    # Queries that share the partitions of one topic out append to one table: their records are never the same.
    shared_out = _shared_out(environment)
    writers: dict[str, str] = {}
    for name, job in environment.jobs.items():
        path = ("jobs", name)
        yield from _glue(path, job) if isinstance(job, GlueJob) else _emr(path, job)
        yield from _spark(path, job)
        yield from _sources(environment, path, job)
        for query_name, query in job.queries.items():
            query_path = (*path, "queries", query_name)
            yield from _one_writer(query_path, query, writers, shared_out)
            yield from _not_existing(query_path, query, environment)
            if isinstance(query, Routing):
                for route, each in query.routes.items():
                    yield from _reads((*query_path, "routes", route), each, job, sorted(streams), root)
                yield from check_routes(query_path, query, environment)
            if isinstance(query, StreamQuery):
                yield from _reads(query_path, query, job, sorted(streams), root)
                yield from check_reading(environment, query_path, job, query.source, query)
            if isinstance(query, DirectQuery):
                yield from _from_kafka(query_path, query.source, environment)
            if isinstance(query, DirectRouteQuery):
                for route, each in query.routes.items():
                    yield from _from_kafka((*query_path, "routes", route), each.source, environment)
            if isinstance(query, DeriveQuery):
                yield from _source_table(query_path, query, sorted(landing))
                yield from check_read_routes(query_path, query, environment)
                if query.latest_by and query.state is not None:
                    yield Finding(
                        (*query_path, "latest_by"),
                        ", ".join(query.latest_by),
                        "nothing beside state, whose key says what identifies a result",
                    )
                if query.state is not None:
                    yield from _state((*query_path, "state"), query, query.state, sorted(landing))
            for place, end in written(query).items():
                yield from _transforms((*query_path, *place), end, query, root)
                yield from check_sink((*query_path, *place), end, query, job, environment, root)

    yield from check_places(environment)
    yield from _consumers(environment)
    yield from check_lists(environment)
    yield from check_lag_groups(environment)


def _shared_out(environment: Environment) -> set[str]:
    """Tables whose writers are all parts of one shared topic."""
    writers: dict[str, int] = {}
    for job in environment.jobs.values():
        for query in job.queries.values():
            for table in query.writes.values():
                writers[table] = writers.get(table, 0) + 1
    return {table for (_, table), group in shares(environment).items() if len(group) == writers[table]}


def _glue(path: Path, job: GlueJob) -> Iterator[Finding]:
    workers = list(glue_workers(job.version))
    if job.worker not in workers:
        yield Finding(
            (*path, "worker"),
            job.worker,
            f"with Glue {job.version}: {', '.join(workers)}",
            nearest(job.worker, workers),
        )
    if job.timeout is not None and (job.timeout >= GLUE_LONGEST_TIMEOUT or job.timeout % _MINUTE):
        yield Finding(
            (*path, "timeout"),
            format_duration(job.timeout),
            "whole minutes, below 7 days, or nothing: then the job runs on and on",
        )


def _emr(path: Path, job: EmrJob) -> Iterator[Finding]:
    worker, path = job.worker, (*path, "worker")
    if worker.vcpu not in EMR_MEMORY_GIB:
        yield Finding((*path, "vcpu"), str(worker.vcpu), f"one of {', '.join(map(str, EMR_MEMORY_GIB))}")
    elif worker.memory not in {gib * GIB for gib in EMR_MEMORY_GIB[worker.vcpu]}:
        yield Finding(
            (*path, "memory"),
            worker.memory.human_readable(),
            f"with {worker.vcpu} vCPU: {emr_memory_range(worker.vcpu)}",
        )
    smallest, largest = EMR_DISK_GIB
    if not smallest * GIB <= worker.disk <= largest * GIB or worker.disk % GIB:
        yield Finding(
            (*path, "disk"), worker.disk.human_readable(), f"{smallest}GiB to {largest}GiB, in whole GiB"
        )
    if job.initial_executors is not None and job.initial_executors < (job.min_executors or 1):
        yield Finding(
            (*path[:-1], "initial_executors"),
            str(job.initial_executors),
            f"at least {job.min_executors}, as min_executors says",
        )
    if not _MINUTE <= job.idle_stop <= GLUE_LONGEST_TIMEOUT or job.idle_stop % _MINUTE:
        yield Finding(
            (*path[:-1], "idle_stop"), format_duration(job.idle_stop), "whole minutes, up to 7 days"
        )


def _sources(environment: Environment, path: Path, job: Job) -> Iterator[Finding]:
    for name, query in job.queries.items():
        if not isinstance(query, LandQuery) or not query.fan_out:
            continue
        stream = environment.streams.get(query.source)
        here = (*path, "queries", name, "fan_out")
        if isinstance(stream, KafkaTopic):
            yield Finding(here, "true", "false for a Kafka topic: fan-out is Kinesis' own")
        elif stream is not None and stream.existing is not None:
            yield Finding(here, "true", "false for an existing stream: a consumer would be registered at it")


def _consumers(environment: Environment) -> Iterator[Finding]:
    for name, stream in environment.streams.items():
        if not isinstance(stream, KinesisStream):
            continue
        own = sum(
            isinstance(query, LandQuery) and query.fan_out and query.source == name
            for job in environment.jobs.values()
            for query in job.queries.values()
        )
        count = own + len(stream.fan_out_consumers)
        if count > _MOST_CONSUMERS:
            yield Finding(
                ("streams", name, "fan_out_consumers"),
                f"{count} consumers",
                f"at most {_MOST_CONSUMERS} for a stream, the {own} of this environment's jobs among them",
            )


def _spark(path: Path, job: Job) -> Iterator[Finding]:
    for key, value in job.spark.items():
        if not key.startswith("spark."):
            yield Finding((*path, "spark", key), value, "a key that begins with spark.")
        elif key in _OWNED or key.startswith(_OWNED_PREFIXES):
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


def _one_writer(
    path: Path, query: Query, writers: dict[str, str], shared_out: Iterable[str]
) -> Iterator[Finding]:
    here = f"jobs.{path[1]}.queries.{path[3]}"
    for key, table in query.writes.items():
        place = f"{here}.{'.'.join(key)}"
        first = writers.setdefault(table, place)
        if first != place and table not in shared_out:
            allowed = f"a table that nothing else writes; {first} names this one"
            yield Finding((*path, *key), table, allowed)


def _not_existing(path: Path, query: Query, environment: Environment) -> Iterator[Finding]:
    for key, table in query.writes.items():
        if table in environment.tables:
            allowed = "a table of this environment: those under tables are read, never written"
            yield Finding((*path, *key), table, allowed)


def _reads(
    path: Path, query: StreamQuery | Route, job: Job, streams: list[str], root: FilePath
) -> Iterator[Finding]:
    if query.source not in streams:
        yield Finding(
            (*path, "source"),
            query.source,
            f"a declared stream: {', '.join(streams) or 'there is none'}",
            nearest(query.source, streams),
        )
    yield from check_format(path, query, job, root)
    schema = (root / query.schema_).resolve()
    if is_file(schema):
        yield from _redact((*path, "redact"), query, schema)


def _redact(path: Path, query: StreamQuery | Route, schema: FilePath) -> Iterator[Finding]:
    """Look for the fields among the words of the schema; the core, which parses it, is strict."""
    words = sorted(set(_WORD.findall(schema.read_text(encoding="utf-8", errors="replace"))))
    for position, name in enumerate(query.redact):
        if name not in words:
            yield Finding(
                (*path, position), name, f"a top-level field of {query.schema_}", nearest(name, words)
            )


def _from_kafka(path: Path, source: str, environment: Environment) -> Iterator[Finding]:
    stream = environment.streams.get(source)
    if isinstance(stream, KinesisStream):
        yield Finding(
            (*path, "source"),
            source,
            "a Kafka topic: a Kinesis batch holds other records when it is replayed; land it, then derive",
        )


def _source_table(path: Path, query: DeriveQuery, landing: list[str]) -> Iterator[Finding]:
    if query.source not in landing:
        yield Finding(
            (*path, "source"),
            query.source,
            f"the table of a land query: {', '.join(landing) or 'there is none'}",
            nearest(query.source, landing),
        )


def _state(path: Path, query: DeriveQuery, state: State, landing: list[str]) -> Iterator[Finding]:
    join = state.join
    if join is not None and (
        join.source not in landing or (join.source, join.route) == (query.source, query.route)
    ):
        others = [each for each in landing if each != query.source]
        yield Finding(
            (*path, "join", "source"),
            join.source,
            f"the table of another land query: {', '.join(others) or 'there is none'}",
            nearest(join.source, others),
        )
    if query.transform is None and (state.key or join is not None or not state.distinct):
        yield Finding(
            (*path[:-1], "transform"),
            MISSING,
            "a function that makes the results: state without one is for distinct",
        )


def _transforms(path: Path, end: Written, query: Query, root: FilePath) -> Iterator[Finding]:
    added: set[str] = set()
    for position, enrichment in enumerate(end.enrich):
        here = (*path, "enrich", position)
        if enrichment.table in query.writes.values():
            yield Finding((*here, "table"), enrichment.table, "a table other than the one this query writes")
        for column in enrichment.columns:
            if column.startswith("_"):
                yield Finding(
                    (*here, "columns", column), column, "a name that does not begin with _; those are ours"
                )
            if column in added:
                yield Finding((*here, "columns", column), column, "a column that no earlier enrichment adds")
            added.add(column)
    if end.transform is not None:
        yield from _transform((*path, "transform"), end.transform, root)


def _transform(path: Path, transform: str, root: FilePath) -> Iterator[Finding]:
    """Look the function up in the file's syntax tree; importing it would need Spark."""
    module, function = transform.split(":")
    parts = module.split(".")
    if parts[0] != "pipelines":
        yield Finding(
            path, transform, "a function below pipelines, such as pipelines.flights.transforms:with_delay"
        )
        return
    stem = root.joinpath(*parts)
    file = next((each for each in (stem.with_suffix(".py"), stem / "__init__.py") if is_file(each)), None)
    if file is None:
        known = [
            ".".join(each.relative_to(root).with_suffix("").parts)
            for each in sorted((root / "pipelines").rglob("*.py"))
        ]
        yield Finding(
            path, transform, f"a module that exists; there is no {'/'.join(parts)}.py", nearest(module, known)
        )
        return
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"), str(file))
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        where = f"{'/'.join(parts)}.py" + (f":{line}" if line else "")
        yield Finding(path, transform, f"a module that can be imported; {where}: {error}")
        return
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    imported = [
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    ]
    if function not in functions + imported:
        public = [each for each in functions if not each.startswith("_")]
        yield Finding(
            path,
            transform,
            f"a function of {module}: {', '.join(public) or 'it has none'}",
            nearest(function, public),
        )
