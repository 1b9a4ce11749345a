"""All ways to run a job's cores: engines, their workers, cost, and whether each is possible."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from millrace.config.engines import KINDS, Job
from millrace.config.engines.base import HourlyBillItem, Worker
from millrace.sizing.cost import HOURS, price_name
from millrace.sizing.jobs.memory import GIB, ExecutorMemory
from millrace.sizing.plan_model import WorkerChoice
from millrace.sizing.prices_and_limits import PriceTable, service_limits


def worker_usd_hour(bills: Sequence[HourlyBillItem], prices: PriceTable) -> float:
    """Return the USD of a worker per hour."""
    return sum(bill.units * prices.usd(price_name(bill)) for bill in bills)


def own_worker_sizes(job: Job) -> set[int]:
    """Return the tasks at once of the workers that a job's file allows."""
    return {each.tasks for each in type(job).possible_workers(job, lambda *_: 0.0) if each.own}


def least_workers_usd(job: Job, cores: int, prices: PriceTable) -> float:
    """Return the least dollars of a job's workers, whatever memory they need; infinity where its pins do not allow the cores."""
    if cores > (job.cores or math.inf):
        return math.inf
    costs = [math.inf]
    for each in type(job).possible_workers(job, lambda *_: 0.0):
        workers = math.ceil((job.cores or cores) / each.tasks) + 1
        if each.own and workers <= (job.max_workers or math.inf):
            paid = job.max_workers or workers
            costs.append(paid * HOURS * worker_usd_hour(each.hourly_bill_items, prices))
    return min(costs)


def worker_offer_and_all_choices(
    job: Job,
    cores: int,
    memory: ExecutorMemory,
    prices: PriceTable,
    share: float = 1.0,
    driver_cores: int = 1,
) -> tuple[WorkerOffer, Callable[[], tuple[WorkerChoice, ...]]]:
    """Return the plan's way to run a number of cores, and a function that lists all ways, the plan's first.

    The plan follows the pins of the file (the engine always, its worker and architecture if they are written).
    Otherwise it takes the cheapest worker of the engine with enough memory for which the job's rate is known, and of which no more
    are necessary than a pin allows: Glue's workers with four cores a DPU or less memory, EMR workers of the job's architecture.

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
    least = service_limits()["worker.join.gib_per_core"] if memory.joined else 0.0
    architecture = job.processor_architecture

    def offers(engine: str, *, own: bool = False) -> Iterator[WorkerOffer]:
        kind = KINDS[engine]
        heap = service_limits()[kind.heap_share]

        def gib_needed(tasks: int, executors: int) -> float:
            return memory.worker_bytes_needed(tasks, executors, heap) / GIB

        def gib_needed_on_fewest(tasks: int, most_gib: float) -> float:
            fewest = memory.fewest_executors(tasks, math.ceil(cores / tasks), heap, most_gib * GIB)
            return max(gib_needed(tasks, max(fewest, (job.max_workers or 1) - 1)), tasks * least)

        for worker in kind.possible_workers(job, gib_needed_on_fewest):
            if own and not worker.own:
                continue
            executors = memory.fewest_executors(
                worker.tasks, math.ceil(cores / worker.tasks), heap, worker.memory_gib * GIB
            )
            asked = gib_needed(worker.tasks, executors)
            workers = max(executors + 1, job.max_workers or 0)
            yield WorkerOffer(
                engine,
                worker,
                executors,
                workers * HOURS * share * worker_usd_hour(worker.hourly_bill_items, prices),
                asked,
                _reason_worker_is_too_small(worker, asked, driver_cores),
                f"the rate is that of {job.engine}"
                if engine != job.engine
                else _reason_rate_is_unproven_on_worker(architecture, worker, least),
            )

    own = [*offers(job.engine, own=True)]
    if job.worker_is_given:
        first = own[0]
    else:
        able = [each for each in own if each.refused is None and each.unproven is None]
        fitting = [each for each in able if each.executors < (job.max_workers or math.inf)]
        # If nothing is possible, the engine's default is shown with the reason.
        first = min(
            fitting or able or own, key=lambda each: (each.refused is not None, each.usd, each.worker.vcpu)
        )

    def all_choices_chosen_first() -> tuple[WorkerChoice, ...]:
        rest = [each.as_choice() for engine in KINDS for each in offers(engine) if each != first]
        return (first.as_choice(), *sorted(rest, key=lambda each: (each.refused is not None, each.usd)))

    return first, all_choices_chosen_first


class WorkerOffer(NamedTuple):
    """A worker with the number and cost of those that run a job; a search makes very many."""

    engine: str
    worker: Worker
    executors: int
    usd: float
    memory_needed_gib: float
    refused: str | None
    unproven: str | None

    def as_choice(self) -> WorkerChoice:
        """Return it as a part of the plan."""
        worker = self.worker
        return WorkerChoice(
            self.engine, worker.name, worker.architecture, worker.vcpu, worker.memory_gib, *self[2:]
        )


def _reason_worker_is_too_small(worker: Worker, needed: float, driver_cores: int) -> str | None:
    driver = service_limits()["memory.driver_gib"]
    if needed > worker.memory_gib:
        return f"an executor needs {needed:.1f} GiB and has {worker.memory_gib:g}"
    if worker.memory_gib < driver:
        return f"a driver needs {driver:g} GiB and has {worker.memory_gib:g}"
    if worker.vcpu < driver_cores:
        return f"a driver needs {driver_cores} cores for batches that begin together, and has {worker.vcpu}"
    return None


def _reason_rate_is_unproven_on_worker(architecture: str, worker: Worker, gib_per_core: float) -> str | None:
    if worker.architecture != architecture:
        return f"the rate is that of {architecture}"
    if worker.memory_gib / worker.vcpu < gib_per_core:
        return "a join holds whole batches, which a longer trigger makes larger"
    return None
