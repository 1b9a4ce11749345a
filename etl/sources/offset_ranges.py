"""Ranges of offsets of Kafka that leave some records out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

MOST_RANGES = 16
"""Ranges that Spark reads of a partition; what lies between records to be left out in smaller ones is read with them."""


Partition = tuple[str, int]


Ranges = Mapping[Partition, tuple[int, int]]
"""Offsets by topic and partition: from the first up to, not including, the second."""


def split(
    ranges: Ranges, odd: Mapping[Partition, Sequence[int]]
) -> tuple[dict[Partition, list[tuple[int, int]]], dict[Partition, list[tuple[int, int]]]]:
    """Part a batch into ranges without odd records, at most ``MOST_RANGES`` of a partition, and what is left.

    Parameters
    ----------
    odd
        Offsets to be left out, in order.

    Examples
    --------
    >>> split({("t", 0): (5, 9)}, {("t", 0): [6]})
    ({('t', 0): [(5, 6), (7, 9)]}, {('t', 0): [(6, 7)]})
    """
    clean: dict[Partition, list[tuple[int, int]]] = {}
    rest: dict[Partition, list[tuple[int, int]]] = {}
    for place, (begin, end) in ranges.items():
        edges = [begin - 1, *odd.get(place, ()), end]
        gaps = [(a + 1, b) for a, b in pairwise(edges) if a + 1 < b]
        kept = sorted(sorted(gaps, key=lambda gap: gap[0] - gap[1])[:MOST_RANGES])
        if kept:
            clean[place] = kept
        edges = [begin, *(edge for gap in kept for edge in gap), end]
        left = [(a, b) for a, b in zip(edges[::2], edges[1::2], strict=True) if a < b]
        if left:
            rest[place] = left
    return clean, rest


def turns(clean: Mapping[Partition, Sequence[tuple[int, int]]]) -> Iterator[Ranges]:
    """One range of each partition in turn."""
    for turn in range(max((len(parts) for parts in clean.values()), default=0)):
        yield {place: parts[turn] for place, parts in clean.items() if turn < len(parts)}


def offsets_json(chosen: Mapping[str, Mapping[str, tuple[int, int]]], end: int) -> str:
    """Beginnings (``end`` 0) or ends (1) of ranges, by topic and partition, as Spark's Kafka source takes them."""
    return json.dumps(
        {topic: {p: offsets[end] for p, offsets in found.items()} for topic, found in chosen.items()}
    )
