"""Program that compares derived tables of a job with one batch of their transforms over all rows of the landing tables.

It runs on a job's Spark, archive and launch document, in place of the entry script. Of the core it uses the functions from good
records to rows, and neither streams, batches, state nor sinks: what these lose, double or mix up is a difference.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.formats.decoding.decoder_per_topic import rows_of_route
from millrace.etl.launch import entry_script_arguments as launch
from millrace.etl.launch.settings import DeriveSettings, StateSettings
from millrace.etl.queries import change_order, required_spark_settings
from millrace.etl.queries.query_and_repair_setup import (
    batch_transform_and_schema,
    existing_landing_table,
    make_enrich_then_transform,
)
from millrace.etl.queries.stateful import StatefulTransform
from millrace.etl.queries.transform import good_records
from millrace.etl.record import hadoop_files
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.errors import describe_error
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.sinks.base import DELETED, JSON_OPTIONS, ORDER

PATIENCE_SECONDS = 180.0
"""Time without any change of a table that still lacks rows, after which they are lost."""

_LOOK_SECONDS = 2.0
_OWN = ("_id", "_written_at", "_attempt", ORDER, DELETED)
"""Columns that are not compared: the identity, by which rows are matched, and what each write sets anew or leaves out."""


def main(arguments: Sequence[str]) -> None:
    """Compare each derived table of the lake, and report all in one event ``compared``.

    Parameters
    ----------
    arguments
        Those of the entry script.
    """
    spark = SparkSession.builder.getOrCreate()
    options = launch.parse_arguments(arguments)
    job = launch.read_settings_of_document(hadoop_files.read_text(spark, options.document), options)
    required_spark_settings.prepare_or_refuse_session(spark, job)
    run, results = JobRun(spark, job, {}, EventReporter(job.job)), {}
    for query in job.queries:
        if isinstance(query, DeriveSettings) and query.sink.lake_table is not None:
            try:
                results[query.sink.lake_table] = compare_until_settled(run, query)
            except Exception as error:  # any error of a user's function
                results[query.sink.lake_table] = {"reason": describe_error(error).partition("\n")[0]}
    run.report.emit("compared", tables=results)
    spark.stop()


def compare_until_settled(
    run: JobRun, query: DeriveSettings, patience: float = PATIENCE_SECONDS
) -> dict[str, Any]:
    """Compare a table until it has all rows, or has not changed for a long time.

    Returns
    -------
    dict
        Fields of :class:`millrace.sandbox.environment_trial.DerivedTableComparison`.
    """
    state = query.state
    if state is not None and state.distinct:
        return {"reason": "which of several equal records is the first depends on the batches"}
    if query.history:
        return {"reason": "a history has intervals, which no batch alone makes"}
    assert query.sink.lake_table is not None
    table = run.table(query.sink.lake_table)
    # Results wait for the watermark, and so do rows of an outer join without a partner.
    waiting = state is not None and (state.join is not None or state.output_mode == "append")
    unsteady: list[str] | None = None
    seen, changed = dict[str, Any](), time.monotonic()
    while True:
        wanted = rows_by_one_batch(run, query)
        written = run.spark.table(str(table)) if table.exists(run.spark) else wanted.limit(0)
        columns = [
            c for c in wanted.columns if c not in _OWN and (c in written.columns or not c.startswith("_"))
        ]
        for lacking in (c for c in columns if c not in written.columns):
            written = written.withColumn(lacking, F.lit(None).cast(wanted.schema[lacking].dataType))
        counts = counts_of_differing_rows(wanted, written, [c for c in columns if c not in (unsteady or ())])
        result = {**counts, "lost": 0, "pending": counts["lost"]} if waiting else {**counts, "pending": 0}
        if not (wrong := any(count for name, count in result.items() if name != "pending")):
            break
        if unsteady is None:
            again = rows_by_one_batch(run, query)
            if any(counts_of_differing_rows(wanted, again, ()).values()):
                return {"reason": "two runs of its transform on the same records have other rows"}
            unsteady = [c for c in columns if any(counts_of_differing_rows(wanted, again, [c]).values())]
            continue
        if result != seen:
            seen, changed = result, time.monotonic()
        if time.monotonic() - changed > patience:
            break
        time.sleep(_LOOK_SECONDS)
    if wrong and state is not None and _has_possibly_late_records(run, query, state):
        return {
            "reason": "records came later than the delay of the watermark: which of them it leaves out depends on the batches"
        }
    differing = [c for c in columns if wrong and any(counts_of_differing_rows(wanted, written, [c]).values())]
    return {**result, "rows": wanted.count(), "left_out": unsteady or [], "differing": differing}


def rows_by_one_batch(run: JobRun, query: DeriveSettings) -> DataFrame:
    """Return the rows that a derive query makes of all good records at once, computed.

    Raises
    ------
    StartError
        The query does not fit its tables.
    """
    records = _good_records_of_route(run, query, query.source_table, query.route)
    compose = make_enrich_then_transform(run, query.name, query)
    if (state := query.state) is not None:
        join = state.join
        joined = None if join is None else _good_records_of_route(run, query, join.source_table, join.route)
        records = StatefulTransform(state, compose.transform, compose.name)(records, joined)
        landing = run.table(query.source_table)
        compose, _ = batch_transform_and_schema(run.spark, query, compose, records, landing)
    rows = compose(records)
    if query.latest_by:
        if orders := change_order.orders_of_truncates(records):
            rows = rows.where(~change_order.older_than_any_condition(orders))
        rows = rows.where(f"NOT {DELETED}")
    return rows.localCheckpoint()


def counts_of_differing_rows(
    expected: DataFrame, written: DataFrame, columns: Sequence[str]
) -> dict[str, int]:
    """Compare rows as multisets, by their ``_id`` and the text of their values.

    Parameters
    ----------
    expected, written
        Rows with ``_id``.
    columns
        Columns to compare. Floating-point numbers are equal in ten digits, as the order of a sum changes the last ones.

    Returns
    -------
    dict
        ``lost``: rows that are not written; ``doubled``: more rows of an ``_id`` than wanted; ``different``: rows in the place
        of others of their ``_id``; ``unknown``: rows whose ``_id`` is not wanted.
    """

    def rows_as_text_with_side(rows: DataFrame, counted: str) -> DataFrame:
        kinds = dict(rows.dtypes)
        values = (
            F.format_string("%.9e", f"`{c}`").alias(c) if kinds[c] in ("double", "float") else F.col(f"`{c}`")
            for c in columns
        )
        text = F.to_json(F.struct(F.lit(0).alias("_"), *values), dict(JSON_OPTIONS)).alias("text")
        sides = (F.lit(int(side == counted)).alias(side) for side in ("wanted", "written"))
        return rows.select("_id", text, *sides)

    both = rows_as_text_with_side(expected, "wanted").unionByName(rows_as_text_with_side(written, "written"))
    rows = both.groupBy("_id", "text").agg(F.sum("wanted").alias("wanted"), F.sum("written").alias("written"))
    missing, extra = (
        F.expr("sum(greatest(wanted - written, 0))"),
        F.expr("sum(greatest(written - wanted, 0))"),
    )
    known = F.expr("sum(wanted) > 0")
    counts = rows.groupBy("_id").agg(missing.alias("missing"), extra.alias("extra"), known.alias("known"))
    total = counts.selectExpr(
        "coalesce(sum(missing - least(missing, extra)), 0) AS lost",
        "coalesce(sum(IF(known, extra - least(missing, extra), 0)), 0) AS doubled",
        "coalesce(sum(least(missing, extra)), 0) AS different",
        "coalesce(sum(IF(known, 0, extra)), 0) AS unknown",
    ).first()
    assert total is not None
    return {name: int(count) for name, count in total.asDict().items()}


def _good_records_of_route(run: JobRun, query: DeriveSettings, table: str, route: str | None) -> DataFrame:
    landing = existing_landing_table(run, query.name, table)
    deletes = bool(query.latest_by)
    return rows_of_route(good_records(run.spark.table(str(landing)), deletes=deletes), route, str(landing))


def _has_possibly_late_records(run: JobRun, query: DeriveSettings, state: StateSettings) -> bool:
    """Return whether a record may be older than the watermark: one that landed before it is later by more than the delay."""
    legs = [(query.source_table, query.route, state.watermark)]
    legs += [(each.source_table, each.route, each.watermark) for each in (state.join,) if each is not None]
    for table, route, mark in legs:
        at = F.col(f"`{mark.time}`").cast("timestamp").cast("double")
        landed = _good_records_of_route(run, query, table, route).where(at.isNotNull()).groupBy("_landed_at")
        passed = float("-inf")
        for _, first, last in landed.agg(F.min(at), F.max(at)).orderBy("_landed_at").collect():
            if first < passed:
                return True
            passed = max(passed, last - mark.delay_seconds)
    return False


if __name__ == "__main__":
    main(sys.argv[1:])
