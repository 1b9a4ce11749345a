"""Rows of a table of the lake."""

from __future__ import annotations

from typing import Any

from pyiceberg.catalog import Catalog

from millrace.sandbox.records.ledger import load_table_if_exists


def read(catalog: Catalog, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Read columns of a table; return no rows where it does not exist yet."""
    table = load_table_if_exists(catalog, name)
    if table is None:
        return []
    result = table.scan(selected_fields=columns).to_arrow()
    return list(zip(*(result[column].to_pylist() for column in columns), strict=True))
