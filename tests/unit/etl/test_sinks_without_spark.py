"""Parts of sinks without Spark: back-off, items and their size, documents, manifests."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DoubleType, MapType, StringType, StructType

from millrace.etl.record.errors import SinkError, StartError
from millrace.etl.services.backoff import Backoff
from millrace.etl.sinks.base import BATCHES, BatchIdentity
from millrace.etl.sinks.delivery.dynamodb_items import (
    TEXT_BYTES,
    RowToItemConverter,
    UnsupportedRowError,
    to_dynamodb_value,
)
from millrace.etl.sinks.delivery.postgres_merge import LONGEST_NAME, PostgresTable
from millrace.etl.sinks.delivery.python_task_writes import (
    Refused,
    RowToSend,
    _send_partition_and_yield_outcome,
)
from millrace.etl.sinks.opensearch import bulk_action_line, row_json_to_document_bytes


class Clock:
    """A time that only waits move."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds


def patience(clock: Clock, **settings: float) -> Backoff:
    return Backoff("the server", sleep=clock.sleep, clock=lambda: clock.now, **settings)


def test_waits_grow_to_a_bound_and_end_loudly() -> None:
    clock = Clock()
    backoff = patience(clock, first=1.0, longest=8.0, patience=60.0)

    def wait_for_ever() -> None:
        while True:
            backoff.wait("busy")

    with pytest.raises(
        SinkError, match=r"the server: nothing could be written for 6\d s, in \d+ tries: busy"
    ):
        wait_for_ever()
    assert all(bound / 2 <= wait <= bound for wait, bound in zip(clock.waits, (1, 2, 4, 8, 8), strict=False))
    assert max(clock.waits) <= 8.0
    assert 60 <= clock.now <= 68


def test_what_is_written_between_waits_gives_new_patience() -> None:
    clock = Clock()
    backoff = patience(clock, first=1.0, longest=8.0, patience=20.0)
    for _ in range(50):
        backoff.wait("busy")
        backoff.reset_after_write()
    assert clock.now > 20
    assert max(clock.waits) <= 1.0


ITEM = RowToItemConverter(
    frozenset({"raw"}),
    {"delay": DoubleType(), "legs": MapType(StringType(), ArrayType(DoubleType()))},
    keyed=True,
)


def item(**fields: Any) -> tuple[dict[str, Any], int]:
    return ITEM.item_and_json_size(json.dumps({"_id": "k", **fields}))


def test_items_have_dynamodbs_own_types() -> None:
    made, size = item(flight=7, late=True, raw="AP8=", tags=["a", None, 1.5], seat={"row": 3, "letter": None})
    assert made == {
        "_id": {"S": "k"}, "flight": {"N": "7"}, "late": {"BOOL": True}, "raw": {"B": b"\x00\xff"},
        "tags": {"L": [{"S": "a"}, {"NULL": True}, {"N": "1.5"}]}, "seat": {"M": {"row": {"N": "3"}}},
    }  # fmt: skip
    assert size == 116


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"delay": "NaN"}, "delay is NaN"),
        ({"legs": {"AMS": [1.5, None], "BOS": [2.5, "Infinity"]}}, "legs is Infinity"),
        ({"text": "x" * TEXT_BYTES}, "the item has 4194"),
    ],
)
def test_what_is_no_item_says_why(fields: dict[str, Any], why: str) -> None:
    with pytest.raises(UnsupportedRowError, match=why):
        item(**fields)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(min_size=1), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=5))
def test_any_row_is_an_item_or_a_letter(fields: dict[str, Any]) -> None:
    text = json.dumps({**fields, "_id": "k"})
    try:
        made, size = RowToItemConverter(frozenset(), {}, keyed=True).item_and_json_size(text)
    except UnsupportedRowError:
        return
    assert size == len(text.encode())
    assert "_id" in made
    assert to_dynamodb_value(None) is None


@given(st.dictionaries(st.text(min_size=1), JSON, max_size=5))
def test_no_document_has_a_reserved_name_and_none_loses_a_field(fields: dict[str, Any]) -> None:
    fields.pop("millrace", None)
    made = json.loads(
        row_json_to_document_bytes(json.dumps({**fields, "_id": "t/0/1"}, separators=(",", ":")))
    )
    ours = made.pop("millrace")
    assert not [name for name in made if name.startswith("_")]
    assert {**made, **{f"_{name}": value for name, value in ours.items()}} == {**fields, "_id": "t/0/1"}


def test_a_document_has_numbers_as_the_row_has_them() -> None:
    digits = "12345678901234567890.123456789012345678"
    row = f'{{"price":{digits},"seats":[{{"fare":0.10}},1e400],"_id":"t/0/1","_fee":1.50}}'
    want = f'{{"price":{digits},"seats":[{{"fare":0.10}},1e400],"millrace":{{"id":"t/0/1","fee":1.50}}}}'
    assert row_json_to_document_bytes(row).decode() == want


def test_actions_leave_records_and_replace_results() -> None:
    assert json.loads(bulk_action_line("a", None)) == {"create": {"_id": "a"}}
    assert json.loads(bulk_action_line('"', 0)) == {
        "index": {"_id": '"', "version": 0, "version_type": "external_gte"}
    }


def test_numbers_keep_their_digits() -> None:
    assert to_dynamodb_value(Decimal("0.10")) == {"N": "0.10"}
    assert to_dynamodb_value(Decimal(0)) == {"N": "0"}


def test_columns_that_a_database_has_no_place_for_stop_the_start() -> None:
    for name in ("x" * (LONGEST_NAME + 1), "x$", 'a"b'):
        with pytest.raises(StartError, match=r"names are longer than 63 bytes, or contain \$ or a quote: "):
            PostgresTable.from_columns("shop.t", StructType().add(name, "string").add("_id", "string"))
    with pytest.raises(StartError, match="PostgreSQL has no column type for void"):
        PostgresTable.from_columns("shop.t", StructType().add("x", "void").add("_id", "string"))
    shape = PostgresTable.from_columns("shop.t", StructType().add("a'b", "decimal(9,2)").add("_id", "string"))
    assert shape.columns == {"a'b": "numeric(9,2)", "_id": "text"}
    assert shape.staging_table == '"shop"."t_millrace"'
    assert shape.has_replacing_rows


class Connected:
    """A writer whose server refuses the second row, and goes away at the third."""

    written = unordered = 0
    closed = False

    def add_and_yield_refused(self, record: RowToSend) -> list[Refused]:
        if record.id == "3":
            raise OSError("gone")
        return [(record, "no")] if record.id == "2" else []

    def write_rest_and_yield_refused(self) -> list[Refused]:
        return []

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("count", [2, 3])
def test_connections_are_closed_whatever_happens(count: int) -> None:
    writer = Connected()
    rows = [(*RowToSend(str(n + 1), None, None, None, None, "{}"), None) for n in range(count)]
    delivered = _send_partition_and_yield_outcome(lambda: writer, rows)
    if count == 3:
        with pytest.raises(OSError, match="gone"):
            list(delivered)
    else:
        refused, counts = list(delivered)
        assert (refused[5], counts[6:]) == ("no", (2, 0, 0))
    assert writer.closed


def test_an_empty_partition_connects_to_nobody() -> None:
    def never() -> Connected:
        raise AssertionError("connected")

    assert list(_send_partition_and_yield_outcome(never, [])) == []


def test_a_version_grows_from_batch_to_batch_and_from_checkpoint_to_checkpoint() -> None:
    in_2126 = 4_922_899_200
    places = [
        BatchIdentity("a", 0, created=in_2126),
        BatchIdentity("a", 7, created=in_2126),
        # Reset a second later; the first one had a batch in each second of 34 years.
        BatchIdentity("a", BATCHES - 1, created=in_2126),
        BatchIdentity("b", 0, created=in_2126 + 1),
    ]
    versions = [place.version for place in places]
    assert versions == sorted(set(versions))
    assert BatchIdentity("a", BATCHES - 1, created=2**33 - 1).version == 2**63 - 1  # in 2242
