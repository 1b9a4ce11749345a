"""What looking a batch's records up costs as the landing table grows: nothing, if the bounds prune.

``python -m tests.performance.dedup --rows 1000000 10000000 100000000``. Tables of these sizes are filled
as landing does it, in the order of arrival, at 1,000 records a second up to now; they are
kept for the next run. Then batches of new records land in each table, turn about, in one
session, so that what else the machine does falls on all of them; the figures to trust
are ratios of a round.

append
    The same batch into a table that is new each time: nothing to look up.
next
    A batch of a running query: what arrived since the oldest record of the batch before is looked at.
exact
    The same with a bound that is not rounded to the minute, and so another one in every batch.
first
    The first batch of a run: what the last batch before it read last is looked up by its position, and
    its arrival bounds the batch.
retention
    The same without that: all that the stream may still hold, 24 hours.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from rich.console import Console

from etl import land, tables
from etl.accounts import Reporter
from etl.checkpoint import Checkpoint
from etl.decode import JsonDecoder, parse_schema
from etl.envelope import COLUMNS, HEADERS
from etl.settings import KinesisSource, LandSettings
from etl.sinks.iceberg import IcebergSink
from etl.sources.kinesis_guard import STEP_SECONDS, KinesisGuard
from etl.tables import Table
from millrace.sandbox.process import RUN
from tests.performance import core
from tests.performance.intervals import interval
from tests.performance.rounds import in_turn

HOME = RUN / "bench-dedup"
PER_SECOND = 1_000
PER_FILE = 100_000
"""Rows of a file: a day of batches, compacted to ten megabytes or so."""

FILES_PER_COMMIT = 50
SOURCE = KinesisSource("kinesis", "events", "events", "us-east-1", "earliest", 10_000, 1.0, 86_400)
DDL = "n BIGINT NOT NULL, text STRING"
CASES = ("append", "next", "exact", "first", "retention")


def sequence_of(number: Column) -> Column:
    """Of as many digits as those of Kinesis."""
    return F.lpad(number.cast("string"), 56, "4968042419681332793507059317107")


def envelope_rows(spark: SparkSession, first: int, count: int, arrived: datetime, tasks: int) -> DataFrame:
    """Records in the order of their arrival, a thousand a second from a moment on."""
    number = F.col("id") + first
    since = F.col("id") * (1_000_000 // PER_SECOND) + int(arrived.timestamp() * 1e6)
    sequence = sequence_of(number)
    return spark.range(0, count, 1, tasks).select(
        F.concat_ws("/", F.lit(SOURCE.stream), sequence).alias("_id"),
        F.lit(SOURCE.name).alias("_source"),
        F.lit(None).cast("string").alias("_shard"),
        sequence.alias("_position"),
        F.substring(F.md5(number.cast("string")), 1, 8).cast("binary").alias("_key"),
        F.lit(None).cast(HEADERS).alias("_headers"),
        F.timestamp_micros(since).alias("_arrived_at"),
        F.to_json(F.struct(number.alias("n"), F.lit("departed").alias("text")))
        .cast("binary")
        .alias("payload"),
    )


@dataclass
class Bench:
    """Where the batches land, and how far each table has got."""

    spark: SparkSession
    now: datetime
    per_batch: int
    next_number: int
    begun: datetime

    def lander(self, table: Table, guard: KinesisGuard) -> land.Lander:
        schema = parse_schema(self.spark, DDL, "bench")
        headers = self.spark.createDataFrame([], f"_headers {HEADERS}").schema["_headers"]
        tables.ensure(self.spark, table, land.table_schema(headers, schema))
        query = LandSettings("land", "land", SOURCE, "json", DDL, None, (), str(table), 1.0, None)
        log = Checkpoint(str(HOME / "none"))
        report = Reporter("bench", io.StringIO())
        return land.Lander(query, JsonDecoder(schema), IcebergSink(table), log, report, guard)

    def fill(self, table: Table, rows: int) -> None:
        """Fill a table up to now, unless it was filled before."""
        self.lander(table, self.guard(table))  # makes it
        if self.spark.table(str(table)).limit(1).count():
            return
        step = PER_FILE * FILES_PER_COMMIT
        begun = self.now - timedelta(seconds=rows / PER_SECOND)
        for first in range(0, rows, step):
            count = min(step, rows - first)
            arrived = begun + timedelta(seconds=first / PER_SECOND)
            records = envelope_rows(self.spark, first, count, arrived, max(1, count // PER_FILE))
            landed = records.select(
                *COLUMNS,
                F.xxhash64("payload").alias("_hash"),
                F.col("_arrived_at").alias("_landed_at"),
                F.lit(1).cast("bigint").alias("n"),
                F.lit("departed").alias("text"),
            )
            whole = landed.select(
                "*",
                F.lit(None).cast("binary").alias("_bytes"),
                *(F.lit(None).cast("string").alias(c) for c in ("_stage", "_error")),
            )
            whole.writeTo(str(table)).append()

    def guard(self, table: Table, oldest: datetime | None = None, step: float = STEP_SECONDS) -> KinesisGuard:
        return KinesisGuard(SOURCE, Checkpoint(str(HOME / "none")), table, oldest=oldest, step_seconds=step)

    def land(self, case: str, table: Table) -> float:
        """Land one batch of records that have just arrived; give the seconds."""
        self.next_number += self.per_batch
        # What has arrived in the ten seconds since the batch before.
        self.now += timedelta(seconds=self.per_batch / PER_SECOND)
        arrived = self.now - timedelta(seconds=self.per_batch / PER_SECOND)
        batch = envelope_rows(self.spark, self.next_number, self.per_batch, arrived, 2)
        # The batch before began ten seconds earlier; its oldest record had waited for a moment.
        oldest = arrived - timedelta(seconds=11) if case in ("next", "exact") else None
        step = 1e-6 if case == "exact" else STEP_SECONDS
        guard = self.guard(table, oldest, step)
        if case == "first":
            guard.checkpoint = self.stopped(table)
        write = self.lander(table, guard)
        begun = time.monotonic()
        write(batch, 2)
        return time.monotonic() - begun

    def stopped(self, table: Table) -> Checkpoint:
        """The checkpoint of a query that was stopped after the table's last row before this bench."""
        home = HOME / f"stopped-{table.name}"
        last = int(table.name.rpartition("_")[2]) - 1
        sequence = self.spark.range(1).select(sequence_of(F.lit(last))).first()
        assert sequence is not None
        for entry, shard in (
            (1, {"iteratorType": "TRIM_HORIZON", "iteratorPosition": ""}),
            (2, {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": sequence[0]}),
        ):
            path = home / "offsets" / str(entry)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("v1\n{}\n" + json.dumps({"metadata": {}, "shardId-0": shard}))
        commit = home / "commits" / "0"
        commit.parent.mkdir(exist_ok=True)
        commit.write_text("v1\n{}")
        os.utime(commit, (self.begun.timestamp() - 10, self.begun.timestamp() - 10))
        return Checkpoint(str(home))


def table_of(rows: int) -> Table:
    return Table("lake", "bench", f"landed_{rows}")


def round_of(bench: Bench, sizes: Sequence[int], cases: Sequence[str], number: int) -> dict[str, float]:
    """Every case on every table, once; from another one on in each round."""
    turns = in_turn([("append", 0), *itertools.product(cases, sizes)], number)
    seconds: dict[str, float] = {}
    for case, rows in turns:
        table = table_of(rows) if rows else Table("lake", "bench", "empty")
        seconds[f"{case} {rows:,}" if rows else case] = bench.land(case, table)
        if not rows:
            bench.spark.sql(f"DROP TABLE {table} PURGE")
    return seconds


def report(console: Console, rounds: Sequence[Mapping[str, float]]) -> None:
    """Print seconds and ratios, with intervals."""
    console.print("\nseconds of a batch: median [95 % interval]; against a batch with nothing to look up")
    for name in sorted(rounds[0], key=lambda n: (CASES.index(n.split()[0]), len(n), n)):
        median, low, high = interval([r[name] for r in rounds])
        ratio, least, most = interval([r[name] / r["append"] for r in rounds])
        console.print(
            f"  {name:22} {median:6.2f} [{low:.2f}, {high:.2f}]   {ratio:5.2f} [{least:.2f}, {most:.2f}]"
        )
    sizes = sorted({int(n.split()[1].replace(",", "")) for n in rounds[0] if " " in n})
    console.print("\nagainst the same on the smallest table")
    for case, rows in itertools.product(CASES[1:], sizes[1:]):
        if f"{case} {rows:,}" in rounds[0]:
            each = [r[f"{case} {rows:,}"] / r[f"{case} {sizes[0]:,}"] for r in rounds]
            ratio, least, most = interval(each)
            console.print(f"  {case:10} {rows:12,} {ratio:5.2f} [{least:.2f}, {most:.2f}]")
    if f"exact {sizes[0]:,}" in rounds[0] and f"next {sizes[0]:,}" in rounds[0]:
        each = [r[f"exact {rows:,}"] / r[f"next {rows:,}"] for r in rounds for rows in sizes]
        ratio, least, most = interval(each)
        console.print(f"\nexact against next, on all tables: {ratio:.2f} [{least:.2f}, {most:.2f}]")


def parser() -> argparse.ArgumentParser:
    """What the command takes."""
    parser = argparse.ArgumentParser(prog="tests.performance.dedup", description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[10**6, 10**7, 10**8])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--per-batch", type=int, default=10_000)
    parser.add_argument("--cases", nargs="+", choices=CASES[1:], default=["next"])
    parser.add_argument("--drop", action="store_true", help="remove the tables afterwards")
    return parser


def main(arguments: Sequence[str]) -> int:
    given = parser().parse_args(arguments)
    console = Console(width=120, highlight=False)
    core.HOME = HOME
    HOME.mkdir(parents=True, exist_ok=True)
    with core.spark_session(2) as spark:
        stamp = HOME / "filled-at"
        if not stamp.exists():
            stamp.write_text(datetime.now(UTC).isoformat())
        now = datetime.fromisoformat(stamp.read_text())
        bench = Bench(spark, now, given.per_batch, 2 * max(given.rows), now)
        for rows in given.rows:
            begun = time.monotonic()
            bench.fill(table_of(rows), rows)
            files = spark.table(f"{table_of(rows)}.files").count()
            console.print(f"{rows:,} rows in {files:,} files, there after {time.monotonic() - begun:.0f} s")
        rounds = []
        for number in range(given.rounds + 2):
            rounds.append(round_of(bench, given.rows, given.cases, number))
            told = ", ".join(f"{n} {s:.2f}" for n, s in sorted(rounds[-1].items()))
            console.print(f"{'warm-up' if number < 2 else f'round {number - 1}'}: {told}")
        report(console, rounds[2:])
    if given.drop:
        shutil.rmtree(HOME)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
