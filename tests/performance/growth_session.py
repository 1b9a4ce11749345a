"""A session with the core's queries, built from job settings as on any engine, and a checkpoint written for them."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from millrace.etl.job import build_queries
from millrace.etl.job.checkpoint_check import HandlerWithFirstBatchAction
from millrace.etl.launch import settings
from millrace.etl.launch.settings import JobSettings
from millrace.etl.record import tables
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.ready_query import ReadyQuery
from millrace.etl.record.tables import Table
from tests.launch_document_defaults import with_route
from tests.performance.tables_of_any_size import borrowed, opaque, write

DDL = "n BIGINT"

PER_FILE = 100_000
"""Rows of a file: a day of batches, compacted to ten megabytes or so."""


@dataclass(frozen=True)
class Built:
    """A query with the settings that it was built from."""

    query: ReadyQuery
    job: JobSettings

    @property
    def settings(self) -> Any:
        """Its own section."""
        return self.job.queries[-1]

    @property
    def table(self) -> Table:
        """Where its good records go."""
        if isinstance(self.settings, settings.LandSettings):
            return Table.from_name(self.job.catalog, self.settings.table)
        return Table.from_name(self.job.catalog, self.end.sink.table)

    @property
    def end(self) -> Any:
        """What has the transform and the sink: the section of a derive query, the one route of a direct one."""
        return self.settings.routes[0] if hasattr(self.settings, "routes") else self.settings


@dataclass(frozen=True)
class Bench:
    """What every case has.

    Attributes
    ----------
    home
        An empty folder for checkpoints.
    rows
        Of a batch.
    largest
        Sizes above it are left out; None for all.
    """

    spark: SparkSession
    home: Path
    rows: int
    largest: int | None = None

    def build(self, *queries: Mapping[str, Any]) -> Built:
        """Build queries, their tables with them; the last one is given back.

        Parameters
        ----------
        *queries
            Their settings, without those that are the same for all.
        """
        ddl = self.home / "events.ddl"
        ddl.write_text(DDL)
        job = settings.parse_job_settings(
            {
                "version": 1,
                "environment": "bench",
                "job": "growth",
                "engine": "sandbox",
                "catalog": "lake",
                "checkpoints": str(self.home),
                "batch_retries": 0,
                "dead_letters_kept_seconds": None,
                "erase_share": 0.1,
                "upkeep": None,
                "run_every_seconds": None,
                "queries": [with_route({"trigger_seconds": 0, **query}) for query in queries],
                "connections": {
                    "main": {
                        "cluster": None,
                        "authentication": "none",
                        "bootstrap_servers": "127.0.0.1:9",  # a stream that is not started asks nobody
                    }
                },
            }
        )
        query = build_queries.build_queries(
            JobRun(self.spark, job, {}, EventReporter("growth", io.StringIO()))
        )[-1]
        # Before its first batch a query compares its topics with the brokers', of which there are none here.
        while isinstance(query.handle, HandlerWithFirstBatchAction):
            query = replace(query, handle=query.handle.handle)
        return Built(query, job)

    @property
    def reading_options(self) -> dict[str, Any]:
        """Settings of a query that reads a source."""
        return {
            "format": {"kind": "json"},
            "schema": str(self.home / "events.ddl"),
            "decompress_up_to": None,
            "redact": [],
            "rules": [],
        }

    def log(self, name: str, batch: int, *offsets: Any) -> None:
        """Write an entry of Spark's offset log, and that the batch before was committed."""
        home = self.home / name
        for folder in ("offsets", "commits"):
            (home / folder).mkdir(parents=True, exist_ok=True)
        if not (home / "metadata").exists():
            (home / "metadata").write_text(json.dumps({"id": str(uuid.uuid4())}))
        lines = ["v1", '{"batchWatermarkMs":0}', *(json.dumps(offset) for offset in offsets)]
        (home / "offsets" / str(batch)).write_text("\n".join(lines))
        if batch:
            (home / "commits" / str(batch - 1)).write_text("v1\n{}")

    def beside(self, table: Table) -> Table:
        """A table of the same shape, for plain appends."""
        plain = Table(table.catalog, table.database, f"{table.name}_plain")
        self.like(plain, table)
        return plain

    def fill(
        self,
        table: Table,
        donor: str,
        rows: int,
        most: int,
        make: Callable[[int], DataFrame],
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Fill a table with real rows that tables of other sizes have too.

        Parameters
        ----------
        table
            Empty.
        donor
            Name of the table that all sizes but small ones take files of; made where it is not there.
        rows, most
            How many of the newest; of the largest size.
        make
            So many of the newest rows, in as many tasks as there shall be files.
        properties
            Of the commit, of a table that takes files of the donor.
        """
        if rows < PER_FILE:
            write(self.spark, table, make(rows))
            return
        lender = Table(table.catalog, table.database, donor)
        if not lender.exists(self.spark):
            self.like(lender, table)
            write(self.spark, lender, make(most))
        borrowed(self.spark, table, lender, rows, properties or {})

    def like(self, made: Table, table: Table) -> None:
        """Make a table of the shape of another."""
        schema = self.spark.table(str(table)).schema
        times = [c for c in ("_arrived_at", "minute") if c in schema.fieldNames()]
        tables.create_or_evolve_table(self.spark, made, schema, time=times[0] if times else None)

    def step(
        self, built: Built, rows: DataFrame, batch: int, plain: Callable[[DataFrame], DataFrame]
    ) -> Step:
        """One batch, to be written by the core and by hand.

        Parameters
        ----------
        built
            The query.
        rows
            Of the batch.
        batch
            Its number in the offset log.
        plain
            What the core makes of a batch before its look-up.
        """
        handed, beside = opaque(self.spark, rows), self.beside(built.table)

        def by_hand() -> None:
            plain(handed).writeTo(str(beside)).append()

        return Step(lambda: built.query.handle(handed, batch), by_hand, partial(self.added, built.table))

    def added(self, table: Table) -> int:
        """Rows that the newest commit of a table has added."""
        newest = table.load_java_table(self.spark).currentSnapshot()
        return int(newest.summary().get("added-records") or 0)


@dataclass(frozen=True)
class Step:
    """One batch, written by the core and by hand.

    Attributes
    ----------
    added
        Rows that the newest commit of the core's table has added.
    """

    ours: Callable[[], object]
    plain: Callable[[], object]
    added: Callable[[], int]


def kafka(name: str = "events", *, rows: int) -> dict[str, Any]:
    """A topic of that name, as a query's settings have it."""
    return {
        "kind": "kafka",
        "name": name,
        "topic": name,
        "connection": "main",
        "start": "earliest",
        "records_per_batch": rows,
        "retention_seconds": 86_400,
        "reading": None,
    }


def kinesis(rows: int) -> dict[str, Any]:
    """A stream, as a query's settings have it."""
    return {
        "kind": "kinesis",
        "name": "events",
        "stream": "events",
        "region": "us-east-1",
        "start": "earliest",
        "records_per_shard": rows,
        "fetch_seconds": 1.0,
        "retention_seconds": 86_400,
        "consumer": None,
        "role": None,
        "records_per_batch": None,
    }


def now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)
