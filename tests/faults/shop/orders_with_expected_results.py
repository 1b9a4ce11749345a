"""Records that the shop sends, and the results expected of its queries.

Everything expected is computed from the producers' ledger alone, with dictionaries and sums.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.records.ledger import Ledger

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
STEP = timedelta(seconds=3)
"""Between two orders: 10,000 of them span eight hours, of which the watermark keeps two."""

REACH = 200
"""How far back, in orders, a second order of a purchase or its payment goes: ten minutes."""

WINDOW = timedelta(minutes=10)
NEAR = timedelta(hours=1)
DIRTY = 0.01
ITEMS = ("apples", "bread", "coal", "dates")


def _at(number: int) -> datetime:
    return BEGIN + number * STEP


def _event(choose: random.Random, number: int, **fields: Any) -> RecordToSend:
    payload = json.dumps({"n": number, **fields}).encode()
    key = f"{choose.getrandbits(32):x}".encode()
    if choose.random() >= DIRTY:
        return RecordToSend(key, payload)
    return (
        RecordToSend(key, payload[:-3], "broken")
        if choose.random() < 0.5
        else RecordToSend(key, b"", "empty")
    )


def orders(choose: random.Random, first: int, count: int) -> Iterator[RecordToSend]:
    """Make orders; a third of them names a purchase that was named before."""
    for n in range(first, first + count):
        repeats = n > REACH and choose.random() < 0.3
        purchase = n - choose.randrange(1, REACH) if repeats else n
        yield _event(
            choose,
            n,
            purchase=purchase,
            item=choose.choice(ITEMS),
            amount=choose.randrange(0, 20),
            at=_at(n).isoformat(),
        )


def payments(choose: random.Random, first: int, count: int) -> Iterator[RecordToSend]:
    """Make payments of purchases of about the same time; some are paid twice, some never."""
    for n in range(first, first + count):
        purchase = max(0, n - choose.randrange(REACH))
        yield _event(choose, n, purchase=purchase, paid=choose.randrange(1, 20), at=_at(n).isoformat())


def late(choose: random.Random, count: int) -> Iterator[RecordToSend]:
    """Make orders of days ago, of purchases and windows that nothing else has."""
    for n in range(count):
        at = (BEGIN - timedelta(days=3)).isoformat()
        yield _event(choose, n, purchase=-1 - n, item=ITEMS[0], amount=1, at=at)


@dataclass
class Remembered(Ledger):
    """A ledger that keeps every payload.

    Attributes
    ----------
    sent
        Payload by identity.
    """

    sent: dict[str, bytes] = field(default_factory=dict)

    def add(self, identity: str, payload: bytes, dirt: str | None) -> None:
        super().add(identity, payload, dirt)
        self.sent[identity] = payload

    def good(self) -> dict[str, dict[str, Any]]:
        """Records that were not spoiled and not late, by identity."""
        return {identity: fields for identity, fields in self.whole().items() if fields["purchase"] >= 0}

    def whole(self) -> dict[str, dict[str, Any]]:
        """Records that were not spoiled, by identity."""
        kinds = zip(self.ids, self.dirt, strict=True)
        return {identity: json.loads(self.sent[identity]) for identity, dirt in kinds if dirt is None}


def taxed(ledger: Remembered) -> Counter[tuple[Any, ...]]:
    """Rows of ``with_tax``: identity, number, amount, tax."""
    rows = ledger.whole().items()
    return Counter((i, o["n"], o["amount"], o["amount"] / 5) for i, o in rows if o["amount"] > 0)


def sums(ledger: Remembered) -> Counter[tuple[Any, ...]]:
    """Rows of ``sold``: beginning of the window, item, orders, amount."""
    counts: Counter[tuple[datetime, str]] = Counter()
    amounts: Counter[tuple[datetime, str]] = Counter()
    for order in ledger.good().values():
        at = datetime.fromisoformat(order["at"])
        key = (at - (at - BEGIN) % WINDOW, order["item"])
        counts[key] += 1
        amounts[key] += order["amount"]
    return Counter((*key, count, amounts[key]) for key, count in counts.items())


def pairs(orders_: Remembered, payments_: Remembered) -> Counter[tuple[Any, ...]]:
    """Rows of ``settled``: identity, purchase, amount, paid."""
    paid: dict[int, list[tuple[str, dict[str, Any]]]] = {}
    for identity, payment in payments_.good().items():
        paid.setdefault(payment["purchase"], []).append((identity, payment))
    result: Counter[tuple[Any, ...]] = Counter()
    for identity, order in orders_.good().items():
        for other, payment in paid.get(order["purchase"], ()):
            apart = datetime.fromisoformat(order["at"]) - datetime.fromisoformat(payment["at"])
            if abs(apart) <= NEAR:
                result[f"{identity}+{other}", order["purchase"], order["amount"], payment["paid"]] += 1
    return result


def wrong_firsts(ledger: Remembered, rows: list[tuple[str, int, int]]) -> tuple[int, int, int]:
    """Hold rows (identity, purchase, amount) of which each purchase must have one against the ledger.

    Which of a purchase's orders is taken depends on what landed first; that it is one of them does not.

    Returns
    -------
    tuple
        Purchases without a row, rows too many of a purchase, rows that are no order of theirs.
    """
    sent = ledger.good()
    wanted = {order["purchase"] for order in sent.values()}
    held = Counter(purchase for _, purchase, _ in rows)
    strange = sum(
        1
        for identity, purchase, amount in rows
        if identity not in sent
        or (sent[identity]["purchase"], sent[identity]["amount"]) != (purchase, amount)
    )
    return len(wanted - held.keys()), sum(n - 1 for n in held.values()), strange
