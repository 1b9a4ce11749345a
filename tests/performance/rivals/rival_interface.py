"""The job that every rival does, and what a rival has to offer."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from millrace.sandbox.programs.child_processes import ChildProcess
from millrace.sandbox.programs.toolchain import program_variables

JOBS = Path(__file__).parent / "jobs"
NAMESPACE = "rivals"
CORES = 2

COLUMNS = {
    **dict.fromkeys(("year", "month", "day", "dep_time", "sched_dep_time"), "int"),
    "dep_delay": "double",
    **dict.fromkeys(("arr_time", "sched_arr_time"), "int"),
    "arr_delay": "double",
    "carrier": "string",
    "flight": "int",
    **dict.fromkeys(("tailnum", "origin", "dest"), "string"),
    **dict.fromkeys(("air_time", "distance"), "double"),
    **dict.fromkeys(("hour", "minute"), "int"),
    "time_hour": "timestamp",
    "id": "bigint",
    "sent": "bigint",
}
"""A flight, its number in the ledger, and when it was sent, in milliseconds since 1970."""

_ARROW = {
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "string": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}
SCHEMA = pa.schema([(name, _ARROW[kind]) for name, kind in COLUMNS.items()])
DDL = ", ".join(f"{name} {kind.upper()}" for name, kind in COLUMNS.items())


@dataclass(frozen=True)
class Place:
    """What one rival reads, and where it writes.

    Attributes
    ----------
    home
        Its folder, empty at the first start, as it was left after a kill.
    database, warehouse
        Of the catalog: Iceberg's JDBC catalog in an SQLite file, the same for all.
    seconds
        Between two commits, where a rival can be told.
    """

    bootstrap: str
    topic: str
    home: Path
    database: Path
    warehouse: str
    table: str
    seconds: float
    per_batch: int = 200_000

    @property
    def jdbc(self) -> str:
        """Address of the catalog for Java."""
        return f"jdbc:sqlite:{self.database}?busy_timeout=30000&journal_mode=WAL"

    def told(self) -> dict[str, Any]:
        """What a job in Python is told."""
        return {
            "bootstrap": self.bootstrap, "topic": self.topic, "home": str(self.home), "jdbc": self.jdbc,
            "catalog": {"uri": f"sqlite:///{self.database}?timeout=30", "warehouse": self.warehouse},
            "warehouse": self.warehouse, "table": f"{NAMESPACE}.{self.table}", "columns": COLUMNS, "ddl": DDL,
            "seconds": self.seconds, "per_batch": self.per_batch,
        }  # fmt: skip


class Rival(ABC):
    """A way to land flights of a topic in a table."""

    name: str
    versions: str
    """Of its parts, for people."""

    job: str
    """File with all that its user writes, in ``jobs``."""

    makes_table = False
    """Whether it creates its table itself."""

    @abstractmethod
    def fetch(self) -> None:
        """Download what it needs.

        Raises
        ------
        UnavailableError
            It cannot be had.
        """

    @abstractmethod
    def start(self, place: Place) -> ChildProcess:
        """Start it, for the first time or after a kill."""

    @property
    def lines(self) -> int:
        """Lines of the job's file that are neither empty nor a comment."""
        text = (JOBS / self.job).read_text().splitlines()
        return sum(1 for line in text if line.strip() and not line.strip().startswith(("#", '"""')))


def environment(**more: str) -> Mapping[str, str]:
    """Variables of a rival's process."""
    return {**program_variables(), **more}


def payloads(templates: list[bytes], first: int, count: int) -> Iterator[bytes]:
    """Flights with their numbers and the time at which each is taken from here."""
    for number in range(first, first + count):
        start = templates[number % len(templates)][:-1]
        yield start + b',"id":%d,"sent":%d}' % (number, time.time_ns() // 1_000_000)


def load() -> float:
    """Processes that wanted a core in the last minute."""
    return round(os.getloadavg()[0], 1)
