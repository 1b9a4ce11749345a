"""Range of a job's executors, between which dynamic allocation moves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from millrace.config.document.problems import Finding
from millrace.config.model import Job
from millrace.sizing.plan_model import Figure, FigureInput, ScalingPlan, pinned_figure
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.sizing_formulas import CoreSpread, whole_cores
from millrace.sizing.readable_numbers import count


def scaling_plan_and_findings(
    name: str,
    job: Job,
    demands: Sequence[QueryDemand],
    executors: Figure[int],
    each: int,
    ratio: Figure[float],
    worker: Callable[[], FigureInput],
) -> tuple[ScalingPlan, list[Finding]]:
    """Return the range of executors, and the findings that prevent it."""
    known = service_limits()
    assumed = any(demand.assumed for demand in demands)

    if job.scales_itself:
        why = f"{job.title} starts and shrinks as it likes; one executor always stays"
        return ScalingPlan(
            Figure(1, "executors", why),
            Figure(
                executors.value,
                "executors",
                "a start finds a backlog",
                inputs=lambda: (f"jobs.{name}.executors",),
            ),
            None,
            None,
            None,
        ), []
    asked_least, asked_first = job.least_and_initial_executors
    average = whole_cores(sum(demand.least_cores * demand.average for demand in demands))
    least = min(executors.value, math.ceil(average / each))
    minimum = (
        Figure(
            least,
            "executors",
            f"{count(average, 'core')} carry the average",
            assumed=assumed,
            inputs=lambda: (*(f"{demand.number_key_prefix}.cores" for demand in demands), worker()),
        )
        if asked_least is None
        else pinned_figure(asked_least, "executors", "pinned", ("jobs", name, "min_executors"))
    )
    initial = (
        Figure(
            executors.value,
            "executors",
            "all: a start finds the backlog of its stop",
            assumed=assumed,
            inputs=lambda: (f"jobs.{name}.executors",),
        )
        if asked_first is None
        else pinned_figure(asked_first, "executors", "pinned", ("jobs", name, "initial_executors"))
    )
    idle, shuffle = "scaling.emr.idle_timeout_seconds", "scaling.emr.shuffle_timeout_seconds"
    plan = ScalingPlan(
        minimum,
        initial,
        ratio,
        Figure(
            int(known[idle]),
            "s",
            "an executor that ran nothing for so long goes",
            inputs=lambda: (known.as_input(idle),),
        ),
        Figure(
            int(known[shuffle]),
            "s",
            "one that holds shuffled data stays so long",
            inputs=lambda: (known.as_input(shuffle),),
        ),
    )
    return plan, _findings_of_executor_pins_above_plan(name, job, executors.value)


def allocation_ratio(
    demands: Sequence[QueryDemand],
    spreads: Sequence[CoreSpread],
    sources: Sequence[SourcePartitions],
    cores: int,
) -> Figure[float]:
    """Return the share of its tasks' executors that a job asks for: AWS's 0.7, or more if all cores would not be among them.

    Dynamic allocation asks for at most ``ceil(ratio · tasks / cores of an executor)`` executors (Spark configuration guide,
    "Dynamic Allocation"), so with a task for each core a ratio below 1 never brings back executors that were idle.
    """
    known, name = service_limits(), "scaling.emr.allocation_ratio"
    advised = known[name]
    needed = max(
        1.0
        if spread_.repartition is not None or not demand.lands or source.limits_parts
        else cores / source.tasks
        for demand, spread_, source in zip(demands, spreads, sources, strict=True)
    )
    if needed <= advised:
        why = "fewer executors than tasks would fill: AWS's advice for streaming"
        return Figure(advised, "share", why, inputs=lambda: (known.as_input(name),))
    return Figure(
        min(1.0, math.ceil(needed * 100) / 100),
        "share",
        "a batch has no more tasks than this asks for cores: AWS's 0.7 would leave some away",
        inputs=lambda: (*(f"{demand.number_key_prefix}.cores" for demand in demands), known.as_input(name)),
    )


def _findings_of_executor_pins_above_plan(name: str, job: Job, most: int) -> list[Finding]:
    asked = zip(("min_executors", "initial_executors"), job.least_and_initial_executors, strict=True)
    return [
        Finding(("jobs", name, key), str(value), f"at most {most}, the executors of the plan")
        for key, value in asked
        if value is not None and value > most
    ]
