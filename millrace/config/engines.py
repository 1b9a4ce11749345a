"""What each engine offers: Glue's worker types by version, EMR Serverless' worker sizes.

Glue: AWS Glue developer guide, "AWS Glue worker types" and "Configuring job
properties" (tasks per worker). EMR Serverless: user guide, "Worker configurations".
Read in November 2026.
"""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True)
class GlueWorker:
    """One Glue worker type.

    Attributes
    ----------
    dpu
        Data processing units that AWS bills for one worker.
    memory_optimized
        Whether they are memory DPUs, which have a price of their own.
    vcpu, memory_gib
        Of one worker.
    since
        First Glue version that offers it.
    """

    name: str
    dpu: float
    vcpu: int
    memory_gib: int
    since: tuple[int, int]
    memory_optimized: bool = False


_WORKERS = (
    GlueWorker("G.025X", 0.25, 2, 4, (3, 0)),
    GlueWorker("G.1X", 1, 4, 16, (1, 0)),
    GlueWorker("G.2X", 2, 8, 32, (1, 0)),
    GlueWorker("G.4X", 4, 16, 64, (3, 0)),
    GlueWorker("G.8X", 8, 32, 128, (3, 0)),
    GlueWorker("G.12X", 12, 48, 192, (4, 0)),
    GlueWorker("G.16X", 16, 64, 256, (4, 0)),
    GlueWorker("R.1X", 1, 4, 32, (4, 0), memory_optimized=True),
    GlueWorker("R.2X", 2, 8, 64, (4, 0), memory_optimized=True),
    GlueWorker("R.4X", 4, 16, 128, (4, 0), memory_optimized=True),
    GlueWorker("R.8X", 8, 32, 256, (4, 0), memory_optimized=True),
)
"""``Standard`` is left out: two executors share one worker there, and no version since 3.0 has it."""


GLUE_DISK_GIB = {
    "G.025X": 84,
    "G.1X": 94,
    "G.2X": 138,
    "G.4X": 256,
    "G.8X": 512,
    "G.12X": 768,
    "G.16X": 1024,
    "R.1X": 94,
    "R.2X": 138,
    "R.4X": 256,
    "R.8X": 512,
}
"""Disk of a Glue worker in GB, by its type (Glue developer guide, "AWS Glue worker types")."""


def glue_workers(version: str) -> dict[str, GlueWorker]:
    """Return the worker types that a Glue version offers to streaming jobs, by name.

    Parameters
    ----------
    version
        Such as ``5.1``; versions before 5.1 are known of jobs that others made.
    """
    major, minor = (int(part) for part in version.split("."))
    return {worker.name: worker for worker in _WORKERS if worker.since <= (major, minor)}


def glue_tasks_per_worker(version: str, worker: str) -> int:
    """Return how many tasks run at once on one worker.

    Since Glue 3.0 a worker runs one task per vCPU; Glue 1.0 and 2.0 ran two.

    Raises
    ------
    KeyError
        The version does not offer that worker type.
    """
    tasks = glue_workers(version)[worker].vcpu
    return tasks if int(version.split(".")[0]) >= 3 else 2 * tasks


EMR_MEMORY_GIB: dict[int, tuple[int, ...]] = {
    1: tuple(range(2, 9)),
    2: tuple(range(4, 17)),
    4: tuple(range(8, 31)),
    8: tuple(range(16, 61, 4)),
    16: tuple(range(32, 121, 8)),
}
"""GiB that EMR Serverless accepts for a worker of so many vCPUs."""

EMR_DISK_GIB = (20, 200)
"""Smallest and largest disk of an EMR Serverless worker."""


def emr_memory_range(vcpu: int) -> str:
    """Say which memory goes with so many vCPUs: ``16GiB to 60GiB in steps of 4GiB``."""
    sizes = EMR_MEMORY_GIB[vcpu]
    step = sizes[1] - sizes[0]
    return f"{sizes[0]}GiB to {sizes[-1]}GiB in steps of {step}GiB"


SPARK = {
    "5.1": "3.5.6",
    "6.0": "4.1.1",
    "emr-7.13.0": "3.5.6",
    "emr-spark-8.0.0": "4.0.2",
}
"""Spark of each version of Glue and release of EMR Serverless (Glue developer guide, "AWS Glue versions"; EMR release guide)."""
