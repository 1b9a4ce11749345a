"""Growth cases of sources and landing tables: batches of equal size on tables and sources of different sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar
from unittest import mock

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.commits.commit_batch_once import BATCH, NOTHING_LATER, RUN
from millrace.etl.formats.decoding import decoder_per_topic
from millrace.etl.queries.query_and_repair_setup import make_enrich_then_transform
from millrace.etl.record import envelope
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.sources.kinesis import connector_stream as kinesis_source
from tests.performance.growth_session import PER_FILE, Bench, Built, Step, kafka, kinesis, now
from tests.performance.tables_of_any_size import (
    SEQUENCE_DIGITS,
    SEQUENCES,
    Numbered,
    alike,
    arrived,
    listed,
    write,
)

PER_SECOND = 1_000.0
PARTITIONS = 10
AHEAD = 10**9
"""Offsets by which one partition of a topic is ahead of another: none ever ends where another does."""

SETTLED = timedelta(minutes=20)
"""What lies in a table when a query continues was landed so long ago."""

Next = Callable[[], Step]


@dataclass(frozen=True)
class Case(ABC):
    """One thing that grows.

    Attributes
    ----------
    sizes
        From the smallest, in ``unit``.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    sizes: ClassVar[tuple[int, ...]]
    replayed: ClassVar[bool] = False
    """Whether the table has every row of a batch already."""
    a_task_each: ClassVar[bool] = False
    """Whether the source has a task for each of what grows: then it may cost as much as such tasks do."""
    beside: ClassVar[str] = "a plain append of the same rows"
    """What the same batch is written with by hand."""

    bench: Bench
    size: int

    @classmethod
    def measured(cls, largest: int | None) -> list[int]:
        """Sizes up to a largest one, and the smallest in any case."""
        return [size for size in cls.sizes if largest is None or size <= max(largest, cls.sizes[0])]

    @property
    def most(self) -> int:
        """The largest size that is measured."""
        return self.measured(self.bench.largest)[-1]

    @property
    def label(self) -> str:
        """A name for tables and queries of this size."""
        return f"{type(self).name.replace(' ', '_').replace(',', '')}_{self.size}"

    @abstractmethod
    def prepare(self) -> None:
        """Make the table and the query of this size."""

    @abstractmethod
    def batch(self) -> Step:
        """Make the next batch."""


@dataclass(frozen=True)
class Numbering(Case):
    """Batches by number; the checkpoint has entries before the first."""

    count: list[int] = field(default_factory=lambda: [2])
    built: list[Built] = field(default_factory=list)

    def own(self) -> dict[str, str]:
        """What the query's commits bear: the table holds its earlier batches, and nobody else's rows."""
        last = Checkpoint(str(self.bench.home / self.label)).batch_id(self.bench.spark, self.count[0])
        assert last is not None
        return {RUN: last.run, BATCH: str(last.number), NOTHING_LATER: "true"}

    def turn(self) -> int:
        self.count[0] += 1
        return self.count[0]

    @property
    def query(self) -> Built:
        return self.built[-1]

    def old(self, count: int, ahead: int = 0) -> DataFrame:
        """Records of two hours ago, as in files that were compacted: each holds all partitions.

        Their numbers begin at none, those of batches are far above.
        """
        since = now() - timedelta(hours=2)
        records = Numbered(0, count, since, 1e6, partitions=PARTITIONS, ahead=ahead)
        rows = records.good(self.bench.spark, max(1, count // PER_FILE))
        return rows.withColumn("_written_at", F.col("_landed_at"))

    def land(self, source: Mapping[str, Any]) -> Mapping[str, Any]:
        read = {"kind": "land", "name": self.label, "source": source, "table": f"bench.{self.label}"}
        return {**read, **self.bench.reading_options, "repartition": None}

    def decoded(self, rows: DataFrame) -> DataFrame:
        decoder = decoder_per_topic.query_decoder(self.bench.spark, self.query.settings.routes)
        return decoder.decode(envelope.with_hash_and_landing_time(rows))

    def composed(self, rows: DataFrame) -> DataFrame:
        run = JobRun(self.bench.spark, self.query.job, {}, EventReporter("growth", mock.MagicMock()))
        return make_enrich_then_transform(run, self.query.settings.name, self.query.end)(rows)


@dataclass(frozen=True)
class _Kinesis(Numbering):
    """A running land query on a stream whose shards all had records in the batch before."""

    def prepare(self) -> None:
        known = mock.patch.object(
            kinesis_source,
            "make_oldest_record_finder",
            return_value=lambda shards: dict.fromkeys(shards, "0"),
        )
        with known:  # the query asks no server where its shards begin
            self.built.append(self.bench.build(self.land(kinesis(self.bench.rows))))
        self.fill(now() - SETTLED)
        # The last batch of an earlier run, with whose last records the checkpoint continues.
        write(
            self.bench.spark, self.query.table, self.records(self.count[0] - 1, now()).good(self.bench.spark)
        )
        self.entry(self.count[0] - 1, {"iteratorType": "TRIM_HORIZON", "iteratorPosition": ""})
        self.entry(self.count[0])

    def fill(self, until: datetime) -> None:
        """Put what grows into the table."""

    @property
    def shards(self) -> int:
        return 1

    def records(self, batch: int, since: datetime) -> Numbered:
        return Numbered(batch * self.bench.rows, self.bench.rows, since, PER_SECOND)

    def rows(self, batch: int) -> DataFrame:
        since = now() - timedelta(seconds=self.bench.rows / PER_SECOND)
        return self.records(batch, since).envelope(self.bench.spark)

    def entry(self, batch: int, position: Mapping[str, str] | None = None) -> None:
        """Each shard continues after a record of the batch before."""
        last = batch * self.bench.rows - 1
        numbers = [str(last - shard) for shard in range(self.shards)]
        after = {
            f"shardId-{shard:012}": position
            or {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": _sequence(number)}
            for shard, number in enumerate(numbers)
        }
        self.bench.log(self.label, batch, {"metadata": {}, **after})

    def batch(self) -> Step:
        number = self.count[0]
        rows = self.rows(number)
        step = self.bench.step(self.query, rows, number, self.decoded)
        self.entry(number)
        self.turn()
        return step


def _sequence(number: str) -> str:
    return (SEQUENCES * 2)[: SEQUENCE_DIGITS - len(number)] + number


@dataclass(frozen=True)
class LandingRows(_Kinesis):
    name = "landing rows"
    unit = "rows of the landing table"
    sizes = (10**6, 10**7, 10**8)

    def fill(self, until: datetime) -> None:
        files = arrived(self.size, PER_FILE, until, PER_SECOND, "events")
        listed(self.bench.spark, self.query.table, files, "_arrived_at")


@dataclass(frozen=True)
class LandingFiles(_Kinesis):
    name = "landing files"
    unit = "files of the landing table"
    sizes = (10**2, 10**3, 10**4, 10**5)

    def fill(self, until: datetime) -> None:
        files = alike(self.size, 10**8 // self.size, until, "events")
        listed(self.bench.spark, self.query.table, files, "_arrived_at")


@dataclass(frozen=True)
class Shards(_Kinesis):
    name = "shards"
    unit = "shards of the stream"
    a_task_each = True
    sizes = (1, 10, 100, 1_000)

    @property
    def shards(self) -> int:
        return self.size


LAG_PER_SECOND = 20.0
LATE = 100


@dataclass(frozen=True)
class Lag(_Kinesis):
    name = "lag of a shard"
    unit = "hours by which one shard is behind, 20 rows of the table a second"
    sizes = (0, 1, 4, 12)

    def fill(self, until: datetime) -> None:
        hours = max(self.sizes)

        def make(count: int) -> DataFrame:
            rows = Numbered(10**9, count, until - timedelta(hours=hours), LAG_PER_SECOND)
            return rows.good(self.bench.spark, 4 * hours)

        count = int(hours * 3600 * LAG_PER_SECOND)
        self.bench.fill(self.query.table, "lagging", count, count, make)

    def rows(self, batch: int) -> DataFrame:
        young = (
            super()
            .rows(batch)
            .where("cast(get_json_object(cast(payload AS string), '$.n') AS bigint) % 100 > 0")
        )
        late = Numbered(
            10**10 + batch * LATE, LATE, now() - timedelta(hours=self.size, seconds=10), PER_SECOND
        )
        return young.unionByName(late.envelope(self.bench.spark, 1))


@dataclass(frozen=True)
class Topic(Numbering):
    """Batches of a topic."""

    ahead: int = 0

    @property
    def partitions(self) -> int:
        return PARTITIONS

    def records(self, batch: int) -> Numbered:
        count = max(1, self.bench.rows // self.partitions) * self.partitions
        first = 10**6 * self.partitions + batch * count
        return Numbered(first, count, now(), 1e6, partitions=self.partitions, ahead=self.ahead)

    def start(self, *queries: Mapping[str, Any]) -> None:
        """Begin another run."""
        self.built.append(self.bench.build(*queries))

    def entry(self, batch: int) -> None:
        self.bench.log(self.label, batch, self.records(batch).ends())

    def prepared(self, *queries: Mapping[str, Any]) -> None:
        self.start(*queries)
        self.entry(self.count[0])


@dataclass(frozen=True)
class PartitionsRunning(Topic):
    name = "partitions, running"
    unit = "partitions of a topic that a land query continues reading"
    a_task_each = True
    sizes = (10, 100, 1_000, 5_000)

    @property
    def partitions(self) -> int:
        return self.size

    def prepare(self) -> None:
        self.prepared(self.land(kafka(rows=self.bench.rows)))
        shape = {"_shard": ("0", "9" * 4), "_position": ("0".zfill(20), "999".zfill(20))}
        files = [
            replace(each, bounds={**each.bounds, **shape})
            for each in alike(100, PER_FILE, now() - SETTLED, "events")
        ]
        listed(self.bench.spark, self.query.table, files, "_arrived_at", self.own())

    def batch(self) -> Step:
        number = self.turn()
        self.entry(number)
        return self.bench.step(
            self.query, self.records(number).envelope(self.bench.spark), number, self.decoded
        )


@dataclass(frozen=True)
class PartitionsRestarted(PartitionsRunning):
    name = "partitions, first batch"
    unit = "partitions of a topic, the first batch of a run of a land query"
    sizes = (10, 200, 600, 1_000, 5_000)

    def batch(self) -> Step:
        self.start(self.land(kafka(rows=self.bench.rows)))
        return super().batch()


@dataclass(frozen=True)
class Compacted(Topic):
    name = "compacted, first batch"
    unit = "rows of a landing table whose files hold all partitions, the first batch of a run"
    sizes = (10**5, 10**6, 3 * 10**6)
    ahead: int = AHEAD

    def prepare(self) -> None:
        self.prepared(self.land(kafka(rows=self.bench.rows)))
        self.bench.fill(self.query.table, "compacted", self.size, self.most, lambda n: self.old(n, AHEAD))

    def batch(self) -> Step:
        self.start(self.land(kafka(rows=self.bench.rows)))
        number = self.turn()
        self.entry(number)
        return self.bench.step(
            self.query, self.records(number).envelope(self.bench.spark), number, self.decoded
        )


@dataclass(frozen=True)
class Routed(Topic):
    name = "compacted, routed"
    unit = "rows of a landing table with two routes whose files hold all partitions, every batch"
    sizes = (10**5, 10**6, 3 * 10**6)
    ahead: int = AHEAD

    def prepare(self) -> None:
        sources = [kafka(name, rows=self.bench.rows) for name in ("events", "others")]
        routes = [
            {
                "name": s["name"],
                "changes_of": None,
                "origin": s["topic"],
                "source": s,
                **self.bench.reading_options,
            }
            for s in sources
        ]
        query = {
            "kind": "route",
            "name": self.label,
            "routes": routes,
            "table": f"bench.{self.label}",
        }
        self.prepared({**query, "repartition": None})
        self.bench.fill(
            self.query.table, "routed", self.size, self.most, lambda n: self.old(n, AHEAD).drop("n")
        )

    def entry(self, batch: int) -> None:
        ends = self.records(batch).ends()
        self.bench.log(self.label, batch, {**ends, "others": {"0": 5}})

    def batch(self) -> Step:
        number = self.turn()
        self.entry(number)
        return self.bench.step(
            self.query, self.records(number).envelope(self.bench.spark), number, self.decoded
        )
