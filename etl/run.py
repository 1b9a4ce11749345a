"""From a job's settings to running queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from etl import accounts, derive, direct, engines, envelope, land, routed, session, tables
from etl.accounts import Reporter
from etl.backfill import Backfiller
from etl.checkpoint import Checkpoint
from etl.derive import Composition, Deriver
from etl.enrich import ReferenceTable
from etl.errors import StartError
from etl.formats import build as formats
from etl.metrics import ages
from etl.outward import Outward, OutwardDirect, OutwardReplay
from etl.replay import Replayer
from etl.route import along
from etl.settings import (
    DeriveSettings,
    DirectSettings,
    JobSettings,
    KafkaSource,
    LandSettings,
    RoutedSettings,
)
from etl.settings_sinks import IcebergSinkSettings
from etl.sinks.base import Refuse, refuses_none
from etl.sinks.build import sink_of
from etl.sinks.iceberg import IcebergSink
from etl.sinks.iceberg_keyed import KeyedIcebergSink
from etl.sinks.letters import Letters
from etl.sources.kinesis_guard import KinesisGuard
from etl.sources.opening import open_stream, open_topic, watched
from etl.state import Stateful, Upserter, time_of
from etl.supervise import Query
from etl.tables import Table
from etl.upkeep import begin_with_everything


def build(
    spark: SparkSession, job: JobSettings, binds: Mapping[str, str], report: Reporter
) -> tuple[Query, ...]:
    """Make tables and queries, so that every mistake shows before the first record is read.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    binds
        Names and values of ``--bind``.
    report
        Where batches are reported.

    Raises
    ------
    StartError
        Whatever does not fit.
    """
    session.prepare(spark, job)
    # Landing tables first: a derive query of the same job reads one.
    order = sorted(job.queries, key=lambda q: isinstance(q, DeriveSettings))
    return tuple(_query(spark, job, q, binds, report) for q in order)


def opened(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    most: int | None,
    *,
    binds: Mapping[str, str],
    report: Reporter,
) -> Query:
    """One query of a job, to be measured; ``most`` rows in a batch where it derives from a table."""
    session.prepare(spark, job)
    query = next(q for q in job.queries if q.name == name)
    if isinstance(query, DeriveSettings):
        return _derive(spark, job, query, binds, report, most)
    return _query(spark, job, query, binds, report)


def _query(
    spark: SparkSession,
    job: JobSettings,
    query: LandSettings | RoutedSettings | DeriveSettings | DirectSettings,
    binds: Mapping[str, str],
    report: Reporter,
) -> Query:
    if isinstance(query, LandSettings):
        return _land(spark, job, query, binds, report)
    if isinstance(query, RoutedSettings):
        return routed.query(spark, job, query, binds, report)
    if isinstance(query, DirectSettings):
        return _direct(spark, job, query, binds, report)
    return _derive(spark, job, query, binds, report)


def replayer(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    report: Reporter,
    binds: Mapping[str, str] | None = None,
) -> Replayer:
    """What replays the dead letters of a land or direct query; neither source nor checkpoint is touched.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    name
        Of the query.
    report
        Where the outcome is reported.
    binds
        Names and values of ``--bind``, for a direct query whose sink is beside the lake.

    Raises
    ------
    StartError
        No such query, or a table of dead letters that is missing or of another shape.
    """
    session.prepare(spark, job)
    have = {q.name: q for q in job.queries if not isinstance(q, DeriveSettings)}
    if name not in have:
        raise StartError(
            f"--replay {name}: no land or direct query of this job; it has: {', '.join(have) or 'none'}"
        )
    query = have[name]
    decoder = (
        routed.router(spark, query) if isinstance(query, RoutedSettings) else formats.of_query(spark, query)
    )
    schema = decoder.schema
    table = Table.of(job.catalog, query.dead_letters if isinstance(query, DirectSettings) else query.table)
    if not table.exists(spark):
        raise StartError(f"--replay {name}: there is no table {table}: nothing was landed")
    headers = spark.createDataFrame([], f"_headers {envelope.HEADERS}").schema["_headers"]
    tables.check(spark, table, land.table_schema(headers, schema))
    onward: Callable[[DataFrame], None] | None = None
    if isinstance(query, DirectSettings):
        onward = _replay_onward(spark, job, query, table, binds or {}, report)
    sources = query.sources if isinstance(query, RoutedSettings) else (query.source,)
    return Replayer(name, tuple(s.name for s in sources), table, decoder, report, onward)


def backfiller(spark: SparkSession, job: JobSettings, name: str, report: Reporter) -> Backfiller:
    """What derives a range of a landing table again; neither source nor checkpoint is touched.

    Parameters
    ----------
    spark
        The job's session.
    job
        Its settings.
    name
        Of a derive query without state, into an Iceberg table.
    report
        Where the outcome is reported.

    Raises
    ------
    StartError
        No such query, one that cannot be taken apart by time, or a sink of another shape.
    """
    session.prepare(spark, job)
    have = {q.name: q for q in job.queries if isinstance(q, DeriveSettings)}
    if name not in have:
        raise StartError(
            f"--backfill {name}: no derive query of this job; it has: {', '.join(have) or 'none'}"
        )
    query = have[name]
    if query.state is not None:
        raise StartError(
            f"--backfill {name}: it keeps state, so that a result rests on records outside of any range: give the "
            "query another name and another table, and it begins with all that landed"
        )
    if not isinstance(query.sink, IcebergSinkSettings):
        raise StartError(
            f"--backfill {name}: its sink is {query.sink.kind}; an iceberg table can be backfilled"
        )
    landing = _landing(spark, job, name, query.source_table)
    compose = _composition(spark, job, query, report)
    table = Table.of(job.catalog, query.sink.table)
    tables.ensure(spark, table, compose.schema(spark, landing, query.route), report=report)
    return Backfiller(name, landing, compose, IcebergSink(table), report, query.route)


def _replay_onward(
    spark: SparkSession,
    job: JobSettings,
    query: DirectSettings,
    letters: Table,
    binds: Mapping[str, str],
    report: Reporter,
) -> direct.Onward | OutwardReplay:
    """What takes a direct query's replayed dead letters to its sink."""
    compose = _composition(spark, job, query, report)
    if isinstance(query.sink, IcebergSinkSettings):
        return direct.Onward(query.source.name, compose, IcebergSink(Table.of(job.catalog, query.sink.table)))
    sink = sink_of(job, query.sink, binds)
    sink.prepare(spark, compose.schema(spark, letters))
    return OutwardReplay(compose, sink)


def _land(
    spark: SparkSession, job: JobSettings, query: LandSettings, binds: Mapping[str, str], report: Reporter
) -> Query:
    decoder = formats.of_query(spark, query)
    schema = decoder.schema
    source = query.source
    checkpoint = Checkpoint(f"{job.checkpoints}/{query.name}")
    table = Table.of(job.catalog, query.table)
    guard: KinesisGuard | None = None
    reopen: Callable[[], DataFrame] | None = None
    splits = False
    check: Callable[[], None] | None = None
    if isinstance(source, KafkaSource):
        rows = open_topic(spark, job, query.name, source, binds, query.repartition)
        check = watched(spark, job, query.name, source, binds)
    else:
        guard, reopen = open_stream(spark, job, source, checkpoint, table, binds.get("kinesis.endpoint"))
        rows = reopen()
        splits = engines.module(job.engine).SPLITS_AGGREGATES
    tables.ensure(spark, table, land.table_schema(rows.schema["_headers"], schema), report=report)
    handler = land.Lander(query, decoder, IcebergSink(table), checkpoint, report, guard, splits)
    return Query(query.name, rows, handler, checkpoint.location, query.trigger_seconds, reopen, check=check)


def _direct(
    spark: SparkSession, job: JobSettings, query: DirectSettings, binds: Mapping[str, str], report: Reporter
) -> Query:
    decoder = formats.of_query(spark, query)
    schema = decoder.schema
    checkpoint = Checkpoint(f"{job.checkpoints}/{query.name}")
    rows = open_topic(spark, job, query.name, query.source, binds, query.repartition)
    letters = Table.of(job.catalog, query.dead_letters)
    tables.ensure(spark, letters, land.table_schema(rows.schema["_headers"], schema), report=report)
    compose = _composition(spark, job, query, report)
    if not isinstance(query.sink, IcebergSinkSettings):
        sink = sink_of(job, query.sink, binds)
        sink.prepare(spark, compose.schema(spark, letters))
        outward = OutwardDirect(query, decoder, compose, sink, IcebergSink(letters), checkpoint, report)
        return Query(query.name, rows, outward, checkpoint.location, query.trigger_seconds)
    table = Table.of(job.catalog, query.sink.table)
    tables.ensure(spark, table, compose.schema(spark, letters), report=report)
    handler = direct.Director(
        query, decoder, compose, IcebergSink(table), IcebergSink(letters), checkpoint, report
    )
    return Query(query.name, rows, handler, checkpoint.location, query.trigger_seconds)


def _derive(
    spark: SparkSession,
    job: JobSettings,
    query: DeriveSettings,
    binds: Mapping[str, str],
    report: Reporter,
    most: int | None = derive.ROWS_PER_BATCH,
) -> Query:
    landing = _landing(spark, job, query.name, query.source_table)
    checkpoint = Checkpoint(f"{job.checkpoints}/{query.name}")
    compose = _composition(spark, job, query, report)
    rows = _opened(spark, job, query, compose, landing, most)
    begun = begin_with_everything(spark, rows, checkpoint)
    for name in begun:
        report.emit("begun_with_everything", query=query.name, table=name, at=accounts.text(accounts.now()))
    if query.state is not None:
        if begun:
            # Files come in no order, and a watermark that moved on in between would leave some out.
            rows = _opened(spark, job, query, compose, landing, None)
        carries = ("_id",) if query.state.key else envelope.CARRIED
        compose = Composition(compose.references, lambda out: out, compose.name, carries)
        schema = compose(spark.createDataFrame([], rows.schema)).schema
    else:
        schema = compose.schema(spark, landing, query.route)
    key = query.state.key if query.state is not None else ()
    if not isinstance(query.sink, IcebergSinkSettings):
        return Query(
            query.name,
            rows,
            _outward(spark, job, query, compose, schema, checkpoint, binds, report),
            checkpoint.location,
            query.trigger_seconds,
            output_mode="update" if key else "append",
        )
    table = Table.of(job.catalog, query.sink.table)
    if key:
        time = time_of(rows.schema, key)
        tables.ensure(spark, table, schema, time=time, report=report)
        upserter = Upserter(query, compose, KeyedIcebergSink(table, time), report)
        return Query(
            query.name, rows, upserter, checkpoint.location, query.trigger_seconds, output_mode="update"
        )
    tables.ensure(spark, table, schema, report=report)
    handler = Deriver(query, landing, compose, IcebergSink(table), checkpoint, report)
    return Query(query.name, rows, handler, checkpoint.location, query.trigger_seconds)


def _outward(
    spark: SparkSession,
    job: JobSettings,
    query: DeriveSettings,
    compose: Composition,
    schema: StructType,
    checkpoint: Checkpoint,
    binds: Mapping[str, str],
    report: Reporter,
) -> Outward:
    """What writes a derive query's batches to a sink beside the lake's tables."""
    sink = sink_of(job, query.sink, binds)
    sink.prepare(spark, schema)
    refuse: Refuse = refuses_none
    if query.dead_letters is not None:
        refuse = letters = Letters(Table.of(job.catalog, query.dead_letters), query.name)
        letters.prepare(spark)
    return Outward(query, compose, sink, refuse, checkpoint, report)


def _opened(
    spark: SparkSession,
    job: JobSettings,
    query: DeriveSettings,
    compose: Composition,
    landing: Table,
    most: int | None,
) -> DataFrame:
    """A derive query's stream, with what keeps state: that stands before the batch, enrichment in it."""
    rows = along(derive.read(spark, landing, most), query.route, str(landing))
    if query.state is None:
        return rows
    join, joined = query.state.join, None
    if join is not None:
        other = _landing(spark, job, query.name, join.source_table)
        joined = along(derive.read(spark, other, most), join.route, str(other))
    if query.state.key:
        # Results have no time of arrival: the ages are those of the records that came in.
        rows = ages.observed(rows)
    build = Stateful(query.state, compose.transform, compose.name)
    return build(rows, joined)


def _landing(spark: SparkSession, job: JobSettings, query: str, name: str) -> Table:
    """A landing table that is there."""
    landing = Table.of(job.catalog, name)
    if not landing.exists(spark):
        raise StartError(f"query {query}: there is no table {landing}; start the job that lands it first")
    lacking = [c for c in envelope.CARRIED + derive.DEAD_LETTER if c not in spark.table(str(landing)).columns]
    if lacking:
        raise StartError(f"query {query}: {landing} is no landing table: it lacks {', '.join(lacking)}")
    return landing


def _composition(
    spark: SparkSession, job: JobSettings, query: DeriveSettings | DirectSettings, report: Reporter
) -> Composition:
    def ambiguous(table: Table, keys: int) -> None:
        report.emit(
            "ambiguous", query=query.name, table=str(table), keys=keys, at=accounts.text(accounts.now())
        )

    references = tuple(ReferenceTable(e, Table.of(job.catalog, e.table), ambiguous) for e in query.enrich)
    for reference in references:
        reference.check(spark)
    return Composition(references, derive.load_transform(query.transform), query.transform or "(none)")
