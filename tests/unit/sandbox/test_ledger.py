"""The ledger finds differences that counts and sets miss."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.sandbox.records.ledger import Ledger, compare_tables_with_ledger, payload_hash
from tests.faults.row_difference import Difference

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
    account = compare_tables_with_ledger(make_ledger(), landed(*ALL), ids("t/0/0", "t/0/1"))
    assert account.exact
    assert (account.produced, account.landed, account.dead_letters, account.derived) == (4, 4, 2, 2)


def test_one_loss_and_one_duplicate_have_the_right_count():
    account = compare_tables_with_ledger(
        make_ledger(), landed(ALL[0], ALL[0], *ALL[2:]), ids("t/0/0", "t/0/1")
    )
    assert account.landed == account.produced
    assert (account.lost, account.duplicated, account.exact) == (1, 1, False)


def test_same_payload_twice_is_two_records():
    assert compare_tables_with_ledger(make_ledger(), landed(*ALL[1:]), ids("t/0/0", "t/0/1")).lost == 1


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
    account = compare_tables_with_ledger(make_ledger(), landed(*rows), ids(*derived))
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
    assert pq.read_table(path).equals(ledger.to_arrow_table())


def test_a_table_that_lacks_doubles_or_invents_rows_is_told() -> None:
    wanted = Counter({("a",): 1, ("b",): 2, ("c",): 1})
    assert Difference.of("t", wanted, wanted).exact
    result = Counter({("a",): 3, ("b",): 1, ("d",): 2})
    assert Difference.of("t", wanted, result) == Difference("t", 4, lost=2, doubled=2, others=2)
    assert not Difference.of("t", Counter(), Counter()).exact


def test_differences_add_up() -> None:
    parts = [Difference("a", 3, 1, 0, 0), Difference("b", 4, 0, 2, 1)]
    whole = Difference.total(parts)
    assert (whole.wanted, str(whole), whole.exact) == (7, "1 lost, 2 doubled, 1 others", False)


def test_a_loss_and_a_double_count_whatever_was_made_of_the_payloads() -> None:
    """As where one's own rules make dead letters of records that nobody spoiled."""
    judged = (("t/0/0", GOOD, "rule", GOOD), *ALL[1:])
    result = compare_tables_with_ledger(make_ledger(), landed(*judged), ids("t/0/1"))
    assert (result.exact, result.has_lost_or_doubled) == (False, False)
    for rows in (ALL[1:], (*ALL, ALL[0]), (*ALL, ("t/0/9", GOOD, None, None))):
        assert compare_tables_with_ledger(
            make_ledger(), landed(*rows), ids("t/0/0", "t/0/1")
        ).has_lost_or_doubled


def test_ledgers_of_several_streams_are_one() -> None:
    other = Ledger()
    other.add("u/0/0", GOOD, None)
    whole = Ledger.merge([make_ledger(), other])
    assert whole.ids == ["t/0/0", "t/0/1", "t/0/2", "t/0/3", "u/0/0"]
    assert (len(whole), whole.dirty_count) == (5, 2)
