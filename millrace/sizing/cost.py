"""Itemised monthly cost, from the dated price table. A month has 730 hours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from millrace.config.engines.base import Bill
from millrace.config.model import Job, Stream
from millrace.config.sources.base import GB as GB
from millrace.config.sources.base import HOURS as HOURS
from millrace.config.sources.base import SECONDS as SECONDS
from millrace.config.sources.base import Usage
from millrace.sizing.model import CostItem, Figure, Inputs
from millrace.sizing.prices_and_limits import PriceTable, known_prices


def item(
    name: str,
    quantity: float,
    price: str,
    prices: PriceTable,
    why: str,
    *,
    assumed: bool,
    inputs: Inputs = (),
) -> CostItem:
    """Return one line of the bill: ``quantity`` times a price; the reason names the price if it is unconfirmed."""
    unconfirmed = not prices.prices[price].confirmed
    if unconfirmed:
        why += f"; the price {price} is unconfirmed"
    usd = quantity * prices.usd(price)
    return CostItem(name, usd, why, assumed, unconfirmed, lambda: (prices.as_input(price), *inputs))


def by_tier(
    quantity: float, tiers: Sequence[tuple[float, str]], before: float = 0
) -> list[tuple[float, str, float]]:
    """Divide a quantity over the tiers of a price.

    Parameters
    ----------
    tiers
        Begin and name of each.
    before
        Quantity of others that comes first.

    Returns
    -------
    list
        Begin, name and quantity of each tier that it reaches.

    Examples
    --------
    >>> by_tier(15, [(0, ""), (10, "after_10.")])
    [(0, '', 10), (10, 'after_10.', 5)]
    """
    ends = [*(begin for begin, _ in tiers[1:]), math.inf]
    parts = [
        (begin, name, min(end, before + quantity) - max(begin, before))
        for (begin, name), end in zip(tiers, ends, strict=True)
    ]
    return [part for part in parts if part[2] > 0]


def stream_cost(
    name: str,
    stream: Stream,
    partitions: Figure[int],
    readers: int,
    consumers: int,
    prices: PriceTable,
    *,
    advantage: bool,
) -> tuple[CostItem, ...]:
    """Return the cost of a stream; topics are paid for with their cluster.

    Parameters
    ----------
    name, stream
        An existing stream costs this environment nothing.
    partitions
        Shards; a provisioned stream pays for each.
    readers
        Queries that read it without fan-out.
    consumers
        Registered fan-out consumers, of our own queries and of others.
    advantage
        Whether the account has Kinesis On-demand Advantage.
    """
    usage = Usage(partitions.value, partitions.assumed, readers, consumers, advantage)
    return tuple(
        item(
            each.name,
            each.quantity,
            each.price,
            prices,
            each.why,
            assumed=each.assumed,
            inputs=(f"streams.{name}.expected_partitions",),
        )
        for each in stream.charges(usage)
    )


def job_cost(name: str, job: Job, workers: Figure[int], prices: PriceTable) -> tuple[CostItem, ...]:
    """Return the highest cost of a job: all its workers run all month.

    Parameters
    ----------
    workers
        Executors and the driver.
    """
    count = workers.value
    return tuple(
        item(
            bill.item,
            count * HOURS * bill.units,
            price_name(bill),
            prices,
            bill.why.format(count=count, hours=HOURS),
            assumed=workers.assumed,
            inputs=(f"jobs.{name}.max_workers",),
        )
        for bill in job.bills
    )


def price_name(bill: Bill) -> str:
    """Return the name of an item's own price if a table has it, else that of the common price."""
    own, common = bill.price
    return own if own in known_prices() else common
