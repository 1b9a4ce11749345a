"""AWS Glue: its streaming jobs and its worker types by version.

AWS Glue developer guide, "AWS Glue worker types" and "Configuring job properties" (tasks per worker). Read in November 2026.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from types import MappingProxyType
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from millrace.config.base import remove_schema_default
from millrace.config.document.explain_validation_errors import findings_of_unknown_name
from millrace.config.document.problems import Finding, Path
from millrace.config.engines.base import HourlyBillItem, Job, JobBase, Worker
from millrace.config.engines.versions import check_engine_version, spark_version_by_engine_version
from millrace.config.units import Duration, format_duration

LONGEST_TIMEOUT = timedelta(days=7)
_MINUTE = timedelta(minutes=1)


@dataclass(frozen=True)
class GlueWorker:
    """One Glue worker type.

    Attributes
    ----------
    dpu
        Data processing units that AWS bills for one worker.
    memory_optimized
        Whether they are memory DPUs, which have a separate price.
    vcpu, memory_gib
        Size of one worker.
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
WORKERS: Mapping[str, GlueWorker] = MappingProxyType({worker.name: worker for worker in _WORKERS})
"""Worker types by name; without ``Standard``, which runs two executors per worker and is not in any version since 3.0."""


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


@cache
def glue_workers(version: str) -> dict[str, GlueWorker]:
    """Return the worker types that a Glue version offers to streaming jobs, by name.

    Parameters
    ----------
    version
        Such as ``5.1``; versions before 5.1 are accepted for jobs that Millrace did not create.
    """
    major, minor = (int(part) for part in version.split("."))
    return {name: worker for name, worker in WORKERS.items() if worker.since <= (major, minor)}


@cache
def glue_tasks_per_worker(version: str, worker: str) -> int:
    """Return the number of tasks that run at once on one worker.

    Since Glue 3.0 a worker runs one task per vCPU; Glue 1.0 and 2.0 ran two.

    Raises
    ------
    KeyError
        The version does not offer that worker type.
    """
    tasks = glue_workers(version)[worker].vcpu
    return tasks if int(version.split(".")[0]) >= 3 else 2 * tasks


_STREAMING_ONLY = frozenset({"G.025X"})
"""Worker types that only streaming jobs may use; a bounded run is a job of type ``glueetl``."""


class GlueJob(JobBase):
    """A Glue streaming job."""

    title = "Glue"
    spark_version_by_engine_version: ClassVar[Mapping[str, str]] = spark_version_by_engine_version("glue")
    ships = frozenset({"kafka-client", "postgresql"})
    heap_share = "memory.heap_share.glue"
    describes_streams = True
    # Groups below its prefix, and the security configuration's name that Glue appends.
    log_group_endings = ("/*", "-{job}*")
    metric_namespaces = ("Glue",)
    # Its developer guide asks streaming jobs for a connection for Kafka only.
    runs_without_vpc = True
    bounded_bill_is_unproven = True

    engine: Literal["glue"]
    version: Annotated[str, BeforeValidator(partial(check_engine_version, "glue"))] = Field(
        default="5.1",
        description="Version of Glue; docs/engines.md lists the contents of each. A later one is a warning.",
        examples=["5.1", "6.0"],
    )
    worker: str = Field(
        default="G.1X",
        description="Worker type, such as G.025X, G.1X, G.2X; left out, the plan chooses.",
        json_schema_extra=remove_schema_default,
    )
    network: Literal["vpc", "none"] | None = Field(
        default=None,
        description="`none` runs the job outside of any VPC: it reaches AWS by the public endpoints of its services, with TLS and "
        "IAM, and pays for no endpoints of its own. `vpc` runs it in the environment's network. Left out, the plan takes `none` "
        "where the job needs no VPC, the file has no section `network`, and the job is not deployed in one.",
        examples=["none"],
    )
    maintenance_window: str = Field(
        default="Sun:5",
        pattern=r"^(Mon|Tue|Wed|Thu|Fri|Sat|Sun):([01]?[0-9]|2[0-3])$",
        description="Day and hour (UTC) at which Glue may restart the job; Glue restarts every streaming job once a week.",
    )
    retries: int = Field(
        default=0,
        ge=0,
        le=10,
        description="Runs that Glue itself starts after a failed run; with 0, `restarts_per_hour` alone limits "
        "and counts the restarts.",
    )
    timeout: Duration | None = Field(
        default=None,
        description="Ends a run after this time, below 7 days; left out, a run has no time limit.",
    )

    @property
    def display_version(self) -> str:
        """The version with the engine's name."""
        return f"Glue {self.version}"

    @property
    def tasks_per_worker(self) -> int:
        """One for each vCPU."""
        return glue_tasks_per_worker(self.version, self.worker)

    @property
    def disk_gib(self) -> int:
        """Disk of a worker in GB; its type decides it."""
        return GLUE_DISK_GIB[self.worker]

    @property
    def hourly_bill_items(self) -> tuple[HourlyBillItem, ...]:
        """DPU hours of the worker."""
        return glue_hourly_bill_items(self.version, glue_workers(self.version)[self.worker])

    def check(self, path: Path) -> Iterator[Finding]:
        """Check that the version offers the worker and that Glue accepts the timeout."""
        workers = list(glue_workers(self.version))
        yield from findings_of_unknown_name(
            (*path, "worker"), self.worker, workers, f"with {self.display_version}"
        )
        if self.has_bounded_runs and self.worker in _STREAMING_ONLY:
            yield Finding(
                (*path, "worker"), self.worker, "G.1X or larger: AWS has this type for streaming jobs only"
            )
        if self.timeout is not None and (self.timeout >= LONGEST_TIMEOUT or self.timeout % _MINUTE):
            yield Finding(
                (*path, "timeout"),
                format_duration(self.timeout),
                "whole minutes, below 7 days, or nothing: then the job runs on and on",
            )

    @classmethod
    def possible_workers(
        cls,
        required: Job,
        needed: Callable[[int, float], float],  # noqa: ARG003 - no worker type is left out for its memory
    ) -> Iterator[Worker]:
        """Yield all worker types of the job's version."""
        own = required if isinstance(required, cls) else None
        version = str(cls.model_fields["version"].default) if own is None else own.version
        for each in glue_workers(version).values():
            if required.has_bounded_runs and each.name in _STREAMING_ONLY:
                continue
            yield Worker(
                name=each.name,
                architecture="x86_64",
                vcpu=each.vcpu,
                memory_gib=each.memory_gib,
                tasks=glue_tasks_per_worker(version, each.name),
                own=own is not None and (not own.worker_is_given or each.name == own.worker),
                hourly_bill_items=glue_hourly_bill_items(version, each),
            )

    def with_worker(self, worker: Worker) -> GlueJob:
        """Return the job with another worker type."""
        return self.model_copy(update={"worker": worker.name})


@cache
def glue_hourly_bill_items(version: str, worker: GlueWorker) -> tuple[HourlyBillItem, ...]:
    """Return the item that AWS bills for an hour of a worker: its DPUs, at the version's own price if it has one."""
    unit = "memory_dpu_hour" if worker.memory_optimized else "dpu_hour"
    price = (f"glue.{version}.{unit}", f"glue.{unit}")
    why = f"at most, {{count}} {worker.name} of {worker.dpu:g} DPU for {{hours}} h"
    return (HourlyBillItem("workers", worker.dpu, price, why),)
