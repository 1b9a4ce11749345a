"""Test stage of a query with several sources: topics, a pattern of topics and a stream.

One job has a routed query on all of them, land queries of their own on the stream and on a topic, and a
derive query on one route. Every table is held against the same ledger.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.records.ledger import Ledger, LedgerComparison, compare_tables_with_ledger, row_count
from millrace.sandbox.records.producer import KafkaProducer, KinesisProducer, RecordProducer
from tests.faults import small_job_documents
from tests.faults.record_sender import Feed
from tests.faults.round_setup import Stage
from tests.launch_document_defaults import with_route

AIR, SEA, CLICKS, NEW = "air", "sea", "web.clicks", "web.new"
PARTITIONS = 2
CHUNK = 100


@dataclass
class Spread:
    """Hands records to all sources in turn; what goes to the topic that no route names is spoiled by that.

    Parameters
    ----------
    producers
        By topic, and one for the stream; they share the ledger.
    """

    producers: dict[str, RecordProducer]
    ledger: Ledger

    def __post_init__(self) -> None:
        for producer in self.producers.values():
            producer.ledger = self.ledger
        self._turn = cycle(self.producers)

    def send(self, events: Iterable[RecordToSend], *, sent: Callable[[int], None]) -> None:
        remaining = iter(events)
        while chunk := list(islice(remaining, CHUNK)):
            name = next(self._turn)
            if name == NEW:
                chunk = [dataclasses.replace(event, dirt=event.dirt or "broken") for event in chunk]
            self.producers[name].send(chunk, sent=sent)


@dataclass
class RoutedStage(Stage):
    """Starts a broker of its own beside the stream, and stops it at the end."""

    def create_stream(self, shards: int) -> None:
        super().create_stream(shards)
        broker = self.ending.enter_context(kafka_broker.running_broker())
        self.bootstrap = broker.bootstrap
        producers = dict[str, RecordProducer]()
        for topic in (AIR, SEA, CLICKS, NEW):
            broker.create_topic(topic, PARTITIONS)
            producers[topic] = KafkaProducer(broker.bootstrap, topic)
        producers[self.stream] = KinesisProducer(self.client, self.stream)
        self.ending.callback(producers.clear)  # while the broker is there to say goodbye to
        self.feed = Feed(Spread(producers, Ledger()), self.choose)

    def _job_settings(self, schema: Path) -> dict[str, Any]:
        job = super()._job_settings(schema)
        [written] = job["queries"]
        land = {key: value for key, value in written.items() if key != "routes"} | written["routes"][0]
        land = {key: value for key, value in land.items() if key not in ("origin", "changes_of")} | {
            "name": written["name"]
        }
        web = small_job_documents.topic(r"web\..*", 5_000, label="web", pattern=True)
        air, sea = (small_job_documents.topic(name, 5_000, label=name) for name in (AIR, SEA))
        routes = {
            "air": (AIR, air),
            "sea": (SEA, sea),
            "clicks": (CLICKS, web),
            "shop": (self.stream, land["source"]),
        }
        payload = {key: land[key] for key in ("format", "schema", "decompress_up_to", "redact", "rules")}
        shared = {key: land[key] for key in ("trigger_seconds", "repartition", "table")}
        legs = [
            {"name": n, "changes_of": None, "origin": o, "source": s, **payload}
            for n, (o, s) in routes.items()
        ]
        derived = {"kind": "derive", "name": "derive-air", "source_table": land["table"], "route": "air"}
        derived |= {"enrich": [], "transform": None, "state": None, "dead_letters": None, "latest_by": []}
        derived |= {"sink": {"kind": "iceberg", "table": "faults.air_derived"}}
        derived |= {"trigger_seconds": self.trigger_seconds}
        job["queries"] = [
            with_route(each)
            for each in (
                {"kind": "route", "name": "land-all", "routes": legs, **shared},
                land | {"name": "land-shop", "table": "faults.shop"},
                land | {"name": "land-air", "table": "faults.air", "source": air},
                derived,
            )
        ]
        return job

    def of(self, *origins: str) -> Ledger:
        """What was sent to some of the topics and the stream."""
        every = self.feed.producer.ledger
        kept = [n for n, name in enumerate(every.ids) if name.split("/")[0] in origins]
        columns = (every.ids, every.hashes, every.dirt, every.payloads)
        return Ledger(*([column[n] for n in kept] for column in columns))  # type: ignore[arg-type]  # in their order

    def _rows(self, table: str, *columns: str) -> pa.Table:
        return self.catalog.load_table(f"faults.{table}").scan(selected_fields=columns).to_arrow()

    def accounts(self) -> Iterator[tuple[str, LedgerComparison]]:
        """Every table against its part of the ledger."""
        for table, origins in (("shop", (self.stream,)), ("air", (AIR,))):
            rows = self._rows(table, "_id", "_hash", "_error", "_bytes")
            yield (
                table,
                compare_tables_with_ledger(
                    self.of(*origins), rows, rows.filter(pc.is_null(rows["_error"]))["_id"]
                ),
            )
        rows = self._rows("landed", "_id", "_hash", "_error", "_bytes", "_route")
        air = self.of(AIR)
        mine = rows.filter(pc.equal(rows["_route"], "air"))
        yield "route air", compare_tables_with_ledger(air, mine, self._rows("air_derived", "_id")["_id"])

    def until_complete(self) -> None:
        """Wait for all tables: the queries are independent, and each has its own pace."""
        super().until_complete()
        wanted = {"shop": len(self.of(self.stream)), "air": len(self.of(AIR))}
        wanted["air_derived"] = len(self.of(AIR)) - self.of(AIR).dirty_count
        for table, count in wanted.items():
            self.until(lambda t=table, c=count: self._count(t) >= c, 120, f"{count} rows in {table}")  # type: ignore[misc]  # of this turn

    def _count(self, table: str) -> int:
        return row_count(self.catalog, f"faults.{table}")

    def account(self) -> LedgerComparison:
        """Of the routed table; the others are counted in where they are not exact."""
        whole = super().account()
        if not whole.exact:
            return whole
        for name, result in self.accounts():
            if not result.exact or result.produced == 0:
                raise SandboxError(f"{name} does not have its {result.produced} records once: {result}")
        stages = self._rows("landed", "_id", "_stage")
        unknown = stages.filter(pc.equal(stages["_stage"], "route"))["_id"].to_pylist()
        if sorted(unknown) != sorted(self.of(NEW).ids):
            raise SandboxError(f"{len(unknown)} letters without a route, {len(self.of(NEW))} were sent")
        return whole
