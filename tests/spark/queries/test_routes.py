"""Routes decode each record by its topic, keep every record, and share one table and identity."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.checkpoints.checkpoint import Checkpoint, source_offset_in_log_entry
from millrace.etl.commits.duplicate_look_up_bounds import DuplicateLookUp
from millrace.etl.formats.decoding.decoder_per_topic import DecodingRoute, RoutingDecoder, rows_of_route
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.formats.text import TextDecoder
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.launch.formats import JsonFormat
from millrace.etl.launch.settings import LandSettings, SourceRouteSettings
from millrace.etl.launch.sources import (
    KafkaReadingOptions,
    KafkaSource,
    KinesisSource,
    group_sources_into_legs,
)
from millrace.etl.queries import land, transform
from millrace.etl.record import batch_accounts, tables
from millrace.etl.record.errors import LossError, StartError
from millrace.etl.record.tables import Table
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sources.base import ReplayedLeg
from millrace.etl.sources.kinesis.missed_records_guard import KinesisLossGuard
from millrace.etl.sources.source_union import LegGuards
from tests.spark.source_batches import EPOCH, Events, frame, log_made

Names = Callable[[str], Table]

FLIGHT, CLICK = "carrier STRING NOT NULL, flight INT NOT NULL", "page STRING NOT NULL, flight STRING"
FLIGHTS = KafkaSource("flights", "air.flights", "main", "earliest", 100, 3600)
CLICKS = KafkaSource("clicks", "web.clicks", "main", "earliest", 100, 3600)
WEB = KafkaSource("web", r"web\..*", "main", "earliest", 100, 3600, KafkaReadingOptions(pattern=True))
SHOP = KinesisSource("shop", "acme-shop", "us-east-1", "earliest", 1000, 1.0, 3600)


@pytest.fixture(scope="module")
def decoders(spark: SparkSession) -> dict[str, JsonDecoder]:
    return {
        name: JsonDecoder(parse_ddl_schema(spark, ddl, name)) for name, ddl in (("f", FLIGHT), ("c", CLICK))
    }


@pytest.fixture(scope="module")
def router(decoders: dict[str, JsonDecoder]) -> RoutingDecoder:
    return RoutingDecoder(
        (
            DecodingRoute("flights", "flights", "air.flights", decoders["f"]),
            DecodingRoute("clicks", "web", "web.clicks", decoders["c"]),
            DecodingRoute("shop", "shop", "acme-shop", decoders["c"]),
        )
    )


@pytest.fixture(scope="module")
def light(spark: SparkSession, decoders: dict[str, JsonDecoder]) -> RoutingDecoder:
    """The same routes, two of them of another format that costs next to nothing."""
    text = TextDecoder(parse_ddl_schema(spark, "page STRING", "text"))
    return RoutingDecoder(
        (
            DecodingRoute("flights", "flights", "air.flights", decoders["f"]),
            DecodingRoute("clicks", "web", "web.clicks", text),
            DecodingRoute("shop", "shop", "acme-shop", text),
        )
    )


def record(source: str, origin: str, number: int, payload: bytes | None) -> tuple[Any, ...]:
    kafka = source != "shop"
    return (
        f"{origin}/0/{number}" if kafka else f"{origin}/{number}",
        source,
        (f"{origin}/0" if source == "web" else "0") if kafka else None,
        str(number).zfill(20) if kafka else str(number),
        bytearray(b"k"),
        None,
        EPOCH + timedelta(seconds=number),
        None if payload is None else bytearray(payload),
    )


def flight(n: int) -> bytes:
    return json.dumps({"carrier": "AA", "flight": n}).encode()


def click(n: int) -> bytes:
    return json.dumps({"page": f"/{n}", "flight": str(n)}).encode()


payloads = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.integers(0, 99).map(flight),
    st.integers(0, 99).map(click),
    st.dictionaries(st.sampled_from(["carrier", "page", "flight", "x"]), st.integers(), max_size=3).map(
        lambda d: json.dumps(d).encode()
    ),
)
origins = st.one_of(
    st.sampled_from([("flights", "air.flights"), ("web", "web.clicks"), ("shop", "acme-shop")]),
    # What nobody has thought of: another topic of a pattern, one whose name only begins like a known one.
    st.tuples(
        st.sampled_from(["flights", "web", "shop", "other"]),
        st.sampled_from(["web.clicks2", "web.click", "air", "acme-shop", "web.clicks", "\u00e4", "a.b", "_"]),
    ),
)
ROUTES = {
    ("flights", "air.flights"): "flights",
    ("web", "web.clicks"): "clicks",
    ("shop", "acme-shop"): "shop",
}


@settings(
    max_examples=2,  # of hundreds of records: it is the plan that costs, not the rows
    database=None,
    phases=[Phase.generate],
    suppress_health_check=[*HealthCheck],
)
@given(batch=st.lists(st.tuples(origins, payloads), min_size=60, max_size=200))
def test_no_record_crashes_or_is_dropped(
    spark: SparkSession, router: RoutingDecoder, decoders: dict[str, JsonDecoder], batch: list[Any]
) -> None:
    rows = [record(s, o, n, payload) for n, ((s, o), payload) in enumerate(batch)]
    out = {r["_id"]: r for r in router.decode(frame(spark, rows)).collect()}
    assert len(out) == len(batch)
    # What the decoders say where each has all the payloads for itself.
    alone = {
        name: {r["_id"]: r for r in decoder.decode(frame(spark, rows)).collect()}
        for name, decoder in decoders.items()
    }
    for row, (origin, payload) in zip(rows, batch, strict=True):
        result, route = out[row[0]], ROUTES.get(origin)
        assert result["_route"] == route
        if route is None:
            assert (result["_stage"], result["_error"]) == ("route", f"no route for {origin[1]}")
            assert result["_bytes"] == (None if payload is None else bytearray(payload))
            assert not any(result[name] for name in ROUTES.values())
            continue
        wanted = alone["f" if route == "flights" else "c"][row[0]]
        assert [result[c] for c in ("_bytes", "_stage", "_error")] == [
            wanted[c] for c in ("_bytes", "_stage", "_error")
        ]
        for name in ROUTES.values():
            if name != route or result["_error"] is not None:
                assert result[name] is None
            else:
                assert result[name].asDict() == {k: wanted[k] for k in result[name].asDict()}


def test_legs_are_put_together_in_an_order_of_their_own() -> None:
    other = KafkaSource("bags", "bags", "other", "earliest", 100, 3600)
    result = group_sources_into_legs([SHOP, WEB, other, CLICKS, FLIGHTS])
    assert result == ((FLIGHTS, CLICKS), (WEB,), (other,), (SHOP,))
    assert group_sources_into_legs([FLIGHTS, CLICKS, other, WEB, SHOP]) == result


class Landing:
    """A routed query on topics of one leg, a pattern, and a stream; batches as Spark's offset log tells them."""

    def __init__(self, spark: SparkSession, table: Names, folder: Path, router: RoutingDecoder) -> None:
        self.spark, self.folder, self.events, self.router = spark, folder, Events(), router
        self.table = table("routed")
        log_made(folder)
        tables.create_or_evolve_table(spark, self.table, land.landing_table_schema(router.schema))
        self.write = self.restarted()

    def restarted(self) -> land.LandBatchWriter:
        routes = [
            ("flights", "air.flights", FLIGHTS),
            ("clicks", "web.clicks", WEB),
            ("shop", "acme-shop", SHOP),
        ]
        query = LandSettings(
            "land",
            tuple(SourceRouteSettings(n, o, s, JsonFormat(), "test.ddl", None, ()) for n, o, s in routes),
            "route",
            "routed",
            1.0,
            None,
        )
        places = [Checkpoint(str(self.folder), place) for place in range(3)]
        guard = KinesisLossGuard(SHOP, places[2], self.table)
        legs = LegGuards((ReplayedLeg((FLIGHTS,), places[0]), ReplayedLeg((WEB,), places[1])), (guard,))
        return land.LandBatchWriter(
            query, self.router, IcebergSink(self.table), places[0], self.events.reporter, legs
        )

    def log(self, batch: int, flights: int, web: dict[str, int], shop: int | None) -> None:
        """Ends of the topics' ranges; of the stream, the record after which the batch begins."""
        shard = {"iteratorType": "AFTER_SEQUENCE_NUMBER", "iteratorPosition": str(shop)}
        lines = (
            json.dumps({"air.flights": {"0": flights}}),
            json.dumps({topic: {"0": end} for topic, end in web.items()}),
            "-" if shop is None else json.dumps({"metadata": {}, "shardId-0": shard}),
        )
        (self.folder / "offsets").mkdir(parents=True, exist_ok=True)
        (self.folder / "offsets" / str(batch)).write_text('v1\n{"batchWatermarkMs":0}\n' + "\n".join(lines))

    def accounts(self) -> tuple[int, ...]:
        return tuple(self.events.last()[k] for k in ("read", "duplicates", "landed", "good", "bad"))

    def rows(self) -> DataFrame:
        return self.spark.table(str(self.table))

    def ids(self) -> list[str]:
        return sorted(r["_id"] for r in self.rows().collect())


@pytest.fixture
def landing(spark: SparkSession, table: Names, tmp_path: Path, light: RoutingDecoder) -> Landing:
    return Landing(spark, table, tmp_path, light)


def first_batch() -> list[tuple[Any, ...]]:
    return [
        *(record("flights", "air.flights", n, flight(n)) for n in range(3)),
        record("flights", "air.flights", 3, b"{broken"),
        record("web", "web.clicks", 0, click(0)),
        record("web", "web.new", 0, b"\xff raw"),
        *(record("shop", "acme-shop", n, click(n)) for n in (71, 72)),
    ]


def check_routes(landing: Landing) -> None:
    """Each route is read as a table of its own."""
    good = transform.good_records(landing.rows())
    flights = rows_of_route(good, "flights", "t").orderBy("flight")
    assert [(r["carrier"], r["flight"]) for r in flights.collect()] == [("AA", n) for n in range(3)]
    assert {"_id", "_source", "_arrived_at", "_landed_at"} <= set(flights.columns)
    assert {"flights", "clicks", "_route"}.isdisjoint(flights.columns)
    assert sorted(r["page"] for r in rows_of_route(good, "shop", "t").collect()) == [
        click(n).decode() for n in (71, 72)
    ]
    with pytest.raises(StartError, match="table t has no route bags; its routes are flights, clicks, shop"):
        rows_of_route(good, "bags", "t")
    with pytest.raises(StartError, match="table t has no route flights; its routes are none"):
        rows_of_route(flights, "flights", "t")


@pytest.mark.slow
def test_all_sources_land_in_one_action_once(landing: Landing) -> None:
    landing.log(0, 4, {"web.clicks": 1, "web.new": 1}, None)
    landing.write(frame(landing.spark, first_batch()), 0)
    assert landing.accounts() == (8, 0, 8, 6, 2)
    assert landing.rows().where("_stage = 'route'").count() == 1
    check_routes(landing)
    # The batch comes again after a crash, and of the stream with one record more.
    landing.write = landing.restarted()
    landing.write(frame(landing.spark, [*first_batch(), record("shop", "acme-shop", 73, click(73))]), 0)
    assert landing.accounts() == (9, 8, 1, 1, 0)
    # The next batch looks up what the stream read last.
    landing.log(1, 5, {"web.clicks": 2, "web.new": 1}, 73)
    more = [record("flights", "air.flights", 4, flight(4)), record("web", "web.clicks", 1, click(1))]
    landing.write(frame(landing.spark, [*more, record("shop", "acme-shop", 74, click(74))]), 1)
    assert landing.accounts() == (3, 0, 3, 3, 0)
    assert len(landing.ids()) == len(set(landing.ids())) == 12
    # What a connector says it read, and what is not there, stops the job.
    landing.log(2, 6, {"web.clicks": 2, "web.new": 1}, 75)
    with pytest.raises(LossError, match="shop/shardId-0 after 75"):
        landing.write(frame(landing.spark, [record("flights", "air.flights", 5, flight(5))]), 2)


@pytest.mark.slow
def test_a_topic_of_any_age_does_not_widen_the_bound_of_a_stream(landing: Landing) -> None:
    """Producers write any time they like into Kafka: that is none of the stream's business."""
    landing.log(0, 1, {}, None)
    rows = [record("shop", "acme-shop", n, click(n)) for n in (71, 72)]
    landing.write(frame(landing.spark, rows), 0)
    landing.log(1, 2, {}, 72)
    old = list(record("flights", "air.flights", 1, flight(1)))
    old[6] = EPOCH - timedelta(days=400)
    landing.write(frame(landing.spark, [tuple(old), record("shop", "acme-shop", 73, click(73))]), 1)
    assert landing.accounts() == (2, 0, 2, 2, 0)
    legs = landing.write.guards
    assert isinstance(legs, LegGuards)
    assert legs.streams[0].oldest == EPOCH + timedelta(seconds=73)
    # The minutes of the last batch, since the oldest of it, and everything.
    assert len([*legs.look_ups(batch_accounts.utc_now(), DuplicateLookUp())]) == 3


@pytest.mark.slow
def test_a_letter_without_a_route_goes_through_when_there_is_one(
    spark: SparkSession, table: Names, tmp_path: Path, router: RoutingDecoder
) -> None:
    clicks = router.routes[1]
    landing = Landing(spark, table, tmp_path, RoutingDecoder((clicks,)))
    landing.log(0, 0, {"web.new": 2}, None)
    rows = [record("web", "web.new", 0, click(0)), record("web", "web.new", 1, b"\xff")]
    landing.write(frame(landing.spark, rows), 0)
    assert landing.accounts() == (2, 0, 2, 0, 2)
    wider = RoutingDecoder((DecodingRoute("clicks", "web", "web.new", clicks.decoder),))
    replay = DeadLetterReplayer(
        "land", landing.table, landing.events.reporter, ("flights", "web", "shop"), wider
    )
    assert replay(landing.spark, ReplayRequest("land")) == 0
    assert {k: landing.events.last()[k] for k in ("letters", "good", "bad")} == {
        "letters": 2,
        "good": 1,
        "bad": 1,
    }
    good = transform.good_records(landing.rows())
    assert [r["_id"] for r in rows_of_route(good, "clicks", "t").collect()] == ["web.new/0/0#replay"]


def test_each_source_has_its_line_in_the_offset_log() -> None:
    log = 'v1\n{}\n{"a":{"0":1}}\n-\n{"b":{"0":2}}'
    assert [source_offset_in_log_entry(log, place) for place in range(3)] == [
        {"a": {"0": 1}},
        None,
        {"b": {"0": 2}},
    ]
