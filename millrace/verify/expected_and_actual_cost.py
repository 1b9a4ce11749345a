"""Cost of a verification: before it from its expected usage, after it from its actual usage."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from millrace.config.model import Environment, Job
from millrace.sizing.cost import HOURS, cost_item, price_name
from millrace.sizing.plan_model import CostItem, Plan
from millrace.sizing.prices_and_limits import PriceTable, price_table_of_region

PUT_UNIT_BYTES = 25_000
"""Bytes of a PUT payload unit; a record's are rounded up (Kinesis pricing, "PUT payload unit")."""

_SHORTEST_RUN_SECONDS = 60
"""Minimum of billed seconds, of both engines (pricing pages of Glue and of EMR Serverless)."""


@dataclass(frozen=True)
class BilledRun:
    """One run of a job.

    Attributes
    ----------
    seconds
        From its start to its end.
    billed
        Quantities by name of price: the engine's counts, else computed from the seconds.
    counted
        Whether the engine counted them.
    """

    job: str
    name: str
    seconds: float
    billed: Mapping[str, float]
    counted: bool = False


@dataclass(frozen=True)
class VerificationUsage:
    """Usage of a verification.

    Attributes
    ----------
    shard_seconds
        Sum of the seconds of all open shards.
    put_units
        PUT payload units of 25 KB, in all Kinesis streams.
    objects
        Objects and versions of objects in the buckets at the end: each was put by a request.
    deployed_seconds
        From the first resource to the last.
    """

    runs: tuple[BilledRun, ...]
    shard_seconds: float
    put_units: int
    objects: int
    deployed_seconds: float


def put_units(payload: bytes) -> int:
    """Return the number of PUT payload units of a record; an empty one counts as one."""
    return max(1, math.ceil(len(payload) / PUT_UNIT_BYTES))


def billed_quantities(job: Job, workers: int, seconds: float) -> dict[str, float]:
    """Return what an engine bills for a run whose workers all run from its start to its end.

    Parameters
    ----------
    job
        The job, for its engine and worker.
    workers
        Executors and the driver.
    seconds
        Seconds of the run; at least a minute is billed.

    Returns
    -------
    dict
        Hours by name of price.
    """
    hours = max(_SHORTEST_RUN_SECONDS, math.ceil(seconds)) / 3600 * workers
    return {
        price: hours * each.units
        for price, each in zip(price_names_of_engine(job), job.hourly_bill_items, strict=True)
    }


def price_names_of_engine(job: Job) -> list[str]:
    """Return the names of a job's prices, in the order of its engine's bill."""
    return [price_name(each) for each in job.hourly_bill_items]


def cost_items(
    environment: Environment, plan: Plan, usage: VerificationUsage, *, expected: bool = False
) -> tuple[CostItem, ...]:
    """Return the cost of a verification's usage, item by item.

    Parameters
    ----------
    usage
        Actual or expected usage.
    expected
        Whether it is expected: then no figure was measured.
    """
    table = price_table_of_region(environment.region, environment.value_locations.root)
    priced = partial(cost_item, prices=table, assumed=expected)
    items = [*_run_cost_items(usage.runs, table, expected=expected)]
    if usage.shard_seconds:
        hours, puts = usage.shard_seconds / 3600, usage.put_units
        items.append(priced("shards", hours, "kinesis.shard_hour", why=f"{hours:.2f} shard-hours"))
        why = f"{puts:,} PUT units of 25 KB"
        items.append(priced("puts", puts / 1e6, "kinesis.million_put_units", why=why))
    if usage.objects:
        why = f"{usage.objects:,} objects were put, the least number of requests"
        items.append(priced("S3 requests", usage.objects / 1000, "s3.thousand_puts", why=why))
    share, minutes = usage.deployed_seconds / 3600 / HOURS, usage.deployed_seconds / 60
    for line in [*plan.shared, *(line for cluster in plan.clusters.values() for line in cluster.cost)]:
        why = f"{line.why}; {minutes:.0f} minutes of a month"
        items.append(CostItem(line.name, line.usd * share, why, assumed=expected))
    return tuple(items)


def _run_cost_items(runs: Sequence[BilledRun], table: PriceTable, *, expected: bool) -> Iterable[CostItem]:
    for job in dict.fromkeys(run.job for run in runs):
        own = [run for run in runs if run.job == job]
        counted = all(run.counted for run in own)
        for price in dict.fromkeys(price for run in own for price in run.billed):
            amount = sum(run.billed.get(price, 0.0) for run in own)
            unit = (
                price.rsplit(".", 1)[1].removesuffix("_hour").replace("_", " ").upper().replace("GIB", "GiB")
            )
            seconds = sum(run.seconds for run in own)
            by = "as the engine counted" if counted else f"all workers, {seconds:.0f} s in {len(own)} runs"
            yield cost_item(
                f"{job} {unit}", amount, price, table, f"{amount:.4f} {unit}-hours: {by}", assumed=expected
            )
