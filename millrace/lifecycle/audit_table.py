"""What a landing table holds, read without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import pyarrow.compute as pc
from pyiceberg import expressions
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from millrace.lifecycle.deployed import NotDeployedError
from millrace.lifecycle.problems import AwsError, translate_aws_errors

where: Any = expressions  # whose constructors are not what pydantic's plugin for mypy takes them for

_REPLAYED = "#replay"
"""In the identity of a dead letter that was replayed (``docs/adr/0203-replay.md``): its source sent it once."""

_DIGITS = 20
"""Of an offset in ``_position``."""

_APART = timedelta(hours=1)
"""How far a Kafka record's own time may be from when it came, before its place is looked up by itself."""

_AT_ONCE = timedelta(hours=1)
"""Whose records' numbers are held in memory together."""


@contextmanager
def aws_errors(table: str) -> Iterator[None]:
    """Raise what the catalog or the store of its files refuses as an :class:`AwsError`; the store's come as the system's."""
    doing = f"reading table {table}"
    with translate_aws_errors(doing):
        try:
            yield
        except OSError as error:
            raise AwsError(f"{doing}: {error}") from error


@dataclass(frozen=True)
class Landed:
    """Records of one stream in a landing table.

    Parameters
    ----------
    table
        Read as it is when each question is asked.
    """

    table: Table
    source: str

    @classmethod
    def open(cls, catalog: Catalog, name: str, source: str) -> Self:
        """Find a table.

        Raises
        ------
        NotDeployedError
            The catalog does not have it: nothing was landed yet.
        AwsError
            The catalog or its files are refused; so with every question.
        """
        try:
            with aws_errors(name):
                return cls(catalog.load_table(name), source)
        except NoSuchTableError:
            raise NotDeployedError(f"there is no table {name}: nothing was landed yet") from None

    def offsets(self, begin: datetime, end: datetime) -> dict[tuple[str, int], set[int]]:
        """Offsets of Kafka records by topic and partition, of a window and an hour around it."""
        return self._offsets(_window(begin - _APART, end + _APART))

    def _offsets(self, rows: expressions.BooleanExpression) -> dict[tuple[str, int], set[int]]:
        found: dict[tuple[str, int], set[int]] = {}
        for batch in self._scan(rows, "_id"):
            for identity in batch["_id"].to_pylist():
                # A topic's name has no slash; after the offset there may be an ordinal of an explode.
                parts = identity.split("/")
                if _REPLAYED not in identity and len(parts) > 2 and parts[1].isdigit() and parts[2].isdigit():
                    found.setdefault((parts[0], int(parts[1])), set()).add(int(parts[2]))
        return found

    def between(self, topic: str, partition: int, first: int, last: int) -> set[int]:
        """Offsets of a partition in a range, whatever time their records say."""
        place = where.And(
            where.GreaterThanOrEqual("_position", str(first).zfill(_DIGITS)),
            where.LessThanOrEqual("_position", str(last).zfill(_DIGITS)),
        )
        start = f"{topic}/{partition}/"
        return {
            int(identity.rsplit("/", 1)[1])
            for batch in self._scan(place, "_id")
            for identity in batch["_id"].to_pylist()
            if identity.startswith(start) and _REPLAYED not in identity
        }

    def sequences(self, begin: datetime) -> frozenset[str]:
        """Sequence numbers of Kinesis records that came since a moment."""
        return frozenset(
            identity.split("/")[1]
            for batch in self._scan(where.GreaterThanOrEqual("_arrived_at", begin.isoformat()), "_id")
            for identity in batch["_id"].to_pylist()
        )

    def minutes(self, begin: datetime, end: datetime) -> Counter[datetime]:
        """Kinesis records by the minute of their arrival, UTC; one of a producer library's aggregates is one.

        A record that is in the table twice is one as well, or it would make up for a lost one.
        """
        counts: Counter[datetime] = Counter()
        while begin < end:
            # An hour at a time: the number of each of its records is kept.
            upto = min(begin + _AT_ONCE, end)
            found: dict[str, datetime] = {}
            for batch in self._scan(_window(begin, upto), "_id", "_arrived_at"):
                minutes = pc.floor_temporal(batch["_arrived_at"], unit="minute").to_pylist()
                for identity, minute in zip(batch["_id"].to_pylist(), minutes, strict=True):
                    if _REPLAYED not in identity:
                        found[identity.split("/")[1]] = minute.astimezone(UTC)
            counts.update(found.values())
            begin = upto
        return counts

    def began_before(self, moment: datetime) -> bool:
        """Whether any record came before a moment."""
        rows = where.And(
            where.EqualTo("_source", self.source), where.LessThan("_arrived_at", moment.isoformat())
        )
        with aws_errors(self._name):
            found = self.table.refresh().scan(row_filter=rows, selected_fields=("_arrived_at",), limit=1)
            return bool(found.to_arrow().num_rows)

    def rows(self, begin: datetime, end: datetime) -> int:
        """Good records of every stream in the table that arrived in a window."""
        good = where.And(_window(begin, end), where.IsNull("_error"))
        with aws_errors(self._name):
            return int(self.table.refresh().scan(row_filter=good).count())

    def _scan(self, rows: expressions.BooleanExpression, *columns: str) -> Iterator[Any]:
        condition = where.And(where.EqualTo("_source", self.source), rows)
        with aws_errors(self._name):
            scan = self.table.refresh().scan(row_filter=condition, selected_fields=columns)
            yield from scan.to_arrow_batch_reader()

    @property
    def _name(self) -> str:
        return ".".join(self.table.name())


def _window(begin: datetime, end: datetime) -> expressions.BooleanExpression:
    window: expressions.BooleanExpression = where.And(
        where.GreaterThanOrEqual("_arrived_at", begin.isoformat()),
        where.LessThan("_arrived_at", end.isoformat()),
    )
    return window
