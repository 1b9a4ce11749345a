"""The comparison finds a lost, doubled or altered row in real Iceberg tables."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.sql import SqlCatalog

from millrace.sandbox.records.ledger import Ledger, payload_hash
from millrace.verify.environment_copy import VerificationCopy
from millrace.verify.scenario import compare_with_ledgers
from millrace.verify.verification_outcome import VerificationOutcome
from tests.unit.verify.conftest import NAME, Make

LANDED = pa.schema(
    [("_id", pa.string()), ("_hash", pa.int64()), ("_error", pa.string()), ("_bytes", pa.binary())]
)
DERIVED = pa.schema([("_id", pa.string())])
RECORDS, DIRTY = 40, 7
"""One in so many is spoiled."""


@pytest.fixture
def copy(make: Make) -> VerificationCopy:
    return make("minimal")


@pytest.fixture
def ledger() -> Ledger:
    sent = Ledger()
    for number in range(RECORDS):
        sent.add(f"stream/{number}", f'{{"n": {number}}}'.encode(), "broken" if number % DIRTY == 0 else None)
    return sent


@pytest.fixture
def catalog(tmp_path: Path, copy: VerificationCopy, ledger: Ledger) -> Iterator[Catalog]:
    """Both tables, as jobs without a fault write them."""
    held = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/lake")
    held.create_namespace(copy.names.database)
    for (name, schema), rows in zip(tables(copy).items(), (landed(ledger), derived(ledger)), strict=True):
        held.create_table(name, schema=schema).append(pa.Table.from_pylist(rows, schema=schema))
    yield held
    held.engine.dispose()


def tables(copy: VerificationCopy) -> dict[str, pa.Schema]:
    (leg,) = copy.legs
    return {copy.names.table(leg.landed): LANDED, copy.names.table(leg.derived): DERIVED}


def landed(ledger: Ledger) -> list[dict[str, object]]:
    return [
        {"_id": i, "_hash": h, "_error": kind, "_bytes": payload}
        for i, h, kind, payload in zip(ledger.ids, ledger.hashes, ledger.dirt, ledger.payloads, strict=True)
    ]


def derived(ledger: Ledger) -> list[dict[str, object]]:
    return [{"_id": i} for i, kind in zip(ledger.ids, ledger.dirt, strict=True) if kind is None]


def outcome(catalog: Catalog, copy: VerificationCopy, ledger: Ledger) -> VerificationOutcome:
    """As a verification that ends well but for what its tables hold."""
    result = compare_with_ledgers(catalog, copy, {"kinesis": ledger})
    return VerificationOutcome(
        environment="minimal", name=NAME, where="here", steps=(), kills=(), reshards=(), compared=result,
        cost=(), prices="2026-11-16", billed=False, paid=False, remains=(), kept=False, trouble=(),
    )  # fmt: skip


def test_tables_of_what_was_sent_are_exact(catalog: Catalog, copy: VerificationCopy, ledger: Ledger) -> None:
    result = outcome(catalog, copy, ledger)
    (table,) = result.compared
    assert result.exact
    assert (table.account.produced, table.account.landed) == (RECORDS, RECORDS)
    assert table.account.dead_letters == len(range(0, RECORDS, DIRTY)) == ledger.dirty_count


def test_a_row_that_is_deleted_is_lost(catalog: Catalog, copy: VerificationCopy, ledger: Ledger) -> None:
    for name in tables(copy):
        catalog.load_table(name).delete("_id == 'stream/3'")
    result = outcome(catalog, copy, ledger)
    (table,) = result.compared
    assert (table.account.lost, table.account.derived_lost) == (1, 1)
    assert not result.exact


def test_a_row_that_is_appended_again_is_doubled(
    catalog: Catalog, copy: VerificationCopy, ledger: Ledger
) -> None:
    for (name, schema), rows in zip(tables(copy).items(), (landed(ledger), derived(ledger)), strict=True):
        catalog.load_table(name).append(pa.Table.from_pylist([rows[3]], schema=schema))
    result = outcome(catalog, copy, ledger)
    (table,) = result.compared
    assert (table.account.duplicated, table.account.derived_duplicated) == (1, 1)
    assert not result.exact


def test_one_lost_and_one_doubled_are_seen_though_the_count_is_right(
    catalog: Catalog, copy: VerificationCopy, ledger: Ledger
) -> None:
    (name, _) = tables(copy)
    held = catalog.load_table(name)
    held.delete("_id == 'stream/3'")
    held.append(pa.Table.from_pylist([landed(ledger)[4]], schema=LANDED))
    (table,) = outcome(catalog, copy, ledger).compared
    assert (table.account.landed, table.account.lost, table.account.duplicated) == (RECORDS, 1, 1)


def test_another_payload_and_another_dead_letter_are_seen(
    catalog: Catalog, copy: VerificationCopy, ledger: Ledger
) -> None:
    (name, _) = tables(copy)
    held, rows = catalog.load_table(name), landed(ledger)
    held.delete("_id == 'stream/3' or _id == 'stream/7'")
    other = [
        {**rows[3], "_hash": payload_hash(b"another")},
        {**rows[7], "_bytes": b"not what was sent"},
        {**rows[8], "_id": "stream/999"},
    ]
    held.append(pa.Table.from_pylist(other, schema=LANDED))
    (table,) = outcome(catalog, copy, ledger).compared
    assert (table.account.lost, table.account.altered, table.account.unknown) == (1, 1, 1)


def test_a_table_that_was_never_made_has_lost_all(
    catalog: Catalog, copy: VerificationCopy, ledger: Ledger
) -> None:
    for name in tables(copy):
        catalog.drop_table(name)
    (table,) = outcome(catalog, copy, ledger).compared
    assert (table.account.lost, table.account.derived_lost) == (RECORDS, RECORDS - ledger.dirty_count)


def test_nothing_sent_nothing_compared_trouble_and_leftovers_are_no_success(
    catalog: Catalog, copy: VerificationCopy, ledger: Ledger
) -> None:
    result = outcome(catalog, copy, ledger)
    assert result.exact
    for changed in ({"compared": ()}, {"trouble": ("a job did not come back",)}, {"remains": ("bucket b",)}):
        assert not dataclasses.replace(result, **changed).exact
    assert dataclasses.replace(result, remains=("bucket b",), kept=True).exact
    assert not outcome(catalog, copy, Ledger()).exact
