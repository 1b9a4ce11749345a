"""Usage-based cost of a job in addition to its workers: S3 requests, a month's data there, logs."""

from __future__ import annotations

import math
from collections.abc import Sequence

from millrace.config.model import Environment, Job
from millrace.config.queries import LandingQueryBase
from millrace.etl.launch.sources import reading_and_shuffled_tasks
from millrace.sizing.cost import GB, SECONDS, cost_item
from millrace.sizing.costs.storage_and_unpriced_costs import gb_added_per_second, replaced_file_days
from millrace.sizing.plan_model import CostItem, RunPlan
from millrace.sizing.prices_and_limits import PriceTable, service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.sizing_formulas import CoreSpread


def usage_cost_items(
    environment: Environment,
    job: Job,
    demands: Sequence[QueryDemand],
    spreads: Sequence[CoreSpread],
    sources: Sequence[SourcePartitions],
    prices: PriceTable,
    run: RunPlan | None,
) -> tuple[CostItem, ...]:
    """Return a job's lines of the bill that depend on its batches and records.

    Parameters
    ----------
    spreads
        Distributions of its queries over their cores.
    sources
        Partitions that each query reads.
    run
        Its bounded runs; None if it runs all the time.
    """
    known = service_limits()
    batches, days = 0.0, replaced_file_days(environment)
    landed, derived, rewritten = _stored_gb(environment, job, demands)
    # Only a run that lives renews its lease.
    puts = SECONDS / known["usage.lease_seconds"] * (1.0 if run is None else run.billed_share)
    for demand, spread, source in zip(demands, spreads, sources, strict=True):
        apart = _mean_seconds_between_batches(demand, demand.work.planned_trigger_seconds, spread)
        each = SECONDS / apart
        batches += each
        records = demand.work.rate * demand.average * apart
        puts += each * (known["usage.requests_per_batch"] + files_of_batch(demand, spread, source, records))
    # The number of rows is an assumption only with a transform.
    guess = any(
        gb_added_per_second(environment, query, demand) > 0
        for demand in demands
        for query in (job.queries[demand.query],)
        if not isinstance(query, LandingQueryBase)
        and any(each.transform is not None for each in query.sinks_by_place.values())
    )
    assumed = any(demand.assumed for demand in demands)
    triggers = tuple(f"{demand.number_key_prefix}.trigger_seconds" for demand in demands)
    # Batches within this time share a call; a query whose batches are further apart has a call for each.
    called = min(batches, SECONDS / known["usage.metrics_seconds"])
    logged = batches * known["usage.log_bytes_per_batch"] / GB
    lines = [
        cost_item(
            "S3 requests",
            puts / 1000,
            "s3.thousand_puts",
            prices,
            f"{puts / 1e6:,.1f} million writes of {batches:,.0f} batches and the lease",
            assumed=assumed,
            inputs=triggers,
        ),
        cost_item(
            "logs",
            logged,
            "logs.gb_in",
            prices,
            f"{logged:,.1f} GB of accounts",
            assumed=assumed,
            inputs=triggers,
        ),
        cost_item(
            "metric calls",
            called / 1000,
            "cloudwatch.thousand_calls",
            prices,
            f"{called:,.0f} calls with metrics",
            assumed=assumed,
            inputs=triggers,
        ),
    ]
    stored = []
    if landed or derived:
        what = [f"{landed:,.0f} GB that a month lands"] * bool(landed)
        what += [f"{derived:,.0f} GB of results, a row for each record"] * bool(derived)
        why = f"{' and '.join(what)}, for one month; it adds up"
        stored.append(
            cost_item("S3 storage", landed + derived, "s3.gb_month", prices, why, assumed=assumed or guess)
        )
    if rewritten:
        why = f"{rewritten:,.0f} GB that compaction replaced, kept for {days:g} days"
        stored.append(
            cost_item("S3 past states", rewritten, "s3.gb_month", prices, why, assumed=assumed or guess)
        )
    return (*stored, *lines)


def files_of_batch(
    demand: QueryDemand, spread: CoreSpread, source: SourcePartitions, records: float
) -> float:
    """Return the files that a batch of so many records writes to one table: one of each task that has records."""
    written = max(1.0, records)
    if not demand.lands or source.limits_parts:
        # Records of shards are always shuffled, over the query's cores.
        return min(spread.repartition or spread.cores, written)
    reading, shuffled = reading_and_shuffled_tasks(
        records, min(source.tasks, math.ceil(written)), spread.repartition
    )
    return min(shuffled or reading, written)


def least_usage_usd(
    environment: Environment, job: Job, demands: Sequence[QueryDemand], prices: PriceTable
) -> float:
    """Return the dollars a month of what a job stores, whatever its size, and of batches that write one file each."""
    known = service_limits()
    # Batches that end in time are no further apart.
    apart = (max(each.work.planned_trigger_seconds, each.work.longest_batch_seconds) for each in demands)
    batches = SECONDS * sum(1 / each for each in apart)
    return (
        sum(_stored_gb(environment, job, demands)) * prices.usd("s3.gb_month")
        + batches * (known["usage.requests_per_batch"] + 1) / 1000 * prices.usd("s3.thousand_puts")
        + batches * known["usage.log_bytes_per_batch"] / GB * prices.usd("logs.gb_in")
        + min(batches, SECONDS / known["usage.metrics_seconds"])
        / 1000
        * prices.usd("cloudwatch.thousand_calls")
    )


def _stored_gb(
    environment: Environment, job: Job, demands: Sequence[QueryDemand]
) -> tuple[float, float, float]:
    """Return the gigabytes that a month lands and derives, and those that compaction replaced and that are kept."""
    landed = derived = rewritten = 0.0
    for demand in demands:
        query = job.queries[demand.query]
        added = gb_added_per_second(environment, query, demand) * SECONDS
        if isinstance(query, LandingQueryBase):
            landed += added
        else:
            derived += added
        rewritten += gb_added_per_second(environment, query, demand, iceberg=True) * 86_400
    return landed, derived, rewritten * replaced_file_days(environment)


def _mean_seconds_between_batches(demand: QueryDemand, trigger: float, spread: CoreSpread) -> float:
    """Return the seconds between batches at the average rate: the trigger, or D* = a/(1 − ρ) if that is longer."""
    load = demand.work.rate * demand.average * demand.work.per_record / spread.effective
    return max(trigger, demand.work.overhead / (1 - load))
