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
LONGEST_WINDOW = 86_400
"""Most seconds of period times evaluation periods: one day (CloudWatch user guide, "Evaluating an alarm")."""

TRIGGERS_MISSED = 3
"""Time after which ``no-batch`` goes off if no trigger ends, in triggers."""


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
    return HOUR, min(hours, LONGEST_WINDOW // HOUR)


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
    period = min(MINUTE * max(1, math.ceil(trigger / MINUTE)), LONGEST_WINDOW)
    of = min(math.ceil(times * longest_batch_without_alarm(trigger) / period), LONGEST_WINDOW // period)
    return period, min(times, of), of


def consecutive_window_period_and_count(times: int, seconds: int, trigger: float) -> tuple[int, int]:
    """Return a period and the number of consecutive periods beyond the threshold.

    A period lasts ``seconds``, or :func:`longest_batch_without_alarm` if that is longer, so that each has data.

    Examples
    --------
    >>> consecutive_window_period_and_count(3, 300, 30), consecutive_window_period_and_count(3, 300, 300)
    ((300, 3), (960, 3))
    """
    period = min(max(seconds, longest_batch_without_alarm(trigger)), LONGEST_WINDOW)
    return period, min(times, LONGEST_WINDOW // period)
