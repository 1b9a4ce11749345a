"""The order of records is total, transitive and independent of the cut into batches."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from millrace.etl.sinks.delivery.record_order import is_not_older, order_after_replacement

Sent = tuple[str, int, int, str]
"""Lane, position, arrival, value of the column that orders."""


def text(lane: str, position: int, time: int, prefix: str = "") -> str:
    return f"{prefix}1{time:016}{lane * 16}{position:056}{'0' * 8}"


def histories(values: str = "") -> st.SearchStrategy[list[Sent]]:
    """Records of one key in two lanes; times of a lane may fall, and positions say nothing across lanes."""
    value = st.sampled_from(values) if values else st.just("")
    steps = st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 3), st.integers(0, 20), value), min_size=3, max_size=7
    )
    return steps.map(_placed)


def _placed(steps: list[tuple[str, int, int, str]]) -> list[Sent]:
    at, results = {"a": 0, "b": 100}, []
    for lane, step, time, value in steps:
        at[lane] += step
        results.append((lane, at[lane], time, value))
    return results


def tuples(history: list[Sent]) -> dict[Sent, tuple[str, int, str, int]]:
    """The order of each record, as documented: the value, the latest arrival in its lane of that value up to it, the lane, the position."""
    return {
        (lane, position, time, value): (
            value,
            max(t for where, at, t, v in history if (where, v) == (lane, value) and at <= position),
            lane,
            position,
        )
        for lane, position, time, value in history
    }


@given(histories())
def test_the_order_is_that_of_its_tuple_in_every_triple(history: list[Sent]) -> None:
    order = tuples(history)
    texts = {each: text(each[0], each[1], order[each][1]) for each in history}
    for one, two, three in permutations(history[:5], 3):
        assert is_not_older(texts[one], texts[two]) == (order[one] >= order[two])
        if is_not_older(texts[one], texts[two]) and is_not_older(texts[two], texts[three]):
            assert is_not_older(texts[one], texts[three])
        assert is_not_older(texts[one], texts[two]) or is_not_older(texts[two], texts[one])


@given(st.one_of(histories(), histories("12")))
def test_a_row_ends_with_the_last_record_however_the_history_is_cut(history: list[Sent]) -> None:
    row = ""
    for lane, position, time, value in history:  # each lane in its order, as a query lands it
        new = text(lane, position, time, value)
        if not row or is_not_older(new, row):
            row = order_after_replacement(new, row) if row else new
    order = tuples(history)
    last = max(history, key=order.__getitem__)
    assert row == text(last[0], last[1], order[last][1], last[3])


@given(st.integers(0, 99), st.integers(0, 99), st.integers(0, 9), st.integers(0, 9))
def test_a_named_column_decides_first(one: int, two: int, position: int, other: int) -> None:
    texts = [text("a", p, 5, f"{n:02}") for n, p in ((one, position), (two, other))]
    assert is_not_older(*texts) == ((one, position) >= (two, other))
