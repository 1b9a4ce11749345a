"""Many offset ranges are merged into a few that cover all of them and keep the widest gaps."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from millrace.etl.sources.batch_offsets import MOST_CONDITIONS, _merged_ranges

RANGE = st.tuples(st.integers(0, 10_000), st.integers(1, 500)).map(lambda pair: (pair[0], sum(pair)))


@given(st.lists(RANGE, min_size=1, max_size=4 * MOST_CONDITIONS))
def test_each_range_lies_within_one_of_them(ranges: list[tuple[int, int]]) -> None:
    covered = _merged_ranges(ranges)
    assert len(covered) <= MOST_CONDITIONS
    for first, end in ranges:
        assert any(low <= first and end <= high for low, high in covered)
    assert all(a[1] < b[0] for a, b in itertools.pairwise(covered))


def test_a_range_within_another_widens_nothing() -> None:
    assert _merged_ranges([(0, 5), (10, 100), (20, 30), (200, 201)]) == [(0, 5), (10, 100), (200, 201)]
