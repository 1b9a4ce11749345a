"""Cost of shared parts: keys, egress of the VPC, metrics and alarms, the history server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from millrace.config.model import Environment
from millrace.sizing.alarms.reported_metrics import metric_count
from millrace.sizing.cost import HOURS, cost_item, quantity_by_tier
from millrace.sizing.costs.endpoints_or_nat_gateways import created_kms_keys_with_contents
from millrace.sizing.plan_model import Alarm, CostItem, StreamPlan
from millrace.sizing.prices_and_limits import PriceTable, service_limits
from millrace.sizing.readable_numbers import count

_TIERS = ((0, ""), (10_000, "after_10000."), (250_000, "after_250000."), (1_000_000, "after_1000000."))
"""Number of metrics of an account and region before each tier, and the tier's price name (AWS' price page of CloudWatch)."""


def shared_cost_items(
    environment: Environment,
    streams: Mapping[str, StreamPlan],
    network: Sequence[CostItem],
    alarms: Sequence[Alarm],
    prices: PriceTable,
) -> tuple[CostItem, ...]:
    """Return the lines of the bill that belong to no single stream or job.

    Parameters
    ----------
    streams
        Their shards, some of which have their own metrics.
    network
        Cost of the chosen egress of the VPC.
    alarms
        All deployed alarms.
    """
    made, number = created_kms_keys_with_contents(environment), len(alarms)
    items = []
    if made:
        why = f"one each: {', '.join(made)}"
        items.append(cost_item("keys", len(made), "kms.key_month", prices, why, assumed=False))
    items += network
    items += [
        *metric_cost_items(environment, streams, prices),
        cost_item("alarms", number, "cloudwatch.alarm_month", prices, count(number, "alarm"), assumed=False),
        cost_item(
            "dashboard", 1, "cloudwatch.dashboard_month", prices, "one for the environment", assumed=False
        ),
    ]
    history = environment.history
    if history is not None:
        vcpu, memory = history.vcpu, history.memory_gib
        items += [
            cost_item(
                "history server vCPU",
                vcpu * HOURS,
                "fargate.vcpu_hour",
                prices,
                f"{vcpu} vCPU",
                assumed=False,
            ),
            cost_item(
                "history server memory",
                memory * HOURS,
                "fargate.gib_hour",
                prices,
                f"{memory} GiB",
                assumed=False,
            ),
            cost_item(
                "load balancer", HOURS, "alb.hour", prices, "without its capacity units", assumed=False
            ),
        ]
    return tuple(items)


def metric_cost_items(
    environment: Environment, streams: Mapping[str, StreamPlan], prices: PriceTable
) -> tuple[CostItem, ...]:
    """Return the cost of metrics: ours, then those of shards of streams with shard-level metrics.

    Parameters
    ----------
    streams
        Their shards; for on-demand streams, those that AWS opens.
    prices
        Prices of the environment's region. Tiers count as if the account had no other metrics.
    """
    ours = metric_count(environment)
    of_shards = {
        name: int(streams[name].expected_partitions.value * service_limits()["kinesis.shard_metrics"])
        for name, stream in environment.streams.items()
        if stream.has_shard_metrics
    }
    lines = list(_metric_cost_items_by_tier("metrics", 0, ours, f"{ours} of ours", prices, assumed=False))
    if of_shards:
        each = ", ".join(f"{count:,} of {name}" for name, count in of_shards.items())
        guess = any(streams[name].expected_partitions.assumed for name in of_shards)
        count = sum(of_shards.values())
        lines += _metric_cost_items_by_tier(
            "shard metrics",
            ours,
            count,
            f"{service_limits()['kinesis.shard_metrics']:g} a shard: {each}",
            prices,
            assumed=guess,
        )
    return tuple(lines)


def _metric_cost_items_by_tier(
    name: str, before: int, count: int, why: str, prices: PriceTable, *, assumed: bool
) -> Iterator[CostItem]:
    """Yield a line for each tier that ``count`` metrics after the first ``before`` reach, the cheapest tier last."""
    for begin, tier, within in quantity_by_tier(count, _TIERS, before):
        words = why if begin == 0 else f"{within:,} after the first {begin:,}: {why}"
        yield cost_item(name, within, f"cloudwatch.{tier}metric_month", prices, words, assumed=assumed)
