"""Iceberg tables, appended to once per record identity."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code
from pyspark.sql.utils import CapturedException  # type: ignore[attr-defined]  # its home in Spark 3.3 to 4

from etl.accounts import Observed, count, values_of
from etl.envelope import IDENTITY, moment
from etl.errors import AccountsError, java_error
from etl.tables import Table

OUTSIDE = "millrace: a record lies outside the bound of its batch"
"""What a task fails with when a bound does not hold; found again in the driver's error."""

TOKEN = "millrace.batch"  # noqa: S105 - names a property of a commit
"""Property of a commit: which append it was, for the batch that made it to find it again."""

Result = TypeVar("Result")


class OutsideBoundError(Exception):
    """A record of the batch lies outside the bound; nothing was committed."""


@dataclass(frozen=True)
class Bound:
    """Which rows of the table can hold a record of the batch: the others are not read.

    Attributes
    ----------
    rows
        Condition on the table; None for all of it.
    column, minimum
        Where the condition is only likely: no record of the batch may have a
        smaller value in this column, and the write fails when one has.
    outside
        In place of that comparison, which records lie outside; ``column`` fails for them.
    """

    rows: Column | None = None
    column: str | None = None
    minimum: datetime | None = None
    outside: Column | None = None

    @classmethod
    def since(cls, column: str, minimum: datetime) -> Bound:
        """Rows from a moment on, checked inside the write."""
        return cls(F.col(column) >= F.lit(minimum), column, minimum)

    def guard(self, batch: DataFrame) -> DataFrame:
        """Make a record that lies outside fail its task, before anything is committed."""
        if self.column is None:
            return batch
        value = F.col(self.column)
        outside = self.outside
        if outside is None:
            assert self.minimum is not None, f"{self.column}: neither a minimum nor what lies outside"
            outside = value < moment(self.minimum, f"`{self.column}` IS NULL")
        failing = F.expr(f"raise_error('{OUTSIDE}')")
        return batch.withColumn(self.column, F.when(outside, failing).otherwise(value))


@dataclass(frozen=True)
class Appended:
    """What an append came to: records offered and written, and the figures asked for, by name.

    Attributes
    ----------
    held
        The figure of the rows that were looked at; None where none was asked for or there were none.
    alone
        Whether the table has no row within the bound, nor had any.
    """

    offered: int
    written: int
    figures: dict[str, Any]
    held: Any = None
    alone: bool = False


EVERYTHING = Bound()
"""No bound: the whole table is looked at."""


@dataclass(frozen=True)
class IcebergSink:
    """An append-only Iceberg table.

    Parameters
    ----------
    table
        Its name; made or checked by :func:`etl.tables.ensure`.
    """

    table: Table

    def add(self, batch: DataFrame, properties: Mapping[str, str]) -> int:
        """Write all records of a batch, in one transaction that bears some properties.

        Guarantee: all or nothing. Nothing is looked up: the caller knows that the table holds none
        of the records.

        Parameters
        ----------
        batch
            In the table's shape.
        properties
            Of the commit; found again in the table's history (``snapshot.summary()``).

        Returns
        -------
        int
            Rows that were written.
        """
        # By the commit itself, and not by counting rows on their way: that would copy each of them once more.
        token = uuid.uuid4().hex
        self._commit(batch, {**properties, TOKEN: token})
        return self._added(batch.sparkSession, token)

    def _added(self, spark: SparkSession, token: str) -> int:
        """Rows that a commit of ours has added; others may have committed since."""
        for summary in self.table.commits(spark):
            if summary.get(TOKEN) == token:
                return int(summary.get("added-records") or 0)  # none is not written down
        raise AccountsError(f"table {self.table}: what the batch wrote is not in its history")

    def _commit(self, rows: DataFrame, properties: Mapping[str, str]) -> None:
        writer = rows.writeTo(str(self.table))
        for name, value in properties.items():
            writer = writer.option(f"snapshot-property.{name}", value)
        writer.append()

    def append(
        self,
        batch: DataFrame,
        bound: Bound | None,
        *figures: Column,
        of_offered: Sequence[Column] = (),
        held: Column | None = None,
        beside: Sequence[Observed] = (),
        properties: Mapping[str, str] = MappingProxyType({}),
    ) -> Appended:
        """Write those records of a batch that the table does not hold yet, in one transaction.

        Guarantee: exactly once per identity (``_source``, ``_id``) with one writer at a
        time, whatever was killed, retried or replayed before, also when a replay holds
        other records. The look-up and the append are one action; the append is
        atomic; a write that fails leaves the table as it was. Two writers at once are not
        told apart: each sees the table as it was when its own write began.

        Parameters
        ----------
        batch
            With ``_source`` and ``_id``, each pair once.
        bound
            Where in the table a record of this batch can be; None where the caller knows that there is none.
        *figures
            Aggregates over the rows that are written.
        of_offered
            Aggregates over all that is offered, with what the table holds already.
        held
            An aggregate over the rows of the table that are looked at, of which ``_source`` and ``_id``
            are known.
        beside
            What else the batch observes, for its figures to be among those of the answer.
        properties
            Of the commit, see :meth:`add`.

        Returns
        -------
        Appended
            The figures, and how many records were offered.

        Raises
        ------
        OutsideBoundError
            The bound does not hold; nothing was written.
        """
        # Where something must be found there is something to look up.
        known = None if bound is None else self._known(batch.sparkSession, bound, ask=held is None)
        offered = Observed(count("offered"), *of_offered) if known is not None else None
        looked = Observed(held.alias("held")) if known is not None and held is not None else None
        new = batch
        if known is not None and offered is not None:
            known = looked.on(known) if looked else known
            new = offered.on(batch).join(known, list(IDENTITY), "left_anti")
        # Without a look-up, what is offered is what is written.
        observed = Observed(count("written"), *figures, *(() if offered else of_offered))
        with outside(str(self.table)):
            self._commit(observed.on(new if bound is None else bound.guard(new)), properties)
        found = values_of(*(one for one in (observed, offered, looked, *beside) if one is not None))
        values = {name: value for figures_of_one in found for name, value in figures_of_one.items()}
        written = values.pop("written")
        return Appended(
            values.pop("offered", written), written, values, values.pop("held", None), alone=offered is None
        )

    def _known(self, spark: SparkSession, bound: Bound, *, ask: bool) -> DataFrame | None:
        """Identities within a bound; None where that is asked and no file can hold one.

        Mostly there is none, which Iceberg knows from its metadata: then there is nothing to look up, and all
        that is offered is written.
        """
        table = spark.table(str(self.table))
        known = (table if bound.rows is None else table.where(bound.rows)).select(*IDENTITY)
        plan: Any = known  # DataFrame.rdd would plan once more, to hand the rows over to Python
        return known if not ask or plan._jdf.queryExecution().toRdd().getNumPartitions() else None

    def latest(self, spark: SparkSession, name: str) -> str | None:
        """A property of the table's newest commit; None where it has none, or nothing was committed yet."""
        newest = next(self.table.commits(spark), None)
        found = None if newest is None else newest.get(name)
        return None if found is None else str(found)


@contextmanager
def outside(what: str) -> Iterator[None]:
    """Tell the error of a write with a bound that does not hold from any other.

    Parameters
    ----------
    what
        Is written.

    Raises
    ------
    OutsideBoundError
        A record lies outside.
    """
    try:
        yield
    except (Py4JJavaError, CapturedException) as error:
        if OUTSIDE in _whole_text(error):
            raise OutsideBoundError(what) from error
        raise


def _whole_text(error: Py4JJavaError | CapturedException) -> str:
    """Messages of an error and of all its causes in the JVM."""
    origin = java_error(error)
    texts = [str(error)]
    while origin is not None:
        texts.append(str(origin.toString()))
        origin = origin.getCause()
    return "\n".join(texts)


def with_first_that_holds(bounds: Iterable[Bound], write: Callable[[Bound], Result]) -> Result:
    """Write with the first bound that holds; each attempt is a whole new action.

    Parameters
    ----------
    bounds
        From the tightest, which is cheap, to one that cannot fail.
    write
        One attempt.

    Raises
    ------
    OutsideBoundError
        None of them holds.
    """
    refused: OutsideBoundError | None = None
    for bound in bounds:
        try:
            return write(bound)
        except OutsideBoundError as error:
            refused = error
    raise refused or ValueError("no bound was given")
