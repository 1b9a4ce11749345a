"""When a topic holds all that failed attempts have sent."""

from __future__ import annotations

import pytest

from millrace.etl.sinks.delivery import kafka_tail


class Clock:
    """Time that passes by sleeping only."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(kafka_tail.time, "monotonic", lambda: self.now)
        monkeypatch.setattr(kafka_tail.time, "sleep", self.sleep)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def ends(clock: Clock, arrivals: list[float]) -> kafka_tail.Edges:
    """Return the end of a topic of one partition, whose messages arrive so many seconds after 1000."""
    return {("t", 0): (0, sum(1000 + each <= clock.now for each in arrivals))}


@pytest.mark.parametrize(
    ("failed_before", "found", "seconds"),
    [
        pytest.param(None, 2, 3, id="another process: producers wait 20 ms"),
        pytest.param(1, 4, 67, id="a producer that is throttled, and waits for a broker"),
        pytest.param(160, 3, 20, id="until it gives its messages up"),
        pytest.param(181, 2, 3, id="long ago"),
    ],
)
def test_all_messages_of_a_failed_attempt_are_awaited(
    failed_before: float | None, found: int, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    failed_at = None if failed_before is None else clock.now - failed_before
    edges = kafka_tail._ends_once_equal(lambda: ends(clock, [0, 0.5, 6, 36]), failed_at)
    assert edges == {("t", 0): (0, found)}
    assert clock.now - 1000 == pytest.approx(seconds, abs=0.6)


@pytest.mark.parametrize("failed_before", [None, 1, 150])
@pytest.mark.parametrize("stands_still_from", [0.0, 0.3])
def test_what_brokers_that_stood_still_append_after_their_answer_is_awaited(
    failed_before: float | None, stands_still_from: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages in their sockets are appended a second after they go on, when the producers have given them up."""
    clock = Clock(monkeypatch)

    def ask() -> kafka_tail.Edges:
        if 1000 + stands_still_from <= clock.now < 1045:
            clock.now = 1045.0
        return ends(clock, [0, 46])

    failed_at = None if failed_before is None else clock.now - failed_before
    assert kafka_tail._ends_once_equal(ask, failed_at) == {("t", 0): (0, 2)}
