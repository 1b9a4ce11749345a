"""Base of all sinks: their keys, and what checks, planning and deployment need from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import StringConstraints

from millrace.config.aws.iam_statements import Grant
from millrace.config.base import Model, TableName
from millrace.config.document.problems import Finding, Path
from millrace.config.sources import Stream
from millrace.etl.launch import sinks as launch

if TYPE_CHECKING:
    from millrace.config.aws.resource_names import Names
    from millrace.config.model import Environment

Column = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
"""Name of a column."""


@dataclass(frozen=True)
class SinkUse:
    """A place in the file that uses a sink.

    Attributes
    ----------
    path
        Path of the sink in the file.
    read
        Names of the streams whose records reach the query.
    environment
        Its valid parts.
    root
        Folder of the project, with certificates.
    """

    path: Path
    read: frozenset[str]
    environment: Environment
    root: FilePath


@dataclass(frozen=True)
class SinkContext:
    """Deployment of a sink, and properties of its query.

    Attributes
    ----------
    batch_bytes
        Bytes that arrive at the peak between two triggers.
    deletes
        Whether a row may delete the row with its identity.
    streams_key
        ARN of the key of the environment's own streams; None if there is none.
    """

    names: Names
    batch_bytes: float = 0.0
    deletes: bool = False
    streams_key: str | None = None


class SinkConfig(Model, ABC):
    """A kind of sink; ``docs/sinks.md`` says what it guarantees.

    Attributes
    ----------
    named_by
        Key of the file that names the table, topic, stream or index.
    refuses
        Whether it can refuse a single row, so that it needs a table of dead letters.
    replaces
        Whether a later result can replace an earlier one with the same key.
    in_catalog
        Whether it is a table of the environment's database.
    in_lake
        Whether its files are in the lake's bucket, and on the plan's bill.
    in_python
        Whether rows pass through Python, which needs memory in addition to the heap.
    is_public
        Whether a job outside of any VPC reaches it.
    services, gateways
        Services that are called from the VPC, by the names of their interface and gateway endpoints.
    jars
        Groups of jars that EMR Serverless lacks, each with the reason in words.
    paid_by_write
        Unit in which AWS bills its writes if no line of a plan's bill has them; empty if nothing is missing.
    not_in_sandbox
        Reason why the sandbox does not support it; None if it does.
    keeps
        Reason why a query cannot start from the beginning (written rows stay); None if it can.
    """

    named_by: ClassVar[str] = "table"
    refuses: ClassVar[bool] = True
    replaces: ClassVar[bool] = True
    in_catalog: ClassVar[bool] = False
    in_lake: ClassVar[bool] = False
    in_python: ClassVar[bool] = False
    is_public: ClassVar[bool] = False
    services: ClassVar[tuple[str, ...]] = ()
    gateways: ClassVar[tuple[str, ...]] = ()
    jars: ClassVar[Mapping[str, str]] = {}
    paid_by_write: ClassVar[str] = ""
    not_in_sandbox: ClassVar[str | None] = None
    keeps: ClassVar[str | None] = None

    kind: str

    @property
    def target_key_and_name(self) -> tuple[str, str]:
        """Key of the file that names the target, and a name that no two sinks may share."""
        return self.named_by, f"{self.kind} {getattr(self, self.named_by)}"

    @property
    def catalog_table(self) -> TableName | None:
        """Its table in the environment's database; None if it is no such table."""
        return getattr(self, self.named_by) if self.in_catalog else None

    @property
    def ports_outside_vpc(self) -> tuple[int, ...]:
        """Ports of its servers that no URL of the file names."""
        return ()

    def kafka_cluster_names(self, streams: Mapping[str, Stream]) -> tuple[str, ...]:
        """Return the logical names of the Kafka clusters that it connects to."""
        return ()

    def manual_erasure_steps(self, where: str, context: SinkContext) -> str | None:
        """Return the steps to erase records there by hand; None if ``millrace erase`` does it.

        Parameters
        ----------
        where
            Condition on its rows, SQL.
        """
        return f"delete its rows where {where}, with its own means"

    def check(self, use: SinkUse) -> Iterable[Finding]:
        """Yield findings that its keys alone do not show."""
        return ()

    @abstractmethod
    def launch_settings(self, context: SinkContext) -> launch.SinkSettings:
        """Return it for the launch document."""

    def grants(self, context: SinkContext) -> Iterator[Grant]:
        """Yield the permissions of a job that writes it; statements with the same name are merged."""
        yield from ()
