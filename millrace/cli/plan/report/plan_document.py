"""A checked plan as a document: what ``millrace plan --json`` prints and its page draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from millrace.cli.plan.report.environment_flow_chart import flow_chart
from millrace.cli.plan.report.plan_risks import SimulatedPlan
from millrace.cli.shared.verdict import Verdict, verdict_document
from millrace.config import Environment
from millrace.sizing.alternatives.doubtful_plan_inputs import FULL, share_of_limits_at_peak
from millrace.sizing.cost_saving_moves import CostSavingMove
from millrace.sizing.plan_as_plain_data import plan_as_plain_data
from millrace.sizing.plan_model import JobPlan, WorkerChoice
from millrace.sizing.queries.driver import fixed_seconds_of_batches
from millrace.sizing.queries.environment_demands import feasible_demands_of_job
from millrace.sizing.readable_numbers import count, duration_text, format_number


def plan_document(
    checked: SimulatedPlan, verdict: Verdict, moves: Sequence[CostSavingMove] = ()
) -> dict[str, Any]:
    """Return a checked plan with its verdict as an object that ``json.dumps`` takes.

    Returns
    -------
    dict
        The keys of :func:`millrace.sizing.plan_as_plain_data.plan_as_plain_data`, and ``verdict``; ``moves``, changes of the file that cost less;
        ``flow`` (:func:`millrace.cli.plan.report.environment_flow_chart.flow_chart`); ``room``, by limit (``capacity`` and ``age`` of queries, ``shards`` of
        streams) the ``share`` of it that each subject uses; ``ours`` of each stream; ``way`` and ``worst_age_seconds`` of each
        choice of a job's workers.
    """
    environment = checked.environment
    document = plan_as_plain_data(checked.plan)
    for name, stream in environment.streams.items():
        document["streams"][name]["ours"] = not stream.belongs_to_others
    for name, job in checked.plan.jobs.items():
        for choice, choice_document in zip(job.choices(), document["jobs"][name]["choices"], strict=True):
            choice_document |= {
                "way": str(choice),
                "worst_age_seconds": worst_record_age_seconds(environment, job, choice),
            }
    return {
        "version": document.pop("version"),
        "verdict": verdict_document(verdict),
        "moves": [asdict(each) for each in moves],
        **document,
        "flow": flow_chart(checked, verdict.risks),
        "room": {
            "capacity": [*_query_capacity_bars(checked)],
            # Oldest record of the simulation by the SLA; NaN if nothing was committed, and the verdict says so.
            "age": [
                _bar_item(
                    f"{each.job}/{each.query}",
                    each.oldest / each.sla,
                    f"oldest {duration_text(each.oldest)} of {duration_text(each.sla)}",
                )
                for each in checked.played
                if each.oldest == each.oldest
            ],
            "shards": [
                _bar_item(
                    name,
                    share,
                    f"of {count(sized.expected_partitions.value, stream.parts.removesuffix('s'))}",
                )
                for name, stream in environment.streams.items()
                for sized in [checked.plan.streams[name]]
                if (share := share_of_limits_at_peak(stream, sized))
            ],
        },
    }


def _bar_item(name: str, share: float, words: str) -> dict[str, Any]:
    return {
        "name": name,
        "share": share,
        "words": words,
        "severity": "breach" if share > 1 else "warning" if share > FULL else None,
    }


def _query_capacity_bars(checked: SimulatedPlan) -> Iterator[dict[str, Any]]:
    """Yield the peak as a share of the capacity of full batches."""
    for name, job in checked.plan.jobs.items():
        own = [demand for demand in checked.demands if demand.job == name]
        for demand, fixed in zip(
            own, fixed_seconds_of_batches(checked.environment.jobs[name], own, job.vcpu), strict=True
        ):
            query = job.queries[demand.query]
            if query.records_per_batch is None:
                continue
            limit, trigger = query.records_per_batch.value, query.trigger_seconds.value
            each = (query.batch_seconds.value - fixed) / (demand.work.rate * trigger)
            capacity = limit / max(trigger, fixed + limit * each)
            yield _bar_item(
                f"{name}/{demand.query}",
                demand.work.rate / capacity,
                f"{format_number(demand.work.rate)} of {format_number(capacity)} records/s",
            )


def worst_record_age_seconds(environment: Environment, job: JobPlan, choice: WorkerChoice) -> float:
    """Return the age in seconds that no record exceeds at the peak with a choice's cores: T + D, in each query.

    Cores of complete workers, including those that the queries do not need, are divided as in the plan.
    """
    own = feasible_demands_of_job(environment, job.name)
    factor = choice.executors * choice.vcpu / job.cores.value
    ages = {}
    planned, fixed = (
        fixed_seconds_of_batches(environment.jobs[job.name], own, cores) for cores in (job.vcpu, choice.vcpu)
    )
    for demand, before, after in zip(own, planned, fixed, strict=True):
        query = job.queries[demand.query]
        work = query.batch_seconds.value - before
        ages[demand.query] = query.trigger_seconds.value + after + work / factor
    landed = max((ages[demand.query] for demand in own if demand.lands), default=0.0)
    derived = max((ages[demand.query] for demand in own if not demand.lands), default=0.0)
    return landed + derived
