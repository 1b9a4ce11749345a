"""The comparison must see what counts and sets cannot."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.sandbox.ledger import Ledger, compare, payload_hash

GOOD, BAD = b'{"a":1}', b'{"a":'


def make_ledger() -> Ledger:
    ledger = Ledger()
    ledger.add("t/0/0", GOOD, None)
    ledger.add("t/0/1", GOOD, None)
    ledger.add("t/0/2", BAD, "broken")
    ledger.add("t/0/3", b"", "empty")
    return ledger


def landed(*rows: tuple[str, bytes, str | None, bytes | None]) -> pa.Table:
    return pa.table(
        {
            "_id": pa.array([row[0] for row in rows], pa.string()),
            "_hash": pa.array([payload_hash(row[1]) for row in rows], pa.int64()),
            "_error": pa.array([row[2] for row in rows], pa.string()),
            "_bytes": pa.array([row[3] for row in rows], pa.binary()),
        }
    )


def ids(*names: str) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(names, pa.string())])


ALL = (
    ("t/0/0", GOOD, None, None),
    ("t/0/1", GOOD, None, None),
    ("t/0/2", BAD, "x", BAD),
    ("t/0/3", b"", "x", b""),
)


def test_all_accounted_for():
    account = compare(make_ledger(), landed(*ALL), ids("t/0/0", "t/0/1"))
    assert account.exact
    assert (account.produced, account.landed, account.dead_letters, account.derived) == (4, 4, 2, 2)


def test_one_loss_and_one_duplicate_have_the_right_count():
    account = compare(make_ledger(), landed(ALL[0], ALL[0], *ALL[2:]), ids("t/0/0", "t/0/1"))
    assert account.landed == account.produced
    assert (account.lost, account.duplicated, account.exact) == (1, 1, False)


def test_same_payload_twice_is_two_records():
    assert compare(make_ledger(), landed(*ALL[1:]), ids("t/0/0", "t/0/1")).lost == 1


@pytest.mark.parametrize(
    ("rows", "derived", "field"),
    [
        ((("t/0/0", BAD, None, None), *ALL[1:]), ("t/0/0", "t/0/1"), "lost"),  # landed with another payload
        ((*ALL, ("t/9/9", GOOD, None, None)), ("t/0/0", "t/0/1"), "unknown"),
        ((*ALL[:2], ("t/0/2", BAD, None, None), ALL[3]), ("t/0/0", "t/0/1"), "misjudged"),
        ((*ALL[:2], ("t/0/2", BAD, "x", b"?"), ALL[3]), ("t/0/0", "t/0/1"), "altered"),
        (ALL, ("t/0/0",), "derived_lost"),
        (ALL, ("t/0/0", "t/0/1", "t/0/1"), "derived_duplicated"),
        (ALL, ("t/0/0", "t/0/1", "t/0/2"), "derived_duplicated"),  # a dead letter is derived
    ],
)
def test_every_fault_is_named(rows, derived, field):
    account = compare(make_ledger(), landed(*rows), ids(*derived))
    assert getattr(account, field) == 1
    assert not account.exact


def test_hash_is_sparks():
    # The empty input under seed 42; Spark prints the same for xxhash64 of an empty binary.
    assert payload_hash(b"") == -7444071767201028348
    assert -(2**63) <= payload_hash(b"Spark") < 2**63


@given(st.lists(st.tuples(st.binary(max_size=30), st.sampled_from([None, "broken"]))))
def test_ledger_survives_its_file(tmp_path_factory, records):
    ledger = Ledger()
    for number, (payload, dirt) in enumerate(records):
        ledger.add(f"s/{number}", payload, dirt)
    path = tmp_path_factory.mktemp("ledger") / "ledger.parquet"
    ledger.write(path)
    assert Ledger.read(path) == ledger
