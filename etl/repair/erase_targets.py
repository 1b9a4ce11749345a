"""Tables of a job that an erasure reaches: their matching rows and the removal of these."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import reduce
from typing import Literal

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.settings import DeriveSettings, DirectSettings, JobSettings, LandSettings
from ..maintenance.table_maintenance import sql_timestamp
from ..record.envelope import ERASED
from ..record.tables import DELETE_ISOLATION, Table
from .erase_condition import ErasureCondition, ErasureConditionError
from .replay_dead_letters import MARK
from .replay_refused_rows import MARK as SENT

KEEPS = ("_id", "_source", "_shard", "_position", "_arrived_at", "_landed_at", "_route")
"""Columns that an erased landed row keeps: its position in its source, and its times."""

_VIEW = "millrace_erased_records"

_BYTES = ("_bytes", "_key")
_ISOLATION = {
    # Row by row, and without conflicts with a stream's appends meanwhile: those are checked again.
    DELETE_ISOLATION: "snapshot",
    "write.update.isolation-level": "snapshot",
}

Kind = Literal["landing", "rows", "refused"]


@dataclass(frozen=True)
class MatchingRowCounts:
    """Matching rows of a table.

    Attributes
    ----------
    rows, letters
        Numbers of good rows and of dead letters.
    files
        Data files that hold them, which are rewritten.
    total
        Rows of the table.
    """

    rows: int
    letters: int
    files: int
    total: int

    @property
    def matching_count(self) -> int:
        """Number of good rows and dead letters."""
        return self.rows + self.letters


@dataclass(frozen=True)
class ErasureTarget:
    """Table that an erasure reaches.

    Parameters
    ----------
    table
        An existing table.
    kind
        ``landing`` has the schema of a landing table, ``refused`` holds rows that a sink refused, ``rows`` is a sink's table.
    writers
        Checkpoints of the job's queries that write it.
    sources
        For derive queries: landing table and checkpoint of each. Rows made from erased records are found by identity.
    joined
        Those of ``sources`` that are the second table of a join, whose records' identities come after a ``+``.
    keyed
        True if its rows are results of a key, which have no record's identity.
    readers
        Checkpoints of the queries, in any job, that derive from it.
    kept
        True if this job expires its history.
    by_columns
        True if it has the condition's columns.
    words
        True if payloads are text (:meth:`etl.repair.erase_condition.ErasureCondition.byte_search_sql`).
    """

    table: Table
    kind: Kind
    writers: tuple[str, ...]
    sources: tuple[tuple[Table, str], ...] = ()
    joined: tuple[Table, ...] = ()
    keyed: bool = False
    readers: tuple[str, ...] = ()
    kept: bool = False
    by_columns: bool = True
    words: bool = True

    def count_matches(
        self, spark: SparkSession, condition: ErasureCondition, *, arrived_before: datetime | None = None
    ) -> MatchingRowCounts:
        """Count the rows to erase now, all or those whose records had arrived before a time, in a table that has arrivals.

        Returns
        -------
        Matches
            Without rows that were erased before.
        """
        rows = letters = 0
        files: set[str] = set()
        if arrived_before is not None and "_arrived_at" not in spark.table(str(self.table)).columns:
            return MatchingRowCounts(0, 0, 0, 0)
        before = "" if arrived_before is None else f" AND t._arrived_at < {sql_timestamp(arrived_before)}"
        for sql, letter in self._conditions_of_rows_and_letters(spark, condition):
            [row] = spark.sql(
                f"SELECT count(1) AS n, collect_set(t._file) AS files FROM {self.table} t "  # noqa: S608 - the user's own condition
                f"WHERE {sql}{before}"
            ).collect()
            rows, letters = (rows, letters + row["n"]) if letter else (rows + row["n"], letters)
            files.update(row["files"])
            before += f" AND NOT ({sql}\n)"
        total = spark.table(str(self.table)).count()
        return MatchingRowCounts(rows, letters, len(files), total)

    def erase_matching_rows(self, spark: SparkSession, condition: ErasureCondition, erasure: str) -> None:
        """Erase the matching rows, each condition in its own transaction.

        Parameters
        ----------
        erasure
            Id of the erasure, which rows of landing tables keep in ``_error``.
        """
        _set_isolation_properties(spark, self.table)
        for sql, _ in self._conditions_of_rows_and_letters(spark, condition):
            if self.kind == "landing":
                spark.sql(
                    f"UPDATE {self.table} AS t SET {self._clearing_set_clause(spark, erasure)} WHERE {sql}"  # noqa: S608 - as above
                )
            else:
                spark.sql(f"DELETE FROM {self.table} AS t WHERE {sql}")  # noqa: S608 - as above

    def _clearing_set_clause(self, spark: SparkSession, erasure: str) -> str:
        known = {"_stage": f"'{ERASED}'", "_error": f"'erased: {erasure}'"}
        fields = spark.table(str(self.table)).schema.fields
        return ", ".join(
            f"t.`{f.name}` = {known.get(f.name, f'CAST(NULL AS {f.dataType.simpleString()})')}"
            for f in fields
            if f.name not in KEEPS
        )

    def _conditions_of_rows_and_letters(
        self, spark: SparkSession, condition: ErasureCondition
    ) -> Iterator[tuple[str, bool]]:
        """Yield conditions on rows of the table ``t`` that no erased row meets, each with True for dead letters."""
        schema = spark.table(str(self.table)).schema
        if self.kind == "landing":
            good = "t._error IS NULL AND t._stage IS NULL"
            row = condition.row_sql(schema)
            yield f"{good} AND {row}", False
            conditions = [row, condition.byte_search_sql(*_BYTES, words=self.words)]
            either = " OR ".join(each for each in conditions if each is not None)
            erased = f"t._stage <=> '{ERASED}'"
            yield f"NOT ({good}) AND NOT ({erased}) AND ({either})", True
            yield f"NOT ({erased}) AND {self._same_record_condition(spark, conditions)}", True
            return
        letter = self.kind == "refused"
        if letter:
            text = condition.byte_search_sql("_bytes", words=True)
            if text is not None:
                yield text, True
        elif self.by_columns:
            yield condition.row_sql(schema), False
        if self.sources and not self.keyed and has_record_identity(schema):
            for made in self._conditions_for_derived_rows(spark, condition):
                yield made, letter

    def _same_record_condition(self, spark: SparkSession, conditions: Iterable[str | None]) -> str:
        """Return a condition: another row of the record is erased or matches, its letter or one of its replays.

        A replay whose letter stayed would be made again from it.
        """
        found = _records_of_conditions(
            spark, self.table, [f"_stage <=> '{ERASED}'", *filter(None, conditions)]
        )
        found.createOrReplaceTempView(f"{_VIEW}_here")
        of, its = (f"regexp_replace({each}._id, '{MARK}[0-9]*$', '')" for each in "te")
        # A replay has its record's arrival time.
        return (
            f"EXISTS (SELECT 1 FROM {_VIEW}_here e WHERE {of} = {its} AND e._source <=> t._source "  # noqa: S608 - a name of ours
            f"AND e._arrived_at <=> t._arrived_at AND (contains(t._id, '{MARK}') OR contains(e._id, '{MARK}')))"
        )

    def _conditions_for_derived_rows(self, spark: SparkSession, condition: ErasureCondition) -> Iterator[str]:
        """Yield conditions for rows with the identity of erased or matching records, whatever columns the transform kept."""
        records = _erased_or_matching_records(spark, condition, [landing for landing, _ in self.sources])
        records.createOrReplaceTempView(_VIEW)
        ends = records.select(
            F.expr("min(unix_micros(_arrived_at))"), F.expr("max(unix_micros(_arrived_at))")
        ).first()
        # Of joined records it is `A+B` (etl/queries/stateful.py); each explode adds an ordinal after a slash. A corrected row that
        # was refused again has a suffix of its own.
        own = f"regexp_replace(t._id, '{SENT}[0-9]*$', '')" if self.kind == "refused" else "t._id"
        begins = (
            f"(startswith(concat({own}, '/'), concat(e._id, '/')) OR startswith(t._id, concat(e._id, '+')))"
        )
        if ends is not None and ends[0] is not None:
            yield (
                f"t._arrived_at BETWEEN timestamp_micros({ends[0]}) AND timestamp_micros({ends[1]}) AND EXISTS "  # noqa: S608 - numbers and a name of ours
                f"(SELECT 1 FROM {_VIEW} e WHERE e._source <=> t._source AND e._arrived_at <=> t._arrived_at AND {begins})"
            )
        for number, landing in enumerate(dict.fromkeys(self.joined)):
            view = f"{_VIEW}_{number}"
            _erased_or_matching_records(spark, condition, [landing]).createOrReplaceTempView(view)
            # A joined row has the times of its first record.
            yield (
                f"EXISTS (SELECT 1 FROM {view} e WHERE contains(concat(t._id, '/'), concat('+', e._id, '/')) "  # noqa: S608 - a name of ours
                f"OR (t._source <=> '{landing.database}.{landing.name}' AND {begins}))"
            )


def _erased_or_matching_records(
    spark: SparkSession, condition: ErasureCondition, landings: Iterable[Table]
) -> DataFrame:
    frames = (
        _records_of_conditions(
            spark, landing, (f"_stage <=> '{ERASED}'", condition.row_sql(spark.table(str(landing)).schema))
        )
        for landing in dict.fromkeys(landings)
    )
    return reduce(DataFrame.unionByName, frames)


def _records_of_conditions(spark: SparkSession, landing: Table, conditions: Iterable[str]) -> DataFrame:
    """Return the records of a landing table that meet one of the conditions, each on its own: not one scan for all."""
    rows = spark.table(str(landing)).alias("t")
    found = (rows.where(each).select("_id", "_source", "_arrived_at") for each in conditions)
    return reduce(DataFrame.unionByName, found)


def _set_isolation_properties(spark: SparkSession, table: Table) -> None:
    has = table.load_java_table(spark).properties()
    lacking = {name: value for name, value in _ISOLATION.items() if has.get(name) != value}
    if lacking:
        pairs = ", ".join(f"'{name}' = '{value}'" for name, value in lacking.items())
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ({pairs})")


def targets_left_out_and_problems(
    spark: SparkSession, job: JobSettings, condition: ErasureCondition
) -> tuple[tuple[ErasureTarget, ...], list[str], list[str]]:
    """Return the tables that a job writes and to which the condition applies, landing tables first.

    Returns
    -------
    tuple
        The tables; sentences on data that is not reached; and all errors of the condition.
    """
    try:
        condition.raise_if_invalid()
    except ErasureConditionError as error:
        return (), [], [str(error)]
    result, left_out, problems = [], [], []
    for target in _erasure_targets_of_job(job):
        if not target.table.exists(spark):
            continue
        schema = spark.table(str(target.table)).schema
        lacking = () if target.kind == "refused" else condition.missing_columns(schema)
        if lacking and target.kind == "landing":
            if len(lacking) < len(condition.columns):
                problems.append(f"{target.table}: no column {', '.join(lacking)}")
            else:
                left_out.append(f"{target.table} has no column {', '.join(lacking)}")
            continue
        problem = None if lacking or target.kind == "refused" else condition.problem(schema)
        if problem is not None:
            problems.append(f"{target.table}: {problem}")
        sources = tuple(
            (landing, checkpoint)
            for landing, checkpoint in target.sources
            if not condition.missing_columns(spark.table(str(landing)).schema)
        )
        identities = bool(sources) and not target.keyed and has_record_identity(schema)
        if lacking and not identities:
            left_out.append(
                f"{target.table} has no column {', '.join(lacking)}, and no identity of its records"
            )
            continue
        if (
            target.kind == "refused"
            and not identities
            and condition.byte_search_sql("_bytes", words=True) is None
        ):
            left_out.append(f"{target.table}: no value of the condition can be looked for in its rows")
            continue
        joined = tuple(landing for landing, _ in sources if landing in target.joined)
        for landing in joined if identities else ():
            alone = f"_source <=> '{landing.database}.{landing.name}'"
            if not spark.table(str(target.table)).where(f"NOT contains(_id, '+') AND NOT {alone}").isEmpty():
                left_out.append(
                    f"{target.table} has rows without the identity of a record of {landing}: it had no match, or the "
                    "transform drops _joined_id; rows of the second kind with a record of the person are not found"
                )
        result.append(replace(target, sources=sources, joined=joined, by_columns=not lacking))
    if job.upkeep is None and result:
        left_out.append(
            "old snapshots and their files: storage.upkeep is null, so your catalog's service expires them"
        )
    # An error in any table is an error of the condition.
    return tuple(result), left_out, problems


def has_record_identity(schema: StructType) -> bool:
    """Check that a table's rows have the identity of their record."""
    return {"_id", "_source", "_arrived_at"} <= set(schema.fieldNames())


def _erasure_targets_of_job(job: JobSettings) -> tuple[ErasureTarget, ...]:
    """Return the tables of a job's queries, each once."""
    readers_by_table = {one.table: one.readers for one in job.upkeep.tables} if job.upkeep is not None else {}
    targets: dict[str, ErasureTarget] = {}

    def add_target(
        name: str, kind: Kind, query: str, derived: DeriveSettings | None = None, *, words: bool = True
    ) -> None:
        checkpoint = f"{job.checkpoints}/{query}"
        before = targets.get(name)
        landings = [Table.from_name(job.catalog, each) for each in derived.landing_tables] if derived else []
        targets[name] = ErasureTarget(
            Table.from_name(job.catalog, name),
            kind,
            (*(before.writers if before else ()), checkpoint),
            (*(before.sources if before else ()), *((landing, checkpoint) for landing in landings)),
            (*(before.joined if before else ()), *landings[1:]),
            bool(derived and derived.key) and (before is None or before.keyed),
            readers_by_table.get(name, ()),
            name in readers_by_table,
            words=words and (before is None or before.words),
        )

    for query in job.queries:
        if isinstance(query, DeriveSettings):
            if query.sink.lake_table is not None:
                add_target(query.sink.lake_table, "rows", query.name, query)
            if query.dead_letters is not None:
                add_target(query.dead_letters, "refused", query.name, query)
            continue
        text = all(route.format.is_payload_one_text_line for route in query.routes)
        landing = query.table if isinstance(query, LandSettings) else query.dead_letters
        add_target(landing, "landing", query.name, words=text)
        if isinstance(query, DirectSettings):
            for route in query.routes:
                if route.sink.lake_table is not None:
                    add_target(route.sink.lake_table, "rows", query.name)
    order = ("landing", "rows", "refused")
    return tuple(sorted(targets.values(), key=lambda target: order.index(target.kind)))
