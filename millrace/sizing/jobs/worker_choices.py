"""All ways to run a job's cores: engines, their workers, cost, and whether each is possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from millrace.config.engines import KINDS, Job
from millrace.config.engines.base import HourlyBillItem, Worker
from millrace.sizing.cost import HOURS, price_name
from millrace.sizing.jobs.memory import GIB, Memory
from millrace.sizing.model import WorkerChoice
from millrace.sizing.prices_and_limits import PriceTable, service_limits


def worker_usd_hour(bills: Sequence[HourlyBillItem], prices: PriceTable) -> float:
    """Return the USD of a worker per hour."""
    return sum(bill.units * prices.usd(price_name(bill)) for bill in bills)


def worker_choices(
    job: Job, cores: int, memory: Memory, prices: PriceTable, share: float = 1.0, driver_cores: int = 1
) -> tuple[tuple[WorkerChoice, ...], Job]:
    """Return all ways to run a number of cores, the plan's first, and the job with the worker of the plan.

    The plan follows the pins of the file (the engine always, its worker and architecture if they are written).
    Otherwise it takes the cheapest worker of the engine with enough memory for which the job's rate is known:
    Glue's workers with four cores a DPU or less memory, EMR workers of the job's architecture.

    Parameters
    ----------
    job
        As in the file.
    memory
        Memory that executors need.
    share
        Share of the time in which its workers are billed.
    driver_cores
        Fewest cores of a worker, as one is the driver.
    """
    known = service_limits()
    least = known["worker.join.gib_per_core"] if memory.joined else 0.0
    found: list[WorkerChoice] = []
    own: list[WorkerChoice] = []
    workers: dict[WorkerChoice, Worker] = {}
    for engine, kind in KINDS.items():

        def needed_gib(tasks: int, heap: float = known[kind.heap_share]) -> float:
            return memory.bytes_needed(tasks, math.ceil(cores / tasks), heap) / GIB

        def needed_gib_with_joins(tasks: int, needed: Callable[[int], float] = needed_gib) -> float:
            return max(needed(tasks), tasks * least)

        for worker in kind.possible_workers(job, needed_gib_with_joins):
            executors = math.ceil(cores / worker.tasks)
            usd = (executors + 1) * HOURS * share * worker_usd_hour(worker.bills, prices)
            made = WorkerChoice(
                engine,
                worker.name,
                worker.architecture,
                worker.vcpu,
                worker.memory_gib,
                executors,
                usd,
                needed_gib(worker.tasks),
            )
            judged = _judge_choice(job, made, least, driver_cores)
            workers[judged] = worker
            found.append(judged)
            if worker.own:
                own.append(judged)
    if job.worker_is_given:
        first = own[0]
    else:
        able = [each for each in own if each.refused is None and each.unproven is None]
        # If nothing is possible, the engine's default is shown with the reason.
        first = min(able or own, key=lambda each: (each.refused is not None, each.usd, each.vcpu))
    rest = sorted(
        (each for each in found if each is not first), key=lambda each: (each.refused is not None, each.usd)
    )
    sized = job if job.worker_is_given else job.with_worker(workers[first])
    return (first, *rest), sized


def _judge_choice(job: Job, choice: WorkerChoice, gib_per_core: float, driver_cores: int) -> WorkerChoice:
    known = service_limits()
    refused = unproven = None
    if choice.memory_needed_gib > choice.memory_gib:
        refused = f"an executor needs {choice.memory_needed_gib:.1f} GiB and has {choice.memory_gib:g}"
    elif choice.memory_gib < known["memory.driver_gib"]:
        refused = f"a driver needs {known['memory.driver_gib']:g} GiB and has {choice.memory_gib:g}"
    elif choice.vcpu < driver_cores:
        refused = (
            f"a driver needs {driver_cores} cores for batches that begin together, and has {choice.vcpu}"
        )
    if choice.engine != job.engine:
        unproven = f"the rate is that of {job.engine}"
    elif choice.architecture != job.processors:
        unproven = f"the rate is that of {job.processors}"
    elif choice.memory_gib / choice.vcpu < gib_per_core:
        unproven = "a join holds whole batches, which a longer trigger makes larger"
    return replace(choice, refused=refused, unproven=unproven)
