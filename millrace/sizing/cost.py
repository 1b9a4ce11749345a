"""Itemised monthly cost, from the dated price table. A month has 730 hours."""

from __future__ import annotations

import math
from collections.abc import Sequence

from millrace.config.engines.base import HourlyBillItem
from millrace.config.model import Job, Stream
from millrace.config.sources.base import GB as GB
from millrace.config.sources.base import HOURS as HOURS
from millrace.config.sources.base import SECONDS as SECONDS
from millrace.config.sources.base import MonthlyStreamUsage
from millrace.sizing.plan_model import CostItem, Figure, Inputs, RunPlan
from millrace.sizing.prices_and_limits import PriceTable, known_price_names

CENT = 0.01
"""Dollars by which equal costs may differ, as sums depend on their order."""


def cost_item(
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


def quantity_by_tier(
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
    >>> quantity_by_tier(15, [(0, ""), (10, "after_10.")])
    [(0, '', 10), (10, 'after_10.', 5)]
    """
    ends = [*(begin for begin, _ in tiers[1:]), math.inf]
    parts = [
        (begin, name, min(end, before + quantity) - max(begin, before))
        for (begin, name), end in zip(tiers, ends, strict=True)
    ]
    return [part for part in parts if part[2] > 0]


def stream_cost_items(
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
    usage = MonthlyStreamUsage(partitions.value, partitions.assumed, readers, consumers, advantage)
    return tuple(
        cost_item(
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


def job_cost_items(
    name: str, job: Job, workers: Figure[int], prices: PriceTable, run: RunPlan | None = None
) -> tuple[CostItem, ...]:
    """Return the highest cost of a job: all its workers run all month, or in all its bounded runs.

    Parameters
    ----------
    workers
        Executors and the driver.
    run
        Its bounded runs; None for a job that runs all the time.
    """
    count, hours, how = workers.value, float(HOURS), f"{HOURS}"
    key = f"jobs.{name}"
    inputs: Inputs = (f"{key}.max_workers",)
    if run is not None:
        hours, inputs = HOURS * run.billed_share, (*inputs, f"{key}.run.every_seconds", f"{key}.run.seconds")
        runs, minutes = SECONDS / run.every_seconds.value, run.seconds.value / 60
        how = f"{runs:,.0f} runs of {minutes:.1f} minutes, {hours:,.0f}"
    return tuple(
        cost_item(
            bill.item,
            count * hours * bill.units,
            price_name(bill),
            prices,
            bill.why.format(count=count, hours=how),
            assumed=workers.assumed or run is not None,
            inputs=inputs,
        )
        for bill in job.hourly_bill_items
    )


def price_name(bill: HourlyBillItem) -> str:
    """Return the name of an item's own price if a table has it, else that of the common price."""
    own, common = bill.price
    return own if own in known_price_names() else common
