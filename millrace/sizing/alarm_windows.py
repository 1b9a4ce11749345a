"""How long alarms look back: periods of CloudWatch, and how many of them.

A query reports when a batch ends and is silent meanwhile, so the later it is, the fewer data points it has. Windows
hold as many as an alarm asks for even if batches take as long as they can before the silence sets off ``no-batch``.

CloudWatch's windows slide: each minute an alarm looks at the periods that end then (CloudWatch user guide, "Alarm
evaluation windows").
"""

from __future__ import annotations

import math

MINUTE = 60
HOUR = 3600
LONGEST_WINDOW = 86_400
"""Period times evaluation periods may be a day at most (CloudWatch user guide, "Evaluating an alarm")."""

TRIGGERS_MISSED = 3
"""After so many triggers' time without the end of one there is silence."""


def window(seconds: float) -> tuple[int, int]:
    """Return period and number of periods, in whole minutes, that span so many seconds.

    Examples
    --------
    >>> window(2), window(600), window(7200)
    ((60, 1), (60, 10), (3600, 2))
    """
    minutes = max(1, math.ceil(seconds / MINUTE))
    if minutes <= 60:
        return MINUTE, minutes
    hours = math.ceil(minutes / 60)
    return HOUR, min(hours, LONGEST_WINDOW // HOUR)


def longest_batch(trigger: float) -> int:
    """Return the seconds beyond which a batch surely sets off ``no-batch`` before it ends.

    Parameters
    ----------
    trigger
        T in seconds.
    """
    period, count = window(TRIGGERS_MISSED * trigger)
    return period * (count + 1)


def some_of(times: int, trigger: float) -> tuple[int, int, int]:
    """Return a period, how many must be beyond a threshold, and of how many.

    A period is a minute, or a trigger where that is longer. Of as many as there are, ``times`` have data even if
    batches take as long as :func:`longest_batch`.

    Examples
    --------
    >>> some_of(3, 30), some_of(3, 300)
    ((60, 3, 9), (300, 3, 10))
    """
    period = min(MINUTE * max(1, math.ceil(trigger / MINUTE)), LONGEST_WINDOW)
    of = min(math.ceil(times * longest_batch(trigger) / period), LONGEST_WINDOW // period)
    return period, min(times, of), of


def all_of(times: int, seconds: int, trigger: float) -> tuple[int, int]:
    """Return a period and how many of them must be beyond a threshold, one after the other.

    A period lasts ``seconds``, or :func:`longest_batch` where that is longer, so that each has data.

    Examples
    --------
    >>> all_of(3, 300, 30), all_of(3, 300, 300)
    ((300, 3), (960, 3))
    """
    period = min(max(seconds, longest_batch(trigger)), LONGEST_WINDOW)
    return period, min(times, LONGEST_WINDOW // period)
