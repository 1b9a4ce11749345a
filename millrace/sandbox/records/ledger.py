"""Ledger of a producer, and its comparison with the tables of the lake, by a reader that is not Spark.

Multisets of acknowledged positions and payload hashes are compared: equal counts hide one
loss plus one duplicate, and sets hide duplicates.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import xxhash
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

_SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("hash", pa.int64(), nullable=False),
        pa.field("dirt", pa.string()),
        pa.field("payload", pa.binary()),
    ]
)

_SEED = 42
"""Seed of Spark's ``xxhash64``."""


def payload_hash(payload: bytes) -> int:
    """Return the hash of a payload that is Spark's ``xxhash64`` has: seed 42, signed."""
    value = xxhash.xxh64_intdigest(payload, seed=_SEED)
    return value - (1 << 64) if value >= 1 << 63 else value


@dataclass
class Ledger:
    """Records that a producer sent, by identity: ``topic/partition/offset`` or ``stream/sequence``."""

    ids: list[str] = field(default_factory=list)
    hashes: list[int] = field(default_factory=list)
    dirt: list[str | None] = field(default_factory=list)
    payloads: list[bytes | None] = field(default_factory=list)

    def add(self, identity: str, payload: bytes, dirt: str | None) -> None:
        """Add a record that the broker acknowledged."""
        self.ids.append(identity)
        self.hashes.append(payload_hash(payload))
        self.dirt.append(dirt)
        self.payloads.append(payload if dirt else None)

    def __len__(self) -> int:
        """Return the number of sent records."""
        return len(self.ids)

    @property
    def dirty_count(self) -> int:
        """Number of spoiled records."""
        return sum(1 for kind in self.dirt if kind)

    def to_arrow_table(self) -> pa.Table:
        """Return the ledger as a table: id, hash, dirt, and the payload of a spoiled record."""
        return pa.table([self.ids, self.hashes, self.dirt, self.payloads], schema=_SCHEMA)

    def write(self, path: Path) -> None:
        """Write the ledger to a Parquet file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(self.to_arrow_table(), path)

    @classmethod
    def merge(cls, ledgers: Iterable[Ledger]) -> Ledger:
        """Return the joined ledgers of different streams."""
        columns = ((each.ids, each.hashes, each.dirt, each.payloads) for each in ledgers)
        return cls(*map(list, map(chain.from_iterable, zip(*columns, strict=True))))


@dataclass(frozen=True)
class LedgerComparison:
    """Comparison of a ledger's records with one landing table and the table derived from it.

    Attributes
    ----------
    lost, duplicated, unknown
        Records of the ledger that did not land (or landed with another payload),
        landed more than once, and rows that are not in the ledger.
    misjudged
        Spoiled records that landed as good ones, or the reverse.
    altered
        Dead letters whose bytes differ from the sent ones.
    derived_lost, derived_duplicated
        The same for the good records in the derived table.
    """

    produced: int
    landed: int
    dead_letters: int
    lost: int
    duplicated: int
    unknown: int
    misjudged: int
    altered: int
    derived: int
    derived_lost: int
    derived_duplicated: int

    @property
    def exact(self) -> bool:
        """True if every record is in both tables exactly once, bad ones byte for byte."""
        faults = (self.lost, self.duplicated, self.unknown, self.misjudged, self.altered)
        return not any((*faults, self.derived_lost, self.derived_duplicated))

    @property
    def has_lost_or_doubled(self) -> bool:
        """True if a record is lost or duplicated, or a row is not in the ledger; payloads do not matter."""
        return bool(self.lost or self.duplicated or self.unknown)


def compare_tables_with_ledger(
    ledger: Ledger, landed: pa.Table, derived_ids: pa.ChunkedArray
) -> LedgerComparison:
    """Compare a landing table and its derived table with the ledger.

    Parameters
    ----------
    landed
        Columns ``_id``, ``_hash``, ``_error``, ``_bytes``.
    derived_ids
        Column ``_id`` of a table with one row for each good record.
    """
    sent = Counter(zip(ledger.ids, ledger.hashes, strict=True))
    counts = Counter(zip(landed["_id"].to_pylist(), landed["_hash"].to_pylist(), strict=True))
    found_ids = Counter(landed["_id"].to_pylist())
    good = {identity for identity, kind in zip(ledger.ids, ledger.dirt, strict=True) if kind is None}
    spoiled = {i: p for i, p, kind in zip(ledger.ids, ledger.payloads, ledger.dirt, strict=True) if kind}
    dead = landed.filter(pc.is_valid(landed["_error"]))
    dead_bytes = dict(zip(dead["_id"].to_pylist(), dead["_bytes"].to_pylist(), strict=True))
    derived = Counter(derived_ids.to_pylist())
    known = set(ledger.ids)
    return LedgerComparison(
        produced=len(ledger),
        landed=landed.num_rows,
        dead_letters=dead.num_rows,
        lost=sum((sent - counts).values()),
        duplicated=sum(count - 1 for count in found_ids.values()),
        unknown=sum(1 for identity in found_ids if identity not in known),
        misjudged=len(dead_bytes.keys() ^ spoiled.keys()),
        altered=sum(
            1 for identity, payload in dead_bytes.items() if spoiled.get(identity, payload) != payload
        ),
        derived=sum(derived.values()),
        derived_lost=len(good - derived.keys()),
        derived_duplicated=sum(count - 1 for count in derived.values()) + len(derived.keys() - good),
    )


_TYPES = {"_id": pa.string(), "_hash": pa.int64(), "_error": pa.string(), "_bytes": pa.binary()}
"""Columns of a landing table that show what became of a record."""


def load_table_if_exists(catalog: Catalog, name: str) -> Table | None:
    """Load a table; return None where it does not exist yet."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        return None


def row_count(catalog: Catalog, name: str) -> int:
    """Return the number of rows that a reader gets of a table; 0 where it does not exist yet, or has no commit.

    A table without delete files is not read: the summary of its snapshot has the count.

    Parameters
    ----------
    name
        ``DATABASE.TABLE``.
    """
    table = load_table_if_exists(catalog, name)
    snapshot = table.current_snapshot() if table else None
    if table is None or snapshot is None or snapshot.summary is None:
        return 0
    if snapshot.summary["total-delete-files"] == "0":
        return int(snapshot.summary["total-records"] or 0)
    return table.scan().count()


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
    if (table := load_table_if_exists(catalog, name)) is None:
        return pa.schema([(column, _TYPES[column]) for column in columns]).empty_table()
    return table.scan(selected_fields=columns).to_arrow()
