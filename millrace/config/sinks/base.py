"""What every kind of sink says of itself: its keys, and what checks, planning, deployment and documents ask it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import StringConstraints

from millrace.config.base import Model, TableName
from millrace.config.grants import Grant
from millrace.config.problems import Finding, Path
from millrace.config.sources import Stream

if TYPE_CHECKING:
    from millrace.config.model import Environment, Job
    from millrace.config.names import Names

Column = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of a column."""


@dataclass(frozen=True)
class SinkPromise:
    """A row of the table in ``docs/sinks.md``: what a row becomes, what is promised of it, and what batches report."""

    row: str
    promise: str
    broken: str
    counts: str


@dataclass(frozen=True)
class SinkUse:
    """Where a file asks for a sink.

    Attributes
    ----------
    path
        Of the sink in the file.
    read
        Names of the streams whose records reach the query.
    job, environment
        The query's job, and the environment's valid parts.
    root
        The project, where certificates are looked up.
    """

    path: Path
    read: frozenset[str]
    job: Job
    environment: Environment
    root: FilePath


@dataclass(frozen=True)
class SinkContext:
    """Where a sink is deployed, and what its query brings.

    Attributes
    ----------
    batch_bytes
        That arrive at the peak between two triggers.
    deletes
        Whether a row may delete what has its identity.
    streams_key
        ARN of the key of the environment's own streams; None when it has none.
    """

    names: Names
    batch_bytes: float = 0.0
    deletes: bool = False
    streams_key: str | None = None


class SinkConfig(Model, ABC):
    """A kind of sink.

    Attributes
    ----------
    promise
        What it promises, for the documentation.
    named_by
        Key of the file that names what is written.
    refuses
        Whether a single row can be wrong for it, so that it needs a table of dead letters.
    replaces
        Whether a later result can take the place of an earlier one with its key.
    in_catalog
        Whether it is a table of the environment's database.
    in_lake
        Whether its files lie in the lake's bucket, and are on the plan's bill.
    in_python
        Whether rows pass through Python, which takes memory beside the heap.
    services, gateways
        Services that are called from the VPC, by the names of their interface and gateway endpoints.
    jars
        Groups of jars that EMR Serverless lacks, each with the reason in words.
    lake_formats, spark_extensions, spark
        What Glue puts on the class path (``--datalake-formats``), and Spark settings.
    paid_by_write
        What AWS counts of its writes, where they are on no line of a plan's bill; empty where nothing is.
    not_in_sandbox
        Why the sandbox has none; None where it has.
    keeps
        Why a query cannot start from the beginning: what is written stays; None where it can.
    """

    promise: ClassVar[SinkPromise]
    named_by: ClassVar[str] = "table"
    refuses: ClassVar[bool] = True
    replaces: ClassVar[bool] = True
    in_catalog: ClassVar[bool] = False
    in_lake: ClassVar[bool] = False
    in_python: ClassVar[bool] = False
    services: ClassVar[tuple[str, ...]] = ()
    gateways: ClassVar[tuple[str, ...]] = ()
    jars: ClassVar[Mapping[str, str]] = {}
    lake_formats: ClassVar[tuple[str, ...]] = ()
    spark_extensions: ClassVar[tuple[str, ...]] = ()
    spark: ClassVar[Mapping[str, str]] = {}
    paid_by_write: ClassVar[str] = ""
    not_in_sandbox: ClassVar[str | None] = None
    keeps: ClassVar[str | None] = None

    kind: str

    @property
    def target(self) -> tuple[str, str]:
        """Key of the file that names what is written, and its name where two sinks must not share it."""
        return self.named_by, f"{self.kind} {getattr(self, self.named_by)}"

    @property
    def catalog_table(self) -> TableName | None:
        """Its table in the environment's database; None where it is no such table."""
        return getattr(self, self.named_by) if self.in_catalog else None

    @property
    def ports(self) -> tuple[int, ...]:
        """On which servers listen outside the VPC that is made here."""
        return ()

    def clusters(self, streams: Mapping[str, Stream]) -> tuple[str, ...]:
        """Logical names of the Kafka clusters that it connects to."""
        return ()

    def manual_erasure(self, where: str, context: SinkContext) -> str | None:
        """What a person does to erase records there; None where ``millrace erase`` reaches it.

        Parameters
        ----------
        where
            Condition on its rows, SQL.
        """
        return f"delete its rows where {where}, with its own means"

    def check(self, use: SinkUse) -> Iterable[Finding]:
        """Find what its keys alone do not tell."""
        return ()

    @abstractmethod
    def settings(self, context: SinkContext) -> dict[str, Any]:
        """Write it for the launch document; the keys are the fields of its class in ``etl.sinks``."""

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        """What a job may do that writes it; statements of one name are made one."""
        yield from ()
