"""The saved checkpoints and tables of a release, from which later versions must continue.

Derive queries go on from a landing table; beside them a land query and a direct one go on from a topic, and others with
routes from two. The topics themselves are not kept: they are sent again, record by record to the same offsets, as :mod:`tests.faults.record_sender` draws them by number.

Tables name their files by whole paths, so they are made, packed and unpacked in one place.
"""

from __future__ import annotations

import fcntl
import shutil
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from millrace.etl.job import build_queries
from millrace.etl.launch.settings import JobSettings, parse_job_settings
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.ready_query import ReadyQuery
from millrace.etl.record.tables import Table
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults.in_process_job import Job
from tests.golden.routed_jobs import KINDS as ROUTED
from tests.golden.routed_jobs import RoutedJob
from tests.launch_document_defaults import with_route
from tests.spark.source_batches import Events, drained, frame, good, kafka_rows, lander

ARCHIVES = Path(__file__).parent
PLACE = Path("/tmp/millrace-golden")  # noqa: S108 - see above; whoever works in it holds its lock
CATALOG = "golden"
LANDED, ROWS, TOTALS = (Table(CATALOG, "release", name) for name in ("landed", "rows", "totals"))
FIRST, MORE = 40, 70
"""Records that the release has landed and derived; those that come after it, up to here."""


TOPIC_JOBS = ("land", "direct")
KINDS = {
    "derived": ("checkpoints", "warehouse/release"),
    "topics": ("topics", "warehouse/in_process"),
    "routes": ("routes", "warehouse/in_process_routes"),
}
"""What is kept apart: each by what it goes on from, and where that lies."""


def even(flights: DataFrame) -> DataFrame:
    """Leave out the odd ones."""
    return flights.where("flight % 2 = 0").select(*CARRIED, "flight", "delay")


def by_minute(flights: DataFrame) -> DataFrame:
    """Count flights in each minute."""
    grouped = flights.groupBy(F.window("_arrived_at", "1 minute"))
    counted = grouped.agg(F.count(F.lit(1)).alias("flights"), F.sum("delay").alias("delay"))
    return counted.select(F.col("window.start").alias("minute"), "flights", "delay")


@contextmanager
def place() -> Iterator[Path]:
    """Hold the place, empty, and clear it afterwards."""
    with PLACE.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        shutil.rmtree(PLACE, ignore_errors=True)
        PLACE.mkdir()
        try:
            yield PLACE
        finally:
            shutil.rmtree(PLACE, ignore_errors=True)


def archive(kind: str, version: str) -> Path:
    """Where a release's files of one kind of :data:`KINDS` are kept."""
    return ARCHIVES / f"{version}-{kind}.tar.xz"


def pack(kind: str, version: str) -> Path:
    """Pack what is there of a kind, without the checksums of local files, and without ids of topics, which are made anew."""
    kept = archive(kind, version)
    with tarfile.open(kept, "w:xz") as tar:
        for path in sorted(each for part in KINDS[kind] for each in (PLACE / part).rglob("*")):
            if path.is_file() and not path.name.endswith((".crc", ".sources.json")):
                tar.add(path, path.relative_to(PLACE).as_posix())
    return kept


def unpack(kept: Path) -> None:
    """Unpack what was packed."""
    with tarfile.open(kept) as tar:
        tar.extractall(PLACE, filter="data")


def open_catalog(spark: SparkSession) -> None:
    """Give a session the catalog of the release's tables."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    for key, value in {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "hadoop",
        f"{prefix}.warehouse": str(PLACE / "warehouse"),
        f"{prefix}.cache-enabled": "false",
    }.items():
        spark.conf.set(key, value)


def land(spark: SparkSession, first: int, last: int, batch: int) -> None:
    """Land records of the topic, from one position to another."""
    rows = kafka_rows(0, first, [good(n) for n in range(first, last)])
    lander(spark, LANDED, Events())(frame(spark, rows), batch)


def settings() -> JobSettings:
    """The job: a query that appends rows, and one that keeps sums as its state."""
    common: dict[str, Any] = {
        "kind": "derive",
        "source_table": "release.landed",
        "enrich": [],
        "route": None,
        "latest_by": [],
    }
    common |= {"trigger_seconds": 0, "dead_letters": None}
    mark = {"time": "_arrived_at", "delay_seconds": 60, "ahead_seconds": 3600}
    state = {"watermark": mark, "distinct": [], "key": ["minute"], "join": None, "output_mode": "update"}
    queries = [
        {**common, "name": "rows", "transform": f"{__name__}:even", "state": None, "sink": _sink("rows")},
        {
            **common,
            "name": "totals",
            "transform": f"{__name__}:by_minute",
            "state": state,
            "sink": _sink("totals"),
        },
    ]
    job = {"version": 1, "environment": "golden", "job": "release", "engine": "sandbox", "catalog": CATALOG}
    job |= {"checkpoints": str(PLACE / "checkpoints"), "batch_retries": 0, "dead_letters_kept_seconds": None}
    job |= {"erase_share": 0.1}
    return parse_job_settings(
        {
            **job,
            "upkeep": None,
            "run_every_seconds": None,
            "connections": {},
            "queries": [with_route(query) for query in queries],
        }
    )


def derive(spark: SparkSession, events: Events) -> None:
    """Run the queries over what is there, then end."""
    for query in build_queries.build_queries(JobRun(spark, settings(), {}, events.reporter)):
        _all_available(query)


def topic_jobs(spark: SparkSession, broker: KafkaBroker) -> tuple[Job, ...]:
    """The jobs that read a topic, with the records in it that the release has read, and with nothing landed."""
    home = PLACE / "topics"
    jobs = tuple(
        Job(spark, broker, home, number, kind, catalog=CATALOG) for number, kind in enumerate(TOPIC_JOBS)
    )
    for job in jobs:
        job.send()
    return jobs


def routed_jobs(spark: SparkSession, broker: KafkaBroker) -> tuple[Job, ...]:
    """The jobs of two routes, as :func:`topic_jobs`."""
    home = PLACE / "routes"
    jobs = tuple(RoutedJob(spark, broker, home, number, kind, CATALOG) for number, kind in enumerate(ROUTED))
    for job in jobs:
        job.send()
    return jobs


def wrong(spark: SparkSession) -> list[Row]:
    """Rows that are in a table and not in what is computed at once from all that landed, or the other way round."""
    landed = spark.table(str(LANDED)).where("_error IS NULL")
    rows: list[Row] = []
    for made, wanted in (
        (
            spark.table(str(ROWS)).select("_id", "flight", "delay"),
            even(landed).select("_id", "flight", "delay"),
        ),
        (spark.table(str(TOTALS)).select("minute", "flights", "delay"), by_minute(landed)),
    ):
        rows += made.exceptAll(wanted).collect() + wanted.exceptAll(made).collect()
    return rows


def _sink(table: str) -> dict[str, str]:
    return {"kind": "iceberg", "table": f"release.{table}"}


def _all_available(query: ReadyQuery) -> None:
    drained(query.rows, query.handle, query.checkpoint, query.output_mode)
