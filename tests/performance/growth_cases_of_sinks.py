"""Growth cases of sinks of derive and direct queries, appended and keyed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.etl.queries.transform import DEAD_LETTER
from millrace.etl.record import tables
from millrace.etl.record.tables import Table
from millrace.etl.sinks.base import DELETED, ORDER, raise_on_refused_rows
from millrace.etl.sinks.delivery.keyed_rows import result_identity
from millrace.etl.sinks.iceberg_keyed import KeyedIcebergSink
from tests.performance import growth_transforms
from tests.performance.growth_cases_of_sources import PARTITIONS, PER_SECOND, SETTLED, Numbering, Topic
from tests.performance.growth_session import PER_FILE, Step, kafka, now
from tests.performance.tables_of_any_size import Numbered, arrived, listed, opaque, write


@dataclass(frozen=True)
class _Direct(Topic):
    def direct(self) -> Mapping[str, Any]:
        query = {"kind": "direct", "name": self.label, "source": kafka(rows=self.bench.rows), "enrich": []}
        query |= {"transform": None, "dead_letters": f"bench.{self.label}_letters", "repartition": None}
        return {
            **query,
            **self.bench.reading_options,
            "sink": {"kind": "iceberg", "table": f"bench.{self.label}"},
        }

    def good(self, rows: DataFrame) -> DataFrame:
        return self.composed(self.decoded(rows).where("_error IS NULL").drop(*DEAD_LETTER))

    def batch(self) -> Step:
        number = self.turn()
        self.entry(number)
        return self.bench.step(self.query, self.records(number).envelope(self.bench.spark), number, self.good)


@dataclass(frozen=True)
class DirectRows(_Direct):
    name = "direct sink rows"
    unit = "rows of the sink of a running direct query"
    sizes = (10**4, 10**5, 10**6, 10**7)

    def prepare(self) -> None:
        self.prepared(self.direct())
        files = arrived(self.size, PER_FILE, now() - SETTLED, PER_SECOND, "events")
        listed(self.bench.spark, self.query.table, files, "_arrived_at", self.own())
        # Behind the files: a commit that bears the run's name and not its process is taken for a rival's.
        super().batch().ours()


@dataclass(frozen=True)
class DirectRestarted(DirectRows):
    name = "direct, first batch"
    unit = "rows of the sink, the first batch of a run of a direct query"

    def batch(self) -> Step:
        self.start(self.direct())
        return super().batch()


@dataclass(frozen=True)
class DirectReplayed(_Direct):
    name = "direct, replayed"
    unit = "rows of the sink, a batch that was written and not committed in the checkpoint"
    replayed = True
    sizes = (10**4, 10**5, 10**6, 3 * 10**6)

    def prepare(self) -> None:
        self.prepared(self.direct())
        self.bench.fill(self.query.table, "direct", self.size, self.most, self.old)

    def batch(self) -> Step:
        step = super().batch()
        step.ours()
        self.start(self.direct())
        return self.bench.step(
            self.query, self.records(self.count[0]).envelope(self.bench.spark), self.count[0], self.good
        )


@dataclass(frozen=True)
class _Derive(Numbering):
    def derive(self, **more: Any) -> Mapping[str, Any]:
        query = {
            "kind": "derive",
            "name": self.label,
            "source_table": f"bench.{self.label}_landed",
            "enrich": [],
        }
        query |= {"transform": None, "state": None, "dead_letters": None, "route": None, "latest_by": []}
        return {**query, "sink": {"kind": "iceberg", "table": f"bench.{self.label}"}, **more}

    def prepared(self, **more: Any) -> None:
        """Make a landing table with some states, and the query on it."""
        landing = {**self.land(kafka(rows=self.bench.rows)), "name": f"{self.label}_landing"}
        landing |= {"table": f"bench.{self.label}_landed"}
        self.bench.build(landing)
        self.lands()
        self.built.append(self.bench.build(self.derive(**more)))

    @property
    def landing(self) -> Table:
        return Table("lake", "bench", f"{self.label}_landed")

    def lands(self) -> None:
        """A small commit, between whose like batches begin and end."""
        write(
            self.bench.spark, self.landing, Numbered(0, 1, now(), 1.0, partitions=1).good(self.bench.spark, 1)
        )

    def at(self, *, whole: bool, position: int) -> Mapping[str, Any]:
        newest = self.landing.load_java_table(self.bench.spark).currentSnapshot().snapshotId()
        return {"version": 1, "snapshot_id": newest, "position": position, "scan_all_files": whole}


@dataclass(frozen=True)
class DeriveRows(_Derive):
    name = "derive sink rows"
    unit = "rows of the sink of a running derive query"
    sizes = (10**4, 10**5, 10**6, 10**7)

    def prepare(self) -> None:
        self.prepared()
        files = arrived(self.size, PER_FILE, now() - SETTLED, PER_SECOND, "events")
        listed(self.bench.spark, self.query.table, files, "_arrived_at")
        self.bench.log(self.label, self.count[0], self.at(whole=False, position=1))

    def batch(self) -> Step:
        self.lands()
        number = self.turn()
        records = Numbered(number * self.bench.rows, self.bench.rows, now(), 1e6, partitions=PARTITIONS)
        self.bench.log(self.label, number, self.at(whole=False, position=1))
        return self.bench.step(self.query, records.good(self.bench.spark), number, self.composed)


@dataclass(frozen=True)
class FirstDerive(_Derive):
    name = "first derive of an old table"
    unit = "rows that a new derive query has written, while it reads the table's first state"
    sizes = (250_000, 10**6, 3 * 10**6)

    def prepare(self) -> None:
        self.prepared()
        files = arrived(10**7, PER_FILE, now() - SETTLED, PER_SECOND, "events")
        listed(self.bench.spark, self.landing, files, "_arrived_at")
        self.bench.log(self.label, self.count[0], self.at(whole=True, position=self.count[0]))
        self.bench.fill(self.query.table, "derived", self.size, self.most, self.old, self.own())

    def batch(self) -> Step:
        number = self.turn()
        since = now() - timedelta(hours=1)
        first = 10**9 + number * self.bench.rows  # not those that are there
        records = Numbered(first, self.bench.rows, since, 1e6, partitions=PARTITIONS)
        self.bench.log(self.label, number, self.at(whole=True, position=number))
        return self.bench.step(self.query, records.good(self.bench.spark), number, self.composed)


@dataclass(frozen=True)
class KeyedByTime(_Derive):
    name = "keyed by time"
    unit = "results in a keyed sink whose key has a time, which divides it by day"
    sizes = (10**4, 10**5, 10**6, 10**7)

    key: ClassVar[tuple[str, ...]] = ("minute", "key")
    transform: ClassVar[str] = f"{growth_transforms.__name__}:by_minute"

    def prepare(self) -> None:
        mark = {"time": "_arrived_at", "delay_seconds": 60, "ahead_seconds": 3600}
        state = {
            "watermark": mark,
            "distinct": [],
            "key": list(self.key),
            "join": None,
            "output_mode": "update",
        }
        self.prepared(transform=self.transform, state=state)
        self.bench.fill(self.query.table, "results", self.size, self.most, self.written)
        self.bench.log(self.label, self.count[0], self.at(whole=False, position=1))

    def written(self, count: int) -> DataFrame:
        """The newest results."""
        rows = self.results(max(self.sizes) - count, count, max(1, count // PER_FILE))
        return rows.withColumn("_written_at", F.current_timestamp())

    def results(self, first: int, count: int, tasks: int = 2) -> DataFrame:
        """Of consecutive minutes up to midnight, a thousand keys in each."""
        midnight = int(now().timestamp()) // 86_400 * 86_400
        number, per = F.col("id") + first, growth_transforms.KEYS_PER_MINUTE
        minute = F.timestamp_seconds(midnight - 60 * F.floor((max(self.sizes) - number) / per))
        return self.identified(tasks, count, minute.alias("minute"), (number % per).alias("key"))

    def identified(self, tasks: int, count: int, *key: Any) -> DataFrame:
        rows = self.bench.spark.range(0, count, 1, tasks).select(
            *key, F.lit(1).cast("bigint").alias("records")
        )
        return rows.select(result_identity(rows.schema, self.key).alias("_id"), "*")

    def batch(self) -> Step:
        number = self.turn()
        self.lands()
        self.bench.log(self.label, number, self.at(whole=False, position=1))
        # Half of the results are there, half are new.
        half = self.bench.rows // 2
        first = max(self.sizes) - half + (number - 3) * half
        return self.bench.step(self.query, self.results(first, 2 * half), number, self.composed_result)

    def composed_result(self, rows: DataFrame) -> DataFrame:
        """Enrichment alone: the transform stands before the batch."""
        return rows.withColumn("_written_at", F.current_timestamp())


@dataclass(frozen=True)
class KeyedWithoutTime(KeyedByTime):
    name = "keyed without time"
    unit = "results in a keyed sink whose key has no time: all of it is looked at"
    sizes = (10**4, 10**5, 10**6, 10**7)

    key: ClassVar[tuple[str, ...]] = ("key",)
    transform: ClassVar[str] = f"{growth_transforms.__name__}:by_key"

    def results(self, first: int, count: int, tasks: int = 2) -> DataFrame:
        return self.identified(tasks, count, (F.col("id") + first).alias("key"))


@dataclass(frozen=True)
class LatestBy(_Derive):
    """Last records of keys, half of which are there; no key has a time."""

    name = "latest by key"
    unit = "keys in the sink of latest_by"
    sizes = (10**4, 10**5, 10**6)
    beside = "a MERGE by hand, which keeps no order"

    def prepare(self) -> None:
        self.prepared(transform=f"{growth_transforms.__name__}:last", latest_by=["key"])
        ordered = self.composed(self.records(0, self.size)).drop(DELETED)
        files = ordered.repartitionByRange(max(1, self.size // PER_FILE), "key").persist()
        plain = files.drop(ORDER)
        tables.create_or_evolve_table(self.bench.spark, self.plain, plain.schema, time=None)
        for table, rows in ((self.query.table, files), (self.plain, plain)):
            write(self.bench.spark, table, rows)
        files.unpersist()
        self.bench.log(self.label, self.count[0], self.at(whole=False, position=1))

    @property
    def plain(self) -> Table:
        """The table that is written by hand."""
        return Table("lake", "bench", f"{self.label}_plain")

    def records(self, first: int, count: int) -> DataFrame:
        numbered = Numbered(first, count, now(), 1e6, partitions=PARTITIONS)
        return numbered.good(self.bench.spark, 2).withColumn(DELETED, F.lit(False))

    def next_records(self) -> DataFrame:
        half = self.bench.rows // 2
        return self.records(self.size + (self.turn() - 4) * half, 2 * half)

    def batch(self) -> Step:
        self.lands()
        handed, number = opaque(self.bench.spark, self.next_records()), self.count[0]
        self.bench.log(self.label, number, self.at(whole=False, position=1))
        ours = partial(self.query.query.handle, handed, number)
        return Step(ours, partial(self.by_hand, handed), partial(self.bench.added, self.query.table))

    def by_hand(self, rows: DataFrame) -> None:
        """Replace the row of a key by its record with the highest offset in the batch, whatever the row holds."""
        chosen = F.max_by(F.struct("n", DELETED), "_position").alias("row")
        out = growth_transforms.last(rows).groupBy("key").agg(chosen)
        identity = result_identity(out.schema, ("key",)).alias("_id")
        written = F.current_timestamp().alias("_written_at")
        out.select(identity, "key", "row.*", written).createOrReplaceTempView("by_hand")
        columns = ("_id", "key", "n", "_written_at")
        self.bench.spark.sql(
            f"MERGE INTO {self.plain} t USING by_hand s ON t._id = s._id WHEN MATCHED AND s.{DELETED} THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in columns)} "
            f"WHEN NOT MATCHED AND NOT s.{DELETED} THEN INSERT *"
        )


@dataclass(frozen=True)
class OrderCompared(LatestBy):
    """The sink alone, with rows that are computed before."""

    name = "order compared"
    unit = "keys in a table whose sink compares the order of records"
    beside = "the same sink and rows without an order"

    sinks: list[KeyedIcebergSink] = field(default_factory=list)

    def prepare(self) -> None:
        super().prepare()
        self.sinks.extend(KeyedIcebergSink(each, key=("key",)) for each in (self.query.table, self.plain))

    def batch(self) -> Step:
        rows = self.composed(self.next_records()).localCheckpoint()
        ours, plain = (
            partial(sink.write, each, None, raise_on_refused_rows)
            for sink, each in zip(self.sinks, (rows, rows.drop(ORDER)), strict=True)
        )
        return Step(ours, plain, partial(self.bench.added, self.query.table))
