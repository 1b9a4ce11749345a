"""Evaluation windows of alarms: period and number of periods in CloudWatch.

A query reports only at the end of a batch, so longer batches give fewer data points. A window holds as many data points as
the alarm needs, even if batches are as long as ``no-batch`` allows.

CloudWatch's windows slide: each minute an alarm evaluates the periods that end then (CloudWatch user guide, "Alarm
evaluation windows").
"""

from __future__ import annotations

import math

MINUTE = 60
HOUR = 3600
DAY = 86_400
"""Most seconds of one period (CloudWatch user guide, "Metrics concepts")."""

TRIGGERS_MISSED = 3
"""Time after which ``no-batch`` goes off if no trigger ends, in triggers."""


def longest_window(period: int) -> int:
    """Return the most seconds of period times evaluation periods: a day, or a week if a period is an hour or longer.

    The documentation of ``Period`` in botocore's model of ``PutMetricAlarm`` says so.
    """
    return 7 * DAY if period >= HOUR else DAY


def window_period_and_count(seconds: float) -> tuple[int, int]:
    """Return period and number of periods, in whole minutes, that cover a number of seconds.

    Examples
    --------
    >>> window_period_and_count(2), window_period_and_count(600), window_period_and_count(7200)
    ((60, 1), (60, 10), (3600, 2))
    """
    minutes = max(1, math.ceil(seconds / MINUTE))
    if minutes <= 60:
        return MINUTE, minutes
    hours = math.ceil(minutes / 60)
    return HOUR, min(hours, longest_window(HOUR) // HOUR)


def longest_batch_without_alarm(trigger: float) -> int:
    """Return the longest batch, in seconds, that can end before it sets off ``no-batch``.

    Parameters
    ----------
    trigger
        T in seconds.
    """
    period, count = window_period_and_count(TRIGGERS_MISSED * trigger)
    return period * (count + 1)


def late_window_period_and_counts(times: int, trigger: float) -> tuple[int, int, int]:
    """Return a period, the number of periods beyond the threshold, and the number of periods in the window.

    A period is a minute, or a trigger if that is longer. In the window, ``times`` periods have data even if
    batches take as long as :func:`longest_batch_without_alarm`.

    Examples
    --------
    >>> late_window_period_and_counts(3, 30), late_window_period_and_counts(3, 300)
    ((60, 3, 9), (300, 3, 10))
    """
    period = min(MINUTE * max(1, math.ceil(trigger / MINUTE)), DAY)
    return _period_and_counts(period, times, longest_batch_without_alarm(trigger))


def consecutive_window_period_and_counts(times: int, seconds: int, trigger: float) -> tuple[int, int, int]:
    """Return a period, the number of periods beyond the threshold, and the number of periods in the window.

    A period lasts ``seconds``, or :func:`longest_batch_without_alarm` if that is longer, so that each has data, and the
    periods are consecutive. If that takes more than the longest period, the window has more periods than the alarm needs.

    Examples
    --------
    >>> consecutive_window_period_and_counts(3, 300, 30), consecutive_window_period_and_counts(3, 300, 300)
    ((300, 3, 3), (960, 3, 3))
    """
    covered = max(seconds, longest_batch_without_alarm(trigger))
    return _period_and_counts(min(covered, DAY), times, covered)


def _period_and_counts(period: int, times: int, covered: int) -> tuple[int, int, int]:
    of = min(math.ceil(times * covered / period), longest_window(period) // period)
    return period, min(times, of), of
