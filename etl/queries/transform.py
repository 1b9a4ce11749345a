"""Transform of a derive query: the good records of a landing table as its input, and what its result must have."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType, TimestampType

from ..formats.changes.decoder import TRUNCATE
from ..formats.decoding.decoder_output_and_checks import reasons_type_not_storable
from ..formats.decoding.decoder_per_topic import DELETE, rows_of_route
from ..launch import typed_json
from ..record import batch_accounts
from ..record.envelope import CARRIED, time_column_outside_generated_code
from ..record.errors import StartError, describe_error
from ..record.tables import Table
from ..sinks.base import DELETED
from ..sinks.delivery.keyed_rows import newest_of_each_key
from ..sinks.delivery.record_order import POSITION, with_position_struct
from ..sinks.delivery.row_version_history import versions_of_changes
from . import change_order
from .enrich import ReferenceTable

Transform = Callable[[DataFrame], DataFrame]

RESERVED = ("_written_at", "_attempt", "_refused", "_known", "_known_hash")
"""Columns that sinks add to rows."""

_TYPES = {
    "_id": StringType(),
    "_source": StringType(),
    "_arrived_at": TimestampType(),
    "_landed_at": TimestampType(),
    "_position": POSITION,
}

DEAD_LETTER = ("_bytes", "_stage", "_error")


def load_transform(name: str | None) -> Transform:
    """Find a transform by name.

    Parameters
    ----------
    name
        ``package.module:function``; None for none.

    Raises
    ------
    StartError
        The transform cannot be imported.
    """
    if name is None:
        return lambda rows: rows
    try:
        found: Transform = typed_json.import_object(name)
    except (ImportError, AttributeError, ValueError) as error:
        raise StartError(f"transform {name}: {error}") from error
    return found


def good_records(landing: DataFrame, *, deletes: bool = False) -> DataFrame:
    """Return the rows of a landing table without dead letters and their columns.

    Parameters
    ----------
    deletes
        True to include records that delete, marked by :data:`~etl.sinks.base.DELETED`; otherwise they are left out.
    """
    if not deletes:
        return landing.where("_error IS NULL AND _stage IS NULL").drop(*DEAD_LETTER)
    # Truncates too, of which DeriveBatchWriter knows.
    good = landing.where(f"_error IS NULL AND coalesce(_stage, '{DELETE}') IN ('{DELETE}', '{TRUNCATE}')")
    good = good.withColumn(DELETED, F.col("_stage").eqNullSafe(DELETE))
    return good.drop(*DEAD_LETTER)


INPUT_COLUMNS = "; the columns of its input are "
"""Before the columns of a failed transform's input, which differ by query."""


@contextmanager
def name_transform_in_errors(name: str, rows: DataFrame) -> Iterator[None]:
    """Name the failed transform, its line and its input columns: at a start, before a batch could fail.

    Parameters
    ----------
    name
        ``module:function``.
    rows
        Input of the transform.

    Raises
    ------
    StartError
        The transform raised an error.
    """
    try:
        yield
    except StartError:
        raise
    except Exception as error:  # any error of a user's function
        file = f"{name.partition(':')[0].replace('.', '/')}.py"
        lines = [
            each.lineno for each in traceback.extract_tb(error.__traceback__) if each.filename.endswith(file)
        ]
        where = f", {file}:{lines[-1]}" if lines else ""
        reason = describe_error(error).partition("\n")[0]
        raise StartError(
            f"transform {name}{where}: {reason}{INPUT_COLUMNS}{', '.join(rows.columns)}"
        ) from error


@dataclass(frozen=True)
class EnrichThenTransform:
    """Enrichment and transform as one function, from good records to rows of the sink.

    It takes a static or a streaming DataFrame, so a query with state can be
    built before ``foreachBatch``.

    Attributes
    ----------
    carries
        Envelope columns that the transform keeps.
    latest_by
        Columns that identify a row, of which the last record is kept; empty where each record is a row.
    latest_order
        Column that says which record is the last, before their positions; None for none.
    history
        Whether every version of a row is kept, and not the last record only.
    """

    references: tuple[ReferenceTable, ...]
    transform: Transform
    name: str
    carries: tuple[str, ...] = CARRIED
    latest_by: tuple[str, ...] = ()
    latest_order: str | None = None
    history: bool = False

    def __call__(
        self, rows: DataFrame, observe: Callable[[DataFrame], DataFrame] = lambda rows: rows
    ) -> DataFrame:
        """Enrich, transform, and add ``_written_at``.

        Parameters
        ----------
        observe
            Counts the last records of each key, with ``_lanes``.

        Raises
        ------
        StartError
            The transform drops or changes a column that identity or latency needs, uses a reserved one, or has columns
            that no sink can hold.
        """
        changes = bool(self.latest_by) and change_order.is_change_table(rows)
        if self.latest_by:
            rows = with_position_struct(rows)
        if changes:
            rows = change_order.rows_and_deletes_of_changes(rows)
        elif self.history:
            raise StartError(
                "history: true needs a landing table that holds changes of a database, and this one does not"
            )
        for reference in self.references:
            rows = reference.with_joined_columns(rows, reference.current_rows(rows))
        out = self.transform(rows)
        if not isinstance(out, DataFrame):
            raise StartError(
                f"transform {self.name} must return a DataFrame, but returned {type(out).__name__}"
            )
        carries = ("_position", DELETED) if self.latest_by else self.carries
        lost = [c for c in carries if c not in out.columns]
        if lost:
            whole = ", ".join(carries) if self.latest_by else "millrace.etl.record.envelope.CARRIED"
            raise StartError(
                f"transform {self.name}: its result lacks the columns {', '.join(lost)}; keep {whole} in "
                "its select"
            )
        kinds = {f.name: f.dataType for f in out.schema.fields}
        retyped = [c for c in carries if c in _TYPES and kinds[c].simpleString() != _TYPES[c].simpleString()]
        if retyped:
            told = ", ".join(f"{c} {_TYPES[c].simpleString()}" for c in retyped)
            raise StartError(
                f"transform {self.name}: its result must have the columns {told}; do not change their types"
            )
        reserved = RESERVED if self.latest_by else (*RESERVED, DELETED)
        if taken := [c for c in reserved if c in kinds]:
            raise StartError(
                f"transform {self.name}: column {', '.join(taken)} is reserved for the sink; rename it"
            )
        if wrong := "; ".join(reasons_type_not_storable(out.schema)):
            raise StartError(f"transform {self.name}: no sink can store its result: {wrong}")
        if self.latest_by:
            last = (
                versions_of_changes(out, self.latest_by, self.name)
                if self.history
                else newest_of_each_key(out, self.latest_by, self.name, self.latest_order)
            )
            # The lanes of changes are no partitions.
            out = observe(last.withColumn("_lanes", F.lit(False)) if changes else last).drop("_lanes")
        # For a stream Spark fixes the time of each batch; a literal would be the time of the start.
        written = (
            F.current_timestamp()
            if out.isStreaming
            else time_column_outside_generated_code(batch_accounts.utc_now(), "_id = ''")
        )
        return out.withColumn("_written_at", written)

    def checked_sink_schema(
        self, spark: SparkSession, landing: Table, route: str | None = None
    ) -> StructType:
        """Return the columns of the sink; finds errors in the transform before the stream starts."""
        rows = good_records(spark.table(str(landing)).limit(0), deletes=bool(self.latest_by))
        given = rows_of_route(rows, route, str(landing))
        with name_transform_in_errors(self.name, given):
            return self(given).schema
