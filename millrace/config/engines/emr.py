"""EMR Serverless: its streaming jobs and its worker sizes (user guide, "Worker configurations"). Read in November 2026."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache, partial
from itertools import product
from typing import Annotated, ClassVar, Literal

from pydantic import BeforeValidator, Field

from millrace.config.base import Model, remove_schema_default
from millrace.config.document.problems import Finding, Path, findings_for_refused_keys
from millrace.config.engines.base import GIB, HourlyBillItem, Job, JobBase, Worker
from millrace.config.engines.versions import check_engine_version, spark_version_by_engine_version
from millrace.config.units import Duration, Size, format_duration

LONGEST_IDLE = timedelta(days=7)
_MINUTE = timedelta(minutes=1)
_SMALLEST_VCPU = 2
"""Smallest worker that is offered unless the job asks for one core: nobody measured a driver on one."""

EMR_MEMORY_GIB: dict[int, tuple[int, ...]] = {
    1: tuple(range(2, 9)),
    2: tuple(range(4, 17)),
    4: tuple(range(8, 31)),
    8: tuple(range(16, 61, 4)),
    16: tuple(range(32, 121, 8)),
}
"""Memory in GiB that EMR Serverless accepts for a worker, by vCPUs."""

EMR_DISK_GIB = (20, 200)
"""Smallest and largest disk of an EMR Serverless worker."""


def describe_emr_memory_range(vcpu: int) -> str:
    """Return the memory that a number of vCPUs allows: ``16GiB to 60GiB in steps of 4GiB``."""
    sizes = EMR_MEMORY_GIB[vcpu]
    step = sizes[1] - sizes[0]
    return f"{sizes[0]}GiB to {sizes[-1]}GiB in steps of {step}GiB"


class EmrWorker(Model):
    """Size of an EMR Serverless worker."""

    vcpu: Literal[1, 2, 4, 8, 16] = Field(default=4, description="vCPU of a worker: 1, 2, 4, 8 or 16.")
    memory: Size = Field(
        default="16GiB",  # type: ignore[assignment]  # pydantic parses the default (validate_default)
        description="Memory of a worker, in the steps that EMR Serverless offers for its vCPU.",
    )
    disk: Size = Field(
        default="20GiB",  # type: ignore[assignment]  # as above
        description="Disk of a worker for shuffle and state; the first 20 GiB cost nothing.",
    )


class EmrJob(JobBase):
    """An EMR Serverless streaming job on an application of its own."""

    title = "EMR Serverless"
    spark_version_by_engine_version: ClassVar[Mapping[str, str]] = spark_version_by_engine_version("emr")
    heap_share = "memory.heap_share.emr"
    scales_itself = False
    named = "an EMR Serverless application"
    # Its user guide, "Endpoints and quotas".
    zones: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "us-east-1": ("use1-az1", "use1-az2", "use1-az4", "use1-az5", "use1-az6"),
        "us-east-2": ("use2-az1", "use2-az2", "use2-az3"),
    }
    by_architecture = True
    english_tags = True
    remote_writes = True
    carries_libraries = True
    reads_aggregates = False

    engine: Literal["emr"]
    version: Annotated[str, BeforeValidator(partial(check_engine_version, "emr"))] = Field(
        default="emr-7.14.0",
        description="Release label of EMR; docs/engines.md lists the contents of each. A later one is a warning.",
        examples=["emr-7.13.0", "emr-7.14.0", "emr-spark-8.1.0"],
    )
    worker: EmrWorker = Field(
        default=EmrWorker(),
        description="Size of a worker; left out, the plan chooses.",
        json_schema_extra=remove_schema_default,
    )
    architecture: Literal["x86_64", "arm64"] = Field(
        default="x86_64", description="Processor of the workers; arm64 costs less per vCPU."
    )
    image: str | None = Field(
        default=None,
        pattern=r"^[0-9]{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[a-z0-9/._-]+(:[A-Za-z0-9_.-]+|@sha256:[0-9a-f]{64})$",
        description="An image in Amazon ECR for driver and executors, built on the image of the release. The "
        "policy of its repository must let EMR Serverless pull it. Left out, AWS's image.",
    )
    python: str = Field(
        default="/usr/bin/python3.11",
        pattern=r"^/[\w./+-]+$",
        description="Path of Python 3.11 or later in the image. It is always set, because the default Python of "
        "AWS's images is older.",
    )
    retries_per_hour: int = Field(
        default=5, ge=1, le=10, description="Most attempts of a job run in an hour; 1 means no retry."
    )
    min_executors: int | None = Field(
        default=None,
        ge=1,
        description="Minimum of executors; left out, as many as the average traffic needs.",
    )
    initial_executors: int | None = Field(
        default=None,
        ge=1,
        description="Executors at a start; left out, all, because a start usually finds a backlog.",
    )
    idle_stop: Duration = Field(
        default=timedelta(minutes=15), description="An application without a run stops after this time."
    )

    @property
    def tasks_per_worker(self) -> int:
        """One for each vCPU."""
        return self.worker.vcpu

    @property
    def disk_gib(self) -> int:
        """Disk from the file."""
        return self.worker.disk // GIB

    @property
    def hourly_bill_items(self) -> tuple[HourlyBillItem, ...]:
        """vCPU, memory, and the disk above the included size."""
        return _emr_hourly_bill_items(
            self.worker.vcpu, self.worker.memory / GIB, self.worker.disk / GIB, self.architecture
        )

    def check(self, path: Path) -> Iterator[Finding]:
        """Check that worker sizes are valid together, and that counts and times are within the service's limits."""
        worker, here = self.worker, (*path, "worker")
        if worker.memory not in {gib * GIB for gib in EMR_MEMORY_GIB[worker.vcpu]}:
            yield Finding(
                (*here, "memory"),
                worker.memory.human_readable(),
                f"with {worker.vcpu} vCPU: {describe_emr_memory_range(worker.vcpu)}",
            )
        smallest, largest = EMR_DISK_GIB
        if not smallest * GIB <= worker.disk <= largest * GIB or worker.disk % GIB:
            yield Finding(
                (*here, "disk"), worker.disk.human_readable(), f"{smallest}GiB to {largest}GiB, in whole GiB"
            )
        if self.scaling == "fixed":
            allowed = "nothing with scaling: fixed, which holds all executors"
            yield from findings_for_refused_keys(path, self, ("min_executors", "initial_executors"), allowed)
        elif self.initial_executors is not None and self.initial_executors < (self.min_executors or 1):
            yield Finding(
                (*path, "initial_executors"),
                str(self.initial_executors),
                f"at least {self.min_executors}, as min_executors says",
            )
        if not _MINUTE <= self.idle_stop <= LONGEST_IDLE or self.idle_stop % _MINUTE:
            yield Finding(
                (*path, "idle_stop"), format_duration(self.idle_stop), "whole minutes, up to 7 days"
            )

    @classmethod
    def possible_workers(cls, required: Job, needed: Callable[[int, float], float]) -> Iterator[Worker]:
        """Yield workers with the least sufficient memory for each architecture and number of cores, and the job's own."""
        own = required if isinstance(required, cls) else None
        pinned = own.worker if own is not None and own.worker_is_given else None
        disk = EMR_DISK_GIB[0] if own is None else own.disk_gib
        architectures: tuple[Literal["x86_64", "arm64"], ...] = ("x86_64", "arm64")
        for vcpu, sizes in EMR_MEMORY_GIB.items():
            if vcpu < _SMALLEST_VCPU and (pinned is None or pinned.vcpu != vcpu):
                continue
            least = needed(vcpu, sizes[-1])
            gibs = {next((size for size in sizes if size >= least), sizes[-1])}
            if pinned is not None and pinned.vcpu == vcpu:
                gibs.add(int(pinned.memory / GIB))
            for architecture, gib in product(architectures, sorted(gibs)):
                is_own_size = pinned is None or (vcpu, gib) == (pinned.vcpu, pinned.memory / GIB)
                yield Worker(
                    name=f"{vcpu} vCPU {gib} GiB",
                    architecture=architecture,
                    vcpu=vcpu,
                    memory_gib=gib,
                    tasks=vcpu,
                    own=own is not None and architecture == own.architecture and is_own_size,
                    hourly_bill_items=_emr_hourly_bill_items(vcpu, gib, disk, architecture),
                )

    def with_worker(self, worker: Worker) -> EmrJob:
        """Return the job with other vCPUs and memory."""
        sizes = {"vcpu": worker.vcpu, "memory": f"{worker.memory_gib:g}GiB", "disk": f"{self.disk_gib}GiB"}
        return self.model_copy(update={"worker": EmrWorker.model_validate(sizes)})


@cache
def _emr_hourly_bill_items(
    vcpu: int, gib: float, disk: float, architecture: str
) -> tuple[HourlyBillItem, ...]:
    cores, memory = f"emr.{architecture}.vcpu_hour", f"emr.{architecture}.gib_hour"
    bills = [
        HourlyBillItem(
            "vCPU", vcpu, (cores, cores), f"at most, {{count}} workers of {vcpu} vCPU for {{hours}} h"
        ),
        HourlyBillItem(
            "memory", gib, (memory, memory), f"at most, {{count}} workers of {gib:g} GiB for {{hours}} h"
        ),
    ]
    extra = disk - EMR_DISK_GIB[0]
    if extra > 0:
        why = f"{extra:g} GiB above the {EMR_DISK_GIB[0]} that are included, on {{count}} workers"
        bills.append(HourlyBillItem("disk", extra, ("emr.disk_gib_hour",) * 2, why))
    return tuple(bills)
