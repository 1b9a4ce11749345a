"""Alarms go off when a query is late, for any batch duration, and stay quiet otherwise."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pytest

from millrace.sizing import plan
from millrace.sizing.alarms.alarm_windows import longest_batch_without_alarm
from millrace.sizing.plan_model import Alarm
from tests.unit.sizing.conftest import Loader, text

TRIGGERS = (1, 10, 30, 60, 100, 300, 900, 3600, 10_000, 40_000)
OVERRUNS = (1.3, 1.7, 2.0, 2.5, 3.0, 4.5, 10.0)
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {
    "Maximum": max,
    "Sum": sum,
    "Average": lambda values: sum(values) / len(values),
    "SampleCount": len,
}
Points = Sequence[tuple[float, float]]
"""Second and value, in order."""


def goes_off(alarm: Alarm, points: Points, now: float) -> bool:
    """CloudWatch's rule: of the last periods up to now, so many are beyond the threshold.

    A period without data counts as the alarm says; windows slide, so a period ends whenever one looks.
    """
    beyond = silent = 0
    for number in range(alarm.of):
        end = now - number * alarm.period
        first, after = (bisect_left(points, (at,)) for at in (end - alarm.period, end))
        values = [value for _, value in points[first:after]]
        if not values:
            silent += alarm.goes_off_in_silence
            continue
        found = STATISTICS[alarm.statistic](values)
        beyond += found > alarm.threshold if alarm.above else found < alarm.threshold
    # Without a datum in any of them the state is INSUFFICIENT_DATA, which is told of where silence is what one is called for.
    return beyond >= alarm.periods or silent == alarm.of


@dataclass(frozen=True)
class Told:
    """What a query and its stream report, metric by metric."""

    batches: Points
    """Start and duration of each batch."""
    trigger: float
    """Tasks fail in batches that take longer than this."""

    def points(self, metric: str) -> Points:
        found = sorted(self._points(metric))
        assert found, f"nothing reports {metric}"
        return found

    def _points(self, metric: str) -> Iterator[tuple[float, float]]:
        before = 0.0
        for begun, took in self.batches:
            oldest, before = before, begun
            if metric == "GetRecords.IteratorAgeMilliseconds":
                yield begun, 1000 * (begun - oldest)
            else:
                yield (
                    begun + took,
                    {
                        "RecordAge": begun + took - oldest,
                        "BatchDuration": took,
                        "Triggers": 1.0,
                        "RetriedTasks": float(took > self.trigger),
                    }[metric],
                )


def told(trigger: float, took: Callable[[int], float], seconds: float) -> Told:
    """Batches as Spark starts them: at the next multiple of the trigger, or at once when that has passed."""
    batches: list[tuple[float, float]] = []
    free = 0.0
    while free < seconds:
        at = max(math.ceil(free / trigger - 1e-9) * trigger, free) if took(len(batches)) <= trigger else free
        batches.append((at, took(len(batches))))
        free = sum(batches[-1])
    return Told(batches, trigger)


def watched(from_text: Loader, trigger: int) -> dict[str, Alarm]:
    """The alarms of one query with an SLA of twice its trigger, by their kind."""
    environment = from_text(
        text(rate="10", sla=f"{2 * trigger}s", overhead=f"{100 * trigger}ms").replace(
            "kind: land", f"kind: land\n        trigger: {trigger}s"
        )
    )
    found = {alarm.runbook_heading: alarm for alarm in plan(environment, simulated=False).alarms}
    assert found["record-age"].threshold == 2 * trigger
    return found


def minutes(begin: float, end: float) -> list[float]:
    step = 60 * max(1, math.ceil((end - begin) / 60 / 200))
    return [60.0 * number for number in range(math.ceil(begin / 60), int(end // 60), step // 60)]


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("overrun", OVERRUNS)
def test_batches_that_are_too_long_are_never_silent(from_text: Loader, trigger: int, overrun: float) -> None:
    alarms = watched(from_text, trigger)
    took = overrun * trigger
    begin = 20 * max(took, 600)
    end = begin + 4 * max(took, 600)
    run = told(trigger, lambda _: took, end)
    if took > longest_batch_without_alarm(trigger):
        points = run.points("Triggers")
        assert any(goes_off(alarms["no-batch"], points, now) for now in minutes(begin, end))
        return
    for kind in {"batch-duration"} | (
        {"retried-tasks", "record-age", "iterator-age"} if overrun > 2 else set()
    ):
        alarm = alarms[kind]
        points = run.points(alarm.metric)
        quiet = [now for now in minutes(begin, end) if not goes_off(alarm, points, now)]
        assert not quiet, f"{kind} of {alarm.periods} of {alarm.of} periods of {alarm.period} s"


@pytest.mark.parametrize("trigger", TRIGGERS)
@pytest.mark.parametrize("slow", [(), (1, 2.4), (0, 2.4)])
def test_a_query_on_time_sets_off_nothing(
    from_text: Loader, trigger: int, slow: tuple[int, float] | tuple[()]
) -> None:
    """Also one whose first batch, or another, was slow: what waited meanwhile is late once."""
    alarms = watched(from_text, trigger)
    which, times = slow or (0, 0.9)

    def took(number: int) -> float:
        return times * trigger if number == which else 0.9 * trigger

    run = told(trigger, took, max(30 * trigger, 3600))
    for kind in ("batch-duration", "record-age", "retried-tasks", "iterator-age", "no-batch"):
        alarm = alarms[kind]
        # Before the first trigger has ended there is silence, for which a start waits.
        begin = longest_batch_without_alarm(trigger) if kind == "no-batch" else 60.0
        points = run.points(alarm.metric)
        loud = [now for now in minutes(begin, sum(run.batches[-1])) if goes_off(alarm, points, now)]
        assert not loud, f"{kind} of {alarm.periods} of {alarm.of} periods of {alarm.period} s"


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_windows_are_ones_that_cloudwatch_takes(from_text: Loader, trigger: int) -> None:
    for alarm in watched(from_text, trigger).values():
        assert alarm.period % 60 == 0
        # botocore's model of PutMetricAlarm: a week, or a day with periods below an hour.
        assert alarm.period * alarm.of <= (7 * 86_400 if alarm.period >= 3600 else 86_400)
        assert alarm.period <= 86_400, "the longest period of CloudWatch"
        assert 1 <= alarm.periods <= alarm.of


@pytest.mark.parametrize("trigger", [1, 10, 30, 60])
def test_short_batches_that_are_late_are_told_within_minutes(from_text: Loader, trigger: int) -> None:
    alarms = watched(from_text, trigger)
    run = told(trigger, lambda number: 0.5 * trigger if number < 3600 / trigger else 1.3 * trigger, 7200)
    age = [(at, 3.0 * trigger if at > 3600 else trigger) for at, _ in run.points("RecordAge")]
    assert goes_off(alarms["record-age"], age, 3600 + 5 * 60)
    assert not goes_off(alarms["batch-duration"], run.points("BatchDuration"), 3600 + 4 * 60)
    assert goes_off(alarms["batch-duration"], run.points("BatchDuration"), 3600 + 11 * 60)
