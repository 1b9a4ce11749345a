"""Ranges of a stream's next batch by arrival time."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from millrace.etl.sources.kinesis.duplicate_look_up_arrivals import MOST_RANGES, next_arrival_ranges


def test_a_shard_that_lags_and_those_that_do_not() -> None:
    assert next_arrival_ranges([100, 101, 700], 5, 700) == ((100, 107), (700, None))
    # New to a shard without a record in the last batch: after the time at which that one began.
    assert next_arrival_ranges([100], 5, 700) == ((100, 106), (700, None))
    assert next_arrival_ranges([698], 5, 700) == ((698, None),)
    assert next_arrival_ranges([], 5, 700) == ((700, None),)
    # What arrived after the batch began: clocks differ.
    assert next_arrival_ranges([703], 5, 700) == ((700, None),)


def test_many_shards_that_lag_are_put_together_where_they_are_nearest() -> None:
    steps = [n * 100 for n in range(20)] + [1005 + 5]
    result = next_arrival_ranges(steps, 5, 10_000)
    assert len(result) == MOST_RANGES
    assert result[-1] == (10_000, None)
    assert result[0][0] == 0


@given(
    st.lists(st.integers(0, 2000), max_size=60),
    st.integers(1, 40),
    st.integers(0, 2100),
)
def test_every_step_is_covered_as_far_as_it_may_go_on(steps: list[int], further: int, recent: int) -> None:
    result = next_arrival_ranges(steps, further, recent)
    assert 1 <= len(result) <= MOST_RANGES

    def covered(step: int) -> bool:
        return any(begin <= step and (end is None or step < end) for begin, end in result)

    assert covered(recent)
    assert covered(10_000)
    assert all(covered(step + n) for step in steps for n in (0, further))
    ends = [edge for each in result for edge in each]
    assert ends[-1] is None
    assert all(a < b for a, b in pairwise(ends) if a is not None and b is not None)
