"""Environments of the fault rounds are valid, and their expected sums are those of the ledger."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import timedelta
from pathlib import Path

from millrace.config import Names
from millrace.infra.launch.launch_settings import job_settings
from millrace.sizing import plan
from tests.faults.shop import orders_with_expected_results
from tests.faults.shop.orders_with_expected_results import BEGIN, ITEMS, Remembered
from tests.faults.shop_project import write


def test_its_environment_is_planned_and_what_the_jobs_are_told_is_read(tmp_path: Path) -> None:
    environment = write(tmp_path / "project")
    planned, names = plan(environment), Names(environment, "000000000000")
    kinds = {
        job: [query.kind for query in job_settings(environment, planned.jobs[job], names).queries]
        for job in environment.jobs
    }
    assert kinds == {
        "direct": ["direct"],
        "routed": ["direct-route"],
        "stateful": ["land", "derive", "derive"],
        "joined": ["land", "land", "derive"],
    }


def entered(*orders: dict[str, object]) -> Remembered:
    ledger = Remembered()
    for number, order in enumerate(orders):
        ledger.add(f"orders/0/{number}", json.dumps(order).encode(), None)
    ledger.add("orders/0/99", b"{", "broken")
    return ledger


def order(purchase: int, amount: int, minutes: int, item: str = ITEMS[0]) -> dict[str, object]:
    at = (BEGIN + timedelta(minutes=minutes)).isoformat()
    return {"n": 0, "purchase": purchase, "amount": amount, "item": item, "at": at, "paid": amount}


def test_what_is_expected_follows_from_what_was_sent() -> None:
    ledger = entered(order(1, 5, 0), order(1, 7, 9), order(2, 0, 10), order(-1, 9, 11))
    since = BEGIN + timedelta(minutes=10)
    assert orders_with_expected_results.sums(ledger) == Counter(
        [(BEGIN, ITEMS[0], 2, 12), (since, ITEMS[0], 1, 0)]
    )
    assert orders_with_expected_results.taxed(ledger) == Counter(
        [("orders/0/0", 0, 5, 1.0), ("orders/0/1", 0, 7, 1.4), ("orders/0/3", 0, 9, 1.8)]
    )
    payments = entered(order(1, 3, 60), order(2, 4, 71))
    assert orders_with_expected_results.pairs(ledger, payments) == Counter(
        [("orders/0/0+orders/0/0", 1, 5, 3), ("orders/0/1+orders/0/0", 1, 7, 3)]
    )
    assert orders_with_expected_results.wrong_firsts(
        ledger, [("orders/0/1", 1, 7), ("orders/0/2", 2, 0)]
    ) == (0, 0, 0)
    assert orders_with_expected_results.wrong_firsts(
        ledger, [("orders/0/0", 1, 5), ("orders/0/1", 1, 7)]
    ) == (1, 1, 0)
    assert orders_with_expected_results.wrong_firsts(
        ledger, [("orders/0/0", 1, 6), ("orders/0/3", -1, 9)]
    ) == (1, 0, 2)


def test_orders_repeat_purchases_of_ten_minutes_ago_and_some_are_spoiled() -> None:
    sent = list(orders_with_expected_results.orders(random.Random(1), 0, 3000))
    good = [json.loads(event.payload) for event in sent if event.dirt is None]
    assert 0 < len(sent) - len(good) < 100
    back = [each["n"] - each["purchase"] for each in good]
    assert 0 < sum(n > 0 for n in back) < 1500
    assert max(back) < orders_with_expected_results.REACH
