"""Content of tables of the lake, by a reader that is not Spark: counted, or compared with a producer's ledger."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from millrace.sandbox.records.ledger import Ledger, LedgerComparison, compare_tables_with_ledger

_TYPES = {"_id": pa.string(), "_hash": pa.int64(), "_error": pa.string(), "_bytes": pa.binary()}
"""Columns of a landing table that show what became of a record."""


def load_table_if_exists(catalog: Catalog, name: str) -> Table | None:
    """Load a table; return None where it does not exist yet."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None


def row_count(catalog: Catalog, name: str) -> int:
    """Return the number of rows of a table; 0 where it does not exist yet, or has no commit.

    Parameters
    ----------
    name
        ``DATABASE.TABLE``.
    """
    table = load_table_if_exists(catalog, name)
    snapshot = table.current_snapshot() if table else None
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0)


def compare_with_ledger(
    catalog: Catalog, ledger: Ledger, landed: str, derived: str | None = None
) -> LedgerComparison:
    """Compare a landing table, and a table with a row for each of its good records, with a ledger.

    Parameters
    ----------
    catalog
        Their catalog. A table that was never created has no rows, which counts as loss.
    ledger
        Ledger of the sent records.
    landed, derived
        ``DATABASE.TABLE``; without a derived table the good rows of the landing table replace it.
    """
    rows = _read_columns_if_exists(catalog, landed, tuple(_TYPES))
    good = (
        rows.filter(pc.is_null(rows["_error"]))
        if derived is None
        else _read_columns_if_exists(catalog, derived, ("_id",))
    )
    return compare_tables_with_ledger(ledger, rows, good["_id"])


def _read_columns_if_exists(catalog: Catalog, name: str, columns: tuple[str, ...]) -> pa.Table:
    table = load_table_if_exists(catalog, name)
    if table is None:
        return pa.schema([(column, _TYPES[column]) for column in columns]).empty_table()
    return table.scan(selected_fields=columns).to_arrow()
