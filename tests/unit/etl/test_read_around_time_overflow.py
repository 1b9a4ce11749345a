"""A batch is read around records whose timestamps overflow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from millrace.etl.record.errors import AccountsError
from millrace.etl.sources.kafka.range_reader import (
    MOST_RANGES,
    is_time_overflow,
    split_ranges_around_unreadable,
)

HERE = ("flights", 0)


@given(st.data())
def test_every_offset_is_read_once_and_odd_ones_never_by_spark(data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, 50))
    end = data.draw(st.integers(begin + 1, begin + 400))
    odd = sorted(data.draw(st.sets(st.integers(begin, end - 1), max_size=120)))
    clean, rest = split_ranges_around_unreadable({HERE: (begin, end)}, {HERE: odd} if odd else {})
    by_spark = [o for a, b in clean.get(HERE, []) for o in range(a, b)]
    here = [o for a, b in rest.get(HERE, []) for o in range(a, b)]
    assert sorted(by_spark + here) == list(range(begin, end))
    assert not set(by_spark) & set(odd)
    assert len(clean.get(HERE, [])) <= MOST_RANGES
    if len(odd) < MOST_RANGES:
        assert here == odd


def test_another_failure_is_not_one_of_times() -> None:
    assert not is_time_overflow(AccountsError("ArithmeticException: long overflow in a transform"))
    assert not is_time_overflow(None)
    said = "java.lang.ArithmeticException: long overflow at o.a.s.sql.kafka010.KafkaRecordToRowConverter"
    wrapped = RuntimeError("the sink refused")
    wrapped.__cause__ = AccountsError(said)
    assert is_time_overflow(wrapped)


def test_spark_reads_the_widest_ranges_between_odd_records() -> None:
    narrow = [2 * n for n in range(1, MOST_RANGES + 1)]  # one good record between any two
    end = narrow[-1] + 1_000
    clean, rest = split_ranges_around_unreadable({HERE: (0, end)}, {HERE: narrow})
    assert clean[HERE][-1] == (narrow[-1] + 1, end)  # the thousand behind the last odd one
    assert sum(b - a for a, b in rest[HERE]) < 1_000
