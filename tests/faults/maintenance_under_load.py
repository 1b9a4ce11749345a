"""Fault test of table maintenance under load with a slow reader: ``python -m tests.faults.maintenance_under_load --minutes 10``.

One thread lands batches as fast as it can. The job's own chores compact, expire and remove orphans without a pause;
states older than 15 s may go, and files that no state names are laid beside the table all the time. A derived query
reads what is there only every so often, so that it is behind by far more than that. At the end it reads the rest.
Ends with 1 where a record is missing or twice, in the landing table or in the derived one, where a chore failed, where
nothing was compacted, expired or held, or where a laid file stayed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import threading
import time
from collections import Counter
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.checkpoints.derive_start_after_expiry import write_starts_and_list_expired_tables
from millrace.etl.job.maintenance_schedule import MaintenanceThread
from millrace.etl.maintenance import table_maintenance
from millrace.etl.maintenance.table_maintenance import Compaction, OrphanFileRemoval, SnapshotExpiry
from millrace.etl.queries import derive
from millrace.etl.record.tables import Table
from millrace.sandbox.programs import jars, open_spark_session
from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.records.producer import BackgroundThread
from tests.faults.row_difference import Difference
from tests.spark.queries.test_derive import Pipeline
from tests.spark.source_batches import Events, frame, good, kafka_rows

HOME = RUN / "faults-upkeep"
ROWS = 500
"""Of a landed batch."""

KEEP = timedelta(seconds=15)
BEHIND_SECONDS = 75.0
"""Between two looks of the derived query at the landing table."""


class Writer:
    """Lands batch after batch, and lays a file that nobody knows beside each tenth."""

    def __init__(self, pipe: Pipeline) -> None:
        self._pipe = pipe
        self.batches = 0
        self.laid: list[Path] = []

    def land_on(self, stop: threading.Event) -> None:
        """Land until asked to stop."""
        while not stop.is_set():
            self.land()

    def land(self) -> None:
        first = self.batches * ROWS
        payloads = [good(n) for n in range(first, first + ROWS)]
        self._pipe.land(frame(self._pipe.spark, kafka_rows(0, first, payloads)), self.batches)
        self.batches += 1
        if self.batches % 10 == 0:
            self._lay()

    def _lay(self) -> None:
        """A file of a writer that was killed two days ago."""
        folder = HOME / "lake" / self._pipe.landing.database / self._pipe.landing.name / "data"
        file = folder / f"left-behind-{self.batches}.parquet"
        file.write_bytes(b"PAR1")
        old = time.time() - 2 * 86_400
        os.utime(file, (old, old))
        self.laid.append(file)


def chores(spark: SparkSession, pipe: Pipeline, events: Events) -> MaintenanceThread:
    """The job's own, one after the other without a pause."""
    again = timedelta(seconds=2)
    size = 64 * 1024**2
    return MaintenanceThread(
        spark,
        (
            Compaction(table=pipe.landing, file_size=size, report=events.reporter, every=again),
            SnapshotExpiry(
                table=pipe.landing,
                keep=KEEP,
                readers=(str(pipe.checkpoint),),
                report=events.reporter,
                every=again,
            ),
            OrphanFileRemoval(
                table=pipe.landing, older_than=timedelta(hours=25), report=events.reporter, every=again
            ),
            Compaction(table=pipe.sink, file_size=size, report=events.reporter, every=again),
            SnapshotExpiry(table=pipe.sink, keep=KEEP, readers=(), report=events.reporter, every=again),
            OrphanFileRemoval(
                table=pipe.sink, older_than=timedelta(hours=25), report=events.reporter, every=again
            ),
        ),
        events.reporter,
        first=timedelta(0),
    )


def behind(spark: SparkSession, pipe: Pipeline) -> int:
    """States of the landing table that the derived query has yet to read."""
    offset, *_ = Checkpoint(str(pipe.checkpoint)).committed_source_offsets(spark) or (None,)
    at = None if offset is None else int(offset["snapshot_id"])
    seen = spark.table(f"{pipe.landing}.snapshots").orderBy("committed_at").select("snapshot_id").collect()
    order = [row["snapshot_id"] for row in seen]
    assert at in order, "the state that the reader has read last is gone"
    return len(order) - 1 - order.index(at)


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.maintenance_under_load",
        description="Upkeep of tables while they are written and read.",
    )
    reading.add_argument("--minutes", type=float, default=10.0, help="of load")
    return reading


def main() -> int:
    """Run for a while, compare, print."""
    minutes = parser().parse_args().minutes
    shutil.rmtree(HOME, ignore_errors=True)
    table_maintenance.FEWEST_SNAPSHOTS = 5  # a direct query's need; here is none
    files = [*jars.jar_files("sandbox"), *jars.jar_files("kafka-client")]
    with open_spark_session.running_spark_session(files, warehouse=HOME / "lake") as spark:
        return kept_up(spark, minutes)


def kept_up(spark: SparkSession, minutes: float) -> int:
    """Land, keep up and read for a while, and compare."""
    pipe = Pipeline(spark, lambda name: Table("lake", "tests", name), HOME / "reader")
    events = Events()
    write_starts_and_list_expired_tables(
        spark,
        derive.stream_landing_table(spark, pipe.landing),
        Checkpoint(str(pipe.checkpoint)),
        "derive-flights",
    )
    writer, housekeeping = Writer(pipe), chores(spark, pipe, events)
    writer.land()
    pipe.derive()
    begun = time.monotonic()
    housekeeping.start()
    lags: list[int] = []
    with BackgroundThread(writer.land_on, "writer") as landing:
        while (left := begun + minutes * 60 - time.monotonic()) > 0:
            time.sleep(min(left, BEHIND_SECONDS))
            landing.raise_error_of_work()
            lags.append(behind(spark, pipe))
            pipe.derive()
    time.sleep(60.0)  # chores go on over what is complete
    housekeeping.stop()
    pipe.derive()
    sent = writer.batches * ROWS
    landed = Counter(row["_id"] for row in spark.table(str(pipe.landing)).select("_id").collect())
    derived = Counter(row["flight"] for row in pipe.written().select("flight").collect())
    tables = (
        Difference.of("landed", Counter(f"flights-topic/0/{n}" for n in range(sent)), landed),
        Difference.of("derived", Counter(n for n in range(sent) if n % 3), derived),
    )
    told = Counter(event["event"] for event in events.all())

    def files(event: str, figure: str = "files") -> int:
        return sum(each[figure] for each in events.all() if each["event"] == event)

    stayed = [file for file in writer.laid if file.exists()]
    sys.stdout.write(
        f"{minutes:g} minutes: {writer.batches} batches of {ROWS} rows, {len(lags)} readings; "
        f"{files('compacted', 'files_before')} files merged into {files('compacted', 'files_after')}, "
        f"{files('snapshots_expired')} files deleted; {'; '.join(f'{each.what}: {each}' for each in tables)}\n"
    )
    for event in events.all():
        if event["event"] == "chore_failed":
            sys.stdout.write(f"{event['chore']}: {event['error'][:500]}\n")
    sys.stdout.write(
        f"{sent:,} rows landed beside {told['compacted']} compactions and {told['snapshots_expired']} expiries, "
        f"which were held {told['expiry_held']} times for a reader up to {max(lags, default=0)} states behind: "
        f"{Difference.total(tables)}, {len(writer.laid) - len(stayed)} of {len(writer.laid)} laid files removed, "
        f"{told['chore_failed']} chores failed\n"
    )
    busy = (
        told["compacted"] and told["snapshots_expired"] and told["expiry_held"] and files("orphans_removed")
    )
    exact = all(each.exact for each in tables)
    return int(not exact or not busy or bool(stayed) or bool(told["chore_failed"]))


if __name__ == "__main__":
    raise SystemExit(main())
