"""Holds the tables of a verification against what was sent."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from millrace.sandbox.ledger import Account, Ledger, compare
from millrace.verify.environment import Copy, Leg
from millrace.verify.outcome import Compared
from millrace.verify.place import reading


def compared(catalog: Catalog, copy: Copy, ledgers: Mapping[str, Ledger]) -> tuple[Compared, ...]:
    """Hold every leg's landing table and derived table against the ledger of its stream, multiset against multiset.

    Parameters
    ----------
    catalog
        Of the tables.
    copy
        Whose legs.
    ledgers
        By stream.

    Raises
    ------
    AwsError, VerifyError
        The catalog refuses, or a table cannot be read.
    """
    return tuple(Compared(leg, _account(catalog, copy, leg, ledgers[leg.stream])) for leg in copy.legs)


def _account(catalog: Catalog, copy: Copy, leg: Leg, ledger: Ledger) -> Account:
    landed = _read(catalog, copy.names.table(leg.landed), ("_id", "_hash", "_error", "_bytes"))
    derived = _read(catalog, copy.names.table(leg.derived), ("_id",))
    return compare(ledger, landed, derived["_id"])


_TYPES = {"_id": pa.string(), "_hash": pa.int64(), "_error": pa.string(), "_bytes": pa.binary()}


def _read(catalog: Catalog, name: str, columns: tuple[str, ...]) -> pa.Table:
    """Read columns of a table; none of its rows where it was never made, which is a loss like any other."""
    with reading(name):
        try:
            return catalog.load_table(name).scan(selected_fields=columns).to_arrow()
        except NoSuchTableError:
            return pa.schema([(column, _TYPES[column]) for column in columns]).empty_table()
