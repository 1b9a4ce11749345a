"""What a table of the lake holds by its last snapshot, without reading it: how long to wait, and for what."""

from __future__ import annotations

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table


def find(catalog: Catalog, name: str) -> Table | None:
    """Load a table; None where there is none yet."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None


def rows(catalog: Catalog, name: str) -> int:
    """Return how many rows a table has; 0 where it is not there yet, or nothing was committed to it.

    Parameters
    ----------
    catalog
        Where it is.
    name
        ``DATABASE.TABLE``.
    """
    table = find(catalog, name)
    snapshot = table.current_snapshot() if table else None
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary["total-records"] or 0)
