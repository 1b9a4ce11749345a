"""What a job costs by use beside its workers: requests to S3, a month's data there, logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace.config.model import Environment, Job
from millrace.config.queries import LandQuery, RouteQuery
from millrace.sizing.capacity import Spread
from millrace.sizing.cost import GB, SECONDS, item
from millrace.sizing.hops import Hop
from millrace.sizing.model import CostItem, QueryPlan
from millrace.sizing.tables import PriceTable, limits


def usage_cost(
    environment: Environment,
    job: Job,
    hops: Sequence[Hop],
    queries: Mapping[str, QueryPlan],
    spreads: Sequence[Spread],
    prices: PriceTable,
) -> tuple[CostItem, ...]:
    """Return a job's lines of the bill that follow its batches and records.

    Parameters
    ----------
    environment, job, hops, queries, spreads
        The job, its queries' demand, their plans, and how they meet their cores.
    prices
        Of the environment's region.
    """
    known = limits()
    batches = stored = 0.0
    puts = SECONDS / known["usage.lease_seconds"]
    for hop, spread in zip(hops, spreads, strict=True):
        apart = _apart(hop, queries[hop.query].trigger_seconds.value, spread)
        each = SECONDS / apart
        batches += each
        # A task writes a file of its own where it has records.
        records = hop.work.rate * hop.average * apart
        puts += each * (known["usage.requests_per_batch"] + min(float(spread.cores), max(1.0, records)))
        if isinstance(job.queries[hop.query], LandQuery | RouteQuery):
            size = sum(
                environment.streams[name].traffic.record_size * part for name, part in hop.streams.items()
            )
            stored += hop.work.rate * hop.average * size * SECONDS * known["usage.stored_share"] / GB
    assumed = any(hop.assumed for hop in hops)
    # Batches of so long share a call, and a query whose batches are further apart than that has a call for each.
    called = min(batches, SECONDS / known["usage.metrics_seconds"])
    written = batches * known["usage.log_bytes_per_batch"] / GB
    lines = [
        item(
            "S3 requests",
            puts / 1000,
            "s3.thousand_puts",
            prices,
            f"{puts / 1e6:,.1f} million writes of {batches:,.0f} batches and the lease",
            assumed=assumed,
        ),
        item(
            "logs",
            written,
            "logs.gb_in",
            prices,
            f"{written:,.1f} GB of accounts",
            assumed=assumed,
        ),
        item(
            "metric calls",
            called / 1000,
            "cloudwatch.thousand_calls",
            prices,
            f"{called:,.0f} calls with metrics",
            assumed=assumed,
        ),
    ]
    if stored:
        why = f"{stored:,.0f} GB that a month lands, for one month; it adds up"
        lines.insert(0, item("S3 storage", stored, "s3.gb_month", prices, why, assumed=assumed))
    return tuple(lines)


def _apart(hop: Hop, trigger: float, spread: Spread) -> float:
    """Seconds from one batch to the next at the average rate: the trigger, or D* = a/(1 − ρ) where that is longer."""
    load = hop.work.rate * hop.average * hop.work.per_record / spread.effective
    return max(trigger, hop.work.overhead / (1 - load))
