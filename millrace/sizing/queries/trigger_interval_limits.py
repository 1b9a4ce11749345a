"""Triggers of queries: bounded by memory, retention and stated limits, and in step along a path of tables."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta

from millrace.config.model import Stream
from millrace.sizing.prices_and_limits import limit_per_second, service_limits
from millrace.sizing.queries.sizing_formulas import QueryWork

_HELD = 0.9
"""Share of what memory holds that arrives between two triggers."""

_TASKS = 2
"""Tasks at once of the smallest workers."""

_JOINED = 50.0
"""Fixed costs of a batch that fit into the longest trigger of a join: 2 % of its time."""

_SPARE = 1.1
"""Factor of the partitions of a bounded run, above those whose tasks hold its largest batch."""

WORTH = 3.0
"""A pinned trigger of so many fixed costs or more gets the cores to end each batch within it, if a derive query follows."""


def most_fetched_bytes(tasks: float) -> float:
    """Return the bytes of payload that tasks may have fetched within their share of the heap."""
    return tasks * service_limits()["memory.fetch_mib_per_task"] * _payload_bytes_per_mib()


def _payload_bytes_per_mib() -> float:
    """Return the bytes of payload that take a MiB of the heap."""
    return 1024**2 / service_limits()["memory.expansion"]


def _most_fetched_mib_per_task(heap_share: str, gib: float) -> float:
    """Return the MiB of the heap that the records of a task may take on workers of two tasks with so much memory."""
    known = service_limits()
    heap = min(1024 * gib * known[heap_share], 1024 * gib - _TASKS * known["memory.python_mib_per_task"])
    own = known["memory.reserved_mib"] + known["memory.base_mib"]
    return (heap - own) / _TASKS - known["memory.writer_mib_per_task"]


def seconds_that_fit_in_memory(
    streams: Mapping[str, Stream],
    peaks: Mapping[str, float],
    hand_over: Mapping[str, float],
    again: float,
    heap_share: str,
) -> float:
    """Return the seconds of arrivals that memory holds: that of the fewest partitions that the traffic of each stream needs.

    So it depends on no cores. Where the file asks to catch up, batches are so much larger than what arrives, and they fit on the
    smallest workers: with a longer trigger, more partitions or larger workers would be paid for.

    Parameters
    ----------
    peaks
        Records per second by stream.
    hand_over
        Seconds in which a partition of a stream delivers one record.
    again
        Rate during catch-up that the file asks for, as a multiple of the peak.
    heap_share
        Limit with the share of a worker's memory that is its heap.
    """
    whole = {each: peak for each, peak in peaks.items() if streams[each].fetched_whole}
    if not whole:
        return math.inf
    # Those of the stream that brings the most bytes to a partition.
    parts = min(
        _least_partitions(streams[each], peak, again * peak * hand_over[each])
        / (peak * streams[each].traffic.record_size)
        for each, peak in whole.items()
    )
    known = service_limits()
    fetched = _HELD * known["memory.fetch_mib_per_task"]
    if again > 1:
        # The smallest workers cost the least for each core.
        fetched = min(fetched, _most_fetched_mib_per_task(heap_share, known["worker.smallest.gib"]) / again)
    return _round_down_to_two_digits(parts * fetched * _payload_bytes_per_mib())


def seconds_within_retention(streams: Iterable[Stream], outage: timedelta) -> float:
    """Return the longest trigger with which no record of streams expires unread: half of what an outage leaves of the retention.

    A record waits for the trigger, for the end of an outage, and for its batch, which takes as long as the trigger at most.
    """
    return math.floor(500 * min((each.retention - outage).total_seconds() for each in streams)) / 1000


def seconds_within_batch_limit(limit: int | None, rate: float) -> float:
    """Return the longest trigger with which fewer records arrive than a stated limit lets a batch have; infinity without one."""
    return math.inf if limit is None else (math.ceil(1000 * limit / rate) - 1) / 1000


def partitions_that_hold_run(
    streams: Mapping[str, Stream], peaks: Mapping[str, float], seconds: float, heap_share: str
) -> tuple[float, float]:
    """Return the partitions whose tasks hold the largest batch of a bounded run, on workers with 4 GiB a core and with twice that.

    None if no batch has to be held as a whole.

    Parameters
    ----------
    peaks
        Records per second by stream.
    seconds
        Time between two runs.
    heap_share
        Limit with the share of a worker's memory that is its heap.
    """
    size = sum(
        peak * streams[each].traffic.record_size * streams[each].fetched_whole for each, peak in peaks.items()
    )
    known = service_limits()
    usual = known["memory.run_fetch_mib_per_task"]
    most = max(usual, _most_fetched_mib_per_task(heap_share, known["worker.largest.gib_per_core"] * _TASKS))
    needed = _SPARE * size * seconds / _payload_bytes_per_mib()
    return needed / usual, needed / most


def work_with_trigger_limit(work: QueryWork, seconds: float, *, followed: bool) -> QueryWork:
    """Return the work with a trigger for no more records than memory holds, or within which each batch must end.

    Parameters
    ----------
    seconds
        Seconds of arrivals that memory, retention and a stated limit hold.
    followed
        Whether a derive query reads the table.
    """
    most = max(seconds, round(WORTH * work.overhead, 6))
    if followed and work.trigger is not None and WORTH * work.overhead <= work.trigger <= most:
        most = work.trigger
    return replace(work, most_trigger=most)


def longest_join_trigger(overhead: float) -> float:
    """Return the seconds above which a longer trigger saves a join next to nothing, and costs memory: it holds its batches."""
    return round(_JOINED * overhead, 6)


def work_with_landing_pace(work: QueryWork, landed: Sequence[QueryWork], most: float = math.inf) -> QueryWork:
    """Return the work with a trigger of whole landing batches, or with room for one landing batch more.

    A trigger that is a multiple of its tables' gets the same number of landing batches each time. Any other sometimes gets one
    batch more. Of the two, the one that takes fewer cores.

    Parameters
    ----------
    most
        Seconds that it may have.
    """
    slowest = max(each.planned_trigger_seconds for each in landed)
    found = []
    longest = most
    if len(landed) > 1:
        longest = min(
            most, round(slowest * math.ceil(longest_join_trigger(work.overhead) / slowest - 1e-9), 6)
        )
    for bound in (
        min(round(math.floor(min(work.sla / 2, most) / slowest + 1e-9) * slowest, 6), longest),
        longest,
    ):
        bounded = replace(work, most_trigger=bound)
        trigger = bounded.planned_trigger_seconds
        whole = all(
            each.planned_trigger_seconds >= each.longest_batch_seconds
            and math.isclose(
                trigger, round(trigger / each.planned_trigger_seconds) * each.planned_trigger_seconds
            )
            for each in landed
        )
        more = max(max(each.planned_trigger_seconds, each.longest_batch_seconds) for each in landed)
        found.append(bounded if whole else replace(bounded, beside=more))
    possible = [each for each in found if each.overhead < each.longest_batch_seconds]
    return min(possible, key=lambda each: each.overhead_factor, default=found[-1])


def _least_partitions(stream: Stream, peak: float, read_at_once: float) -> float:
    """Return the fewest partitions for the arriving records, and for their readers.

    More that are pinned do not count, as the plan's own may be.
    """
    size = peak * stream.traffic.record_size
    arriving = {
        "records in": peak
        * stream.traffic_as_service_counts.records_per_second
        / stream.traffic.records_per_second,
        "bytes in": size,
    }
    needed = max(
        1.0, *(arriving[each.of] / limit_per_second(each) for each in stream.limits if each.of in arriving)
    )
    if stream.elastic_limit_names is None:
        needed = max(needed, read_at_once)
        return min(needed, stream.given_partitions or needed)
    first, headroom = (service_limits()[name] for name in stream.elastic_limit_names)
    return max(first, needed * headroom)


def _round_down_to_two_digits(value: float) -> float:
    step = 10.0 ** (math.floor(math.log10(value)) - 1)
    return round(math.floor(value / step + 1e-9) * step, 6)
