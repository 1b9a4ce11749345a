"""What no stream or job owns alone: keys, the way out of the VPC, metrics and alarms, the history server."""

from __future__ import annotations

from collections.abc import Sequence

from millrace.config.model import Environment
from millrace.sizing.cost import HOURS, item
from millrace.sizing.metrics import reported
from millrace.sizing.model import Alarm, CostItem
from millrace.sizing.network import key_classes
from millrace.sizing.tables import PriceTable


def shared_cost(
    environment: Environment, network: Sequence[CostItem], alarms: Sequence[Alarm], prices: PriceTable
) -> tuple[CostItem, ...]:
    """Return the lines of the bill that belong to the environment as a whole.

    Parameters
    ----------
    environment
        The loaded file.
    network
        What the chosen way out of the VPC costs.
    alarms
        Every alarm that is deployed.
    prices
        Of the environment's region.
    """
    made = key_classes(environment)
    items = []
    if made:
        why = f"one each: {', '.join(made)}"
        items.append(item("keys", len(made), "kms.key_month", prices, why, assumed=False))
    items += network
    metrics = reported(environment)
    items += [
        item("metrics", metrics, "cloudwatch.metric_month", prices, f"{metrics} of ours", assumed=False),
        item("alarms", len(alarms), "cloudwatch.alarm_month", prices, f"{len(alarms)} alarms", assumed=False),
        item("dashboard", 1, "cloudwatch.dashboard_month", prices, "one for the environment", assumed=False),
    ]
    history = environment.history
    if history is not None:
        vcpu, memory = history.vcpu, history.memory_gib
        items += [
            item(
                "history server vCPU",
                vcpu * HOURS,
                "fargate.vcpu_hour",
                prices,
                f"{vcpu} vCPU",
                assumed=False,
            ),
            item(
                "history server memory",
                memory * HOURS,
                "fargate.gib_hour",
                prices,
                f"{memory} GiB",
                assumed=False,
            ),
            item("load balancer", HOURS, "alb.hour", prices, "without its capacity units", assumed=False),
        ]
    return tuple(items)
