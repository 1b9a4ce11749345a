"""Session windows from a landing table agree with the ledger of clicks."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from millrace.etl.metrics.trigger_metrics import BacklogInputs, TriggerMeter
from millrace.etl.record.tables import Table
from tests.spark.queries.test_stateful_derive import Pipeline
from tests.spark.source_batches import EPOCH, Events, frame, kafka_rows, lander

DDL = (Path(__file__).parents[3] / "pipelines/clicks/schemas/click.ddl").read_text(encoding="utf-8")
GAP = timedelta(minutes=30)
DELAY = timedelta(minutes=10)
Click = tuple[str, str, datetime]
"""Visitor, page, time."""

Visit = tuple[str, datetime, datetime, int, int]
"""Visitor, first and last click, clicks, different pages."""


def visits(clicks: Iterable[Click]) -> set[Visit]:
    """What a ledger of clicks says, worked out without Spark."""
    by_visitor: dict[str, list[tuple[datetime, str]]] = defaultdict(list)
    for visitor, page, at in clicks:
        by_visitor[visitor].append((at, page))
    result: set[Visit] = set()
    for visitor, mine in by_visitor.items():
        visit: list[tuple[datetime, str]] = []
        for at, page in [*sorted(mine), (datetime.max.replace(tzinfo=EPOCH.tzinfo), "")]:
            if visit and at - visit[-1][0] >= GAP:
                result.add((visitor, visit[0][0], visit[-1][0], len(visit), len({p for _, p in visit})))
                visit = []
            visit.append((at, page))
    return result


def shop_hours(seed: int, hours: int) -> list[list[Click]]:
    """Clicks of each hour, in the order in which they arrive: up to the delay out of the order of their times."""
    choose = random.Random(seed)
    clicks: list[Click] = []
    for visitor in range(12):
        at = EPOCH + timedelta(minutes=choose.randrange(60))
        while at < EPOCH + timedelta(hours=hours):
            clicks.append((f"v{visitor}", f"/p{choose.randrange(4)}", at))
            # Of three clicks one ends a visit, by as little as a second.
            pause = choose.choice([timedelta(minutes=3), timedelta(minutes=25), GAP + timedelta(seconds=1)])
            at += pause + timedelta(seconds=choose.randrange(60), milliseconds=choose.randrange(1000))
    arrival = sorted(clicks, key=lambda click: click[2] + timedelta(seconds=choose.randrange(500)))
    parts: list[list[Click]] = [[] for _ in range(hours)]
    for number, click in enumerate(arrival):
        parts[number * hours // len(arrival)].append(click)
    return parts


class Visits(Pipeline):
    """The shop's clicks in a landing table, and a query of their visits."""

    def __init__(self, spark: SparkSession, table: Callable[[str], Table], folder: Path) -> None:
        mark = {"time": "clicked_at", "delay_seconds": DELAY.total_seconds(), "ahead_seconds": 1e6}
        state = {"watermark": mark, "key": ["visitor", "began"], "output_mode": "append"}
        super().__init__(spark, table, folder, state, None)
        self.landing = table("clicks_landed")
        self.land = lander(spark, self.landing, Events(), ddl=DDL)
        self._landed = 0

    def settings(self) -> Any:
        result = super().settings()
        [query] = result.queries
        changed = query.__class__(**{**vars(query), "transform": "pipelines.clicks.transforms:visits"})
        return result.__class__(**{**vars(result), "queries": (changed,)})

    def click(self, clicks: Iterable[Click]) -> None:
        payloads = [
            json.dumps({"session": visitor, "page": page, "clicked_at": at.isoformat()}).encode()
            for visitor, page, at in clicks
        ]
        self.land(frame(self.spark, kafka_rows(0, self._landed, payloads)), self._landed)
        self._landed += len(payloads)

    def found(self) -> list[Visit]:
        return [
            (r["visitor"], r["began"].astimezone(EPOCH.tzinfo), r["ended"].astimezone(EPOCH.tzinfo), r["clicks"], r["pages"])
            for r in self.rows()
        ]  # fmt: skip


def late_rows(shop: Visits) -> float:
    """The metric, of the last run."""
    meter = TriggerMeter("derive-flights", BacklogInputs())
    return sum(meter.measure(each, None, 0).values.get("LateRows", 0) for each in shop.progress)


@pytest.fixture
def shop(spark: SparkSession, table: Callable[[str], Table], tmp_path: Path) -> Visits:
    return Visits(spark, table, tmp_path)


END: Click = ("clock", "/", EPOCH + timedelta(days=2))
"""A click so much later that all visits before have ended; its own has not."""


@pytest.mark.slow
def test_each_visit_is_written_once_over_kills_between_and_inside_batches(shop: Visits) -> None:
    ledger = shop_hours(7, 6)
    for hour, clicks in enumerate(ledger):
        shop.click(clicks)
        if hour % 2:

            def killed(batch: DataFrame, number: int) -> None:
                shop.query().handle(batch, number)
                raise RuntimeError("killed")

            with pytest.raises(StreamingQueryException, match="killed"):
                shop.derive(killed)
        shop.derive()  # a run of its own for each hour
        assert late_rows(shop) == 0
    so_far = shop.found()
    assert len(so_far) == len(set(so_far)) > 20
    shop.click([END])
    shop.derive()
    sent = [click for part in ledger for click in part]
    assert sorted(shop.found()) == sorted(visits(sent))
    assert set(so_far) <= visits(sent), "a visit was written before its end"
    assert sum(visit[3] for visit in shop.found()) == len(sent)


@pytest.mark.slow
def test_late_clicks_are_left_out_and_counted(shop: Visits) -> None:
    at = EPOCH + timedelta(hours=5)
    good: list[Click] = [
        ("a", "/", at),
        ("b", "/", at + timedelta(minutes=1)),
        ("a", "/x", at + timedelta(minutes=20)),
    ]
    shop.click(good)
    shop.derive()
    # The watermark is at + 20 min - 10 min: of these a session of two would have ended before it.
    late: list[Click] = [("a", "/late", at - timedelta(minutes=n)) for n in range(30, 37)]
    in_time: list[Click] = [("c", "/", at - timedelta(minutes=19, seconds=59)), ("b", "/y", at)]
    shop.click([*late, *in_time])
    shop.derive()
    assert late_rows(shop) == len(late)
    shop.click([END])
    shop.derive()
    assert late_rows(shop) == 0
    assert set(shop.found()) == visits([*good, *in_time])
    landed = shop.spark.table(str(shop.landing)).count()
    assert landed == len(good) + len(late) + len(in_time) + 1, "the landing table has them"


@pytest.mark.slow
def test_clicks_out_of_order_put_two_visits_together(shop: Visits) -> None:
    at = EPOCH + timedelta(hours=5)
    first: list[Click] = [("a", "/", at), ("a", "/", at + timedelta(minutes=38))]
    shop.click(first)
    shop.derive()
    between: Click = ("a", "/x", at + timedelta(minutes=28, seconds=30))
    shop.click([between, END])
    shop.derive()
    assert shop.found() == [("a", at, at + timedelta(minutes=38), 3, 2)]
