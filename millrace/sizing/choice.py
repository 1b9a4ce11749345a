"""Every way to run a job's cores: both engines, their workers, what each costs and whether it would do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

from millrace.config.engines import EMR_DISK_GIB, EMR_MEMORY_GIB, glue_tasks_per_worker, glue_workers
from millrace.config.model import EmrJob, EmrWorker, GlueJob, Job
from millrace.sizing.cost import HOURS
from millrace.sizing.memory import GIB, Memory
from millrace.sizing.model import Choice
from millrace.sizing.tables import PriceTable, dpu_price, limits

_GLUE_VERSION = str(GlueJob.model_fields["version"].default)
_SMALLEST_VCPU = 2
"""EMR workers of one core are left out: a driver on one core waits for itself."""


def worker_hour(choice_engine: str, worker: str, job: Job, prices: PriceTable) -> float:
    """Return USD for an hour of the worker that a job has."""
    if isinstance(job, GlueJob):
        kind = glue_workers(job.version)[worker]
        return kind.dpu * prices.usd(dpu_price(job.version, memory_optimized=kind.memory_optimized))
    assert choice_engine == "emr"
    return _emr_hour(job.worker, job.architecture, prices)


def _emr_hour(worker: EmrWorker, architecture: str, prices: PriceTable) -> float:
    disk = max(0.0, worker.disk / GIB - EMR_DISK_GIB[0]) * prices.usd("emr.disk_gib_hour")
    vcpu = worker.vcpu * prices.usd(f"emr.{architecture}.vcpu_hour")
    return vcpu + worker.memory / GIB * prices.usd(f"emr.{architecture}.gib_hour") + disk


def pinned(job: Job) -> bool:
    """Whether the file gives the worker."""
    return "worker" in job.model_fields_set


def choices(job: Job, cores: int, memory: Memory, prices: PriceTable) -> tuple[Choice, ...]:
    """Return every way to run so many cores, that of the plan first.

    What the file pins (the engine always, its worker and architecture where they are written) is the plan.
    Otherwise it is the cheapest worker of the engine that holds what it must, on which the job's rate is known
    to hold: Glue's workers with four cores a DPU, EMR workers of the job's architecture; small ones for small
    jobs only.

    Parameters
    ----------
    job
        As the file has it.
    cores
        Of the plan.
    memory
        That executors need.
    prices
        Of the region.
    """
    found = [*_glue(job, cores, memory, prices), *_emr(job, cores, memory, prices)]
    own = [each for each in found if _own(job, each)]
    if pinned(job):
        first = own[0]
    else:
        able = [each for each in own if each.refused is None and each.unproven is None]
        # Where nothing would do, what the engine gives by default is shown with its reason.
        first = min(able or own, key=lambda each: (each.refused is not None, each.usd, each.vcpu))
    rest = sorted(
        (each for each in found if each is not first), key=lambda each: (each.refused is not None, each.usd)
    )
    return (first, *rest)


def _own(job: Job, choice: Choice) -> bool:
    if choice.engine != job.engine:
        return False
    if isinstance(job, GlueJob):
        return not pinned(job) or choice.worker == job.worker
    if choice.architecture != job.architecture:
        return False
    return not pinned(job) or (choice.vcpu, choice.memory_gib) == (job.worker.vcpu, job.worker.memory / GIB)


def _glue(job: Job, cores: int, memory: Memory, prices: PriceTable) -> Iterator[Choice]:
    known = limits()
    version = job.version if isinstance(job, GlueJob) else _GLUE_VERSION
    for worker in glue_workers(version).values():
        tasks = glue_tasks_per_worker(version, worker.name)
        price = prices.usd(dpu_price(version, memory_optimized=worker.memory_optimized))
        executors = math.ceil(cores / tasks)
        usd = (executors + 1) * HOURS * worker.dpu * price
        needed = memory.needed(tasks, executors, known["memory.heap_share.glue"])
        made = Choice(
            "glue", worker.name, "x86_64", worker.vcpu, worker.memory_gib, executors, usd, needed / GIB
        )
        small = worker.memory_gib / worker.vcpu < known["worker.gib_per_core"]
        yield _judged(job, made, cores, small=small)


def _emr(job: Job, cores: int, memory: Memory, prices: PriceTable) -> Iterator[Choice]:
    known = limits()
    own = job.worker if isinstance(job, EmrJob) and pinned(job) else None
    for architecture in ("x86_64", "arm64"):
        for vcpu, sizes in EMR_MEMORY_GIB.items():
            if vcpu < _SMALLEST_VCPU and (own is None or own.vcpu != vcpu):
                continue
            executors = math.ceil(cores / vcpu)
            needed = memory.needed(vcpu, executors, known["memory.heap_share.emr"])
            least = max(needed / GIB, vcpu * known["worker.gib_per_core"])
            fitting = next((size for size in sizes if size >= least), sizes[-1])
            gibs = {fitting}
            if own is not None and own.vcpu == vcpu:
                gibs.add(int(own.memory / GIB))
            for gib in sorted(gibs):
                worker = EmrWorker.model_validate(
                    {
                        "vcpu": vcpu,
                        "memory": f"{gib}GiB",
                        "disk": f"{job.worker.disk // GIB}GiB" if isinstance(job, EmrJob) else "20GiB",
                    }
                )
                usd = (executors + 1) * HOURS * _emr_hour(worker, architecture, prices)
                name = f"{vcpu} vCPU {gib} GiB"
                made = Choice("emr", name, architecture, vcpu, gib, executors, usd, needed / GIB)
                yield _judged(job, made, cores, small=vcpu < 4)


def _judged(job: Job, choice: Choice, cores: int, *, small: bool) -> Choice:
    known = limits()
    refused = unproven = None
    if choice.memory_needed_gib > choice.memory_gib:
        refused = f"an executor needs {choice.memory_needed_gib:.1f} GiB and has {choice.memory_gib:g}"
    elif choice.memory_gib < known["memory.driver_gib"]:
        refused = f"a driver needs {known['memory.driver_gib']:g} GiB and has {choice.memory_gib:g}"
    most = known["worker.small.most_cores"]
    if choice.engine != job.engine:
        unproven = f"the rate is that of {job.engine}"
    elif isinstance(job, EmrJob) and choice.architecture != job.architecture:
        unproven = f"the rate is that of {job.architecture}"
    elif small and cores > most:
        unproven = f"small workers are for jobs of up to {most:g} cores"
    return replace(choice, refused=refused, unproven=unproven)


def resolved(job: Job, choice: Choice) -> Job:
    """Return the job with the worker of a choice of its own engine."""
    if pinned(job):
        return job
    if isinstance(job, GlueJob):
        return job.model_copy(update={"worker": choice.worker})
    worker = EmrWorker.model_validate(
        {
            "vcpu": choice.vcpu,
            "memory": f"{choice.memory_gib:g}GiB",
            "disk": f"{job.worker.disk // GIB}GiB",
        }
    )
    return job.model_copy(update={"worker": worker})
