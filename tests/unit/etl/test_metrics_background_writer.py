"""A slow, failing or blocked output never delays the writer, and losses are counted."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from millrace.etl.metrics.background_writer import BackgroundWriter


def wait_for(what: threading.Event) -> None:
    assert what.wait(10)


def test_everything_arrives_in_order() -> None:
    got: list[int] = []
    pipe: BackgroundWriter[int] = BackgroundWriter("test", got.extend)
    for n in range(500):
        pipe.put(n)
    assert pipe.close(10)
    assert got == list(range(500))
    assert pipe.take_dropped_count() == 0


def test_things_are_gathered_for_a_while_and_the_end_does_not_wait_for_more() -> None:
    calls: list[list[int]] = []
    pipe: BackgroundWriter[int] = BackgroundWriter(
        "test", lambda items: calls.append(list(items)), gather_seconds=60
    )
    for n in range(3):
        pipe.put(n)
    started = time.monotonic()
    assert pipe.close(10)
    assert time.monotonic() - started < 5
    assert calls == [[0, 1, 2]]


def test_what_is_urgent_waits_for_nothing() -> None:
    written = threading.Event()
    calls: list[list[int]] = []

    def write(items: Sequence[int]) -> None:
        calls.append(list(items))
        written.set()

    pipe: BackgroundWriter[int] = BackgroundWriter(
        "test", write, gather_seconds=60, urgent=lambda item: item == 7
    )
    pipe.put(1)
    pipe.put(7)
    wait_for(written)
    assert calls == [[1, 7]]
    assert pipe.close(10)


def test_a_gathered_lot_is_written_when_its_time_is_over() -> None:
    written = threading.Event()
    pipe: BackgroundWriter[int] = BackgroundWriter("test", lambda _: written.set(), gather_seconds=0.1)
    pipe.put(1)
    wait_for(written)
    assert pipe.close(10)


def test_an_output_that_hangs_holds_nobody_up_and_what_finds_no_room_is_counted() -> None:
    hanging, release = threading.Event(), threading.Event()
    got: list[int] = []

    def write(items: Sequence[int]) -> None:
        got.extend(items)
        hanging.set()
        release.wait()

    pipe: BackgroundWriter[int] = BackgroundWriter("test", write, room=10)
    pipe.put(-1)
    wait_for(hanging)
    longest = 0.0
    for n in range(1000):
        started = time.perf_counter()
        pipe.put(n)
        longest = max(longest, time.perf_counter() - started)
    assert longest < 0.1
    assert pipe.take_dropped_count() == 990
    assert pipe.take_dropped_count() == 0
    started = time.monotonic()
    assert not pipe.close(0.2)
    assert time.monotonic() - started < 2
    release.set()
    assert pipe.close(10)
    assert got == [-1, *range(10)], "what had room is written when the output wakes up"


def test_an_output_that_fails_loses_what_it_was_given_and_is_tried_again() -> None:
    got: list[int] = []
    tried = threading.Event()

    def write(items: Sequence[int]) -> None:
        if not tried.is_set():
            tried.set()
            raise BrokenPipeError("nobody reads")
        got.extend(items)

    pipe: BackgroundWriter[int] = BackgroundWriter("test", write)
    pipe.put(1)
    wait_for(tried)
    pipe.put(2)
    assert pipe.close(10)
    assert got == [2]
    assert pipe.take_dropped_count() == 1
