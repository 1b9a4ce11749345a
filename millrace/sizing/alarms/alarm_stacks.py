"""Distribution of alarms and dashboards over numbered stacks, none of which has more than CloudFormation takes."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Sequence

from millrace.config.model import Environment
from millrace.sizing.plan_model import Alarm

MOST_IN_A_STACK = 450
"""Most alarms in a stack, which holds 500 resources (CloudFormation quotas), also subscriptions, dashboards, the workspace."""

_USUAL = 250
"""Alarms of a stack where one is not enough: with room, as a hash shares them out."""


def alarms_divided_into_stacks(
    environment: Environment, alarms: Sequence[Alarm]
) -> tuple[tuple[Alarm, ...], ...]:
    """Distribute the alarms that are in no job's stack over the fewest stacks.

    The alarms of a subject, such as a job, are in one stack. One more stack takes alarms from the others, and none of those gets
    any: a stack that is deployed after them finds every name free.

    Returns
    -------
    tuple of tuple
        The alarms of each stack, at least one stack.
    """
    by_job = environment.observability.alarms == "by-job"
    shared = [alarm for alarm in alarms if not (by_job and alarm.watches_job)]
    of_subject = Counter(alarm.subject for alarm in shared)
    count = 1 if len(shared) <= MOST_IN_A_STACK else math.ceil(len(shared) / _USUAL)
    while True:
        stacks: list[list[Alarm]] = [[] for _ in range(count)]
        for alarm in shared:
            many = of_subject[alarm.subject] > _USUAL // 2
            stacks[stack_index_of_key(alarm.name if many else alarm.subject, count)].append(alarm)
        if max(map(len, stacks)) <= MOST_IN_A_STACK:
            return tuple(map(tuple, stacks))
        count += 1


def stack_index_of_key(key: str, count: int) -> int:
    """Return the place of a key among so many stacks; another stack moves keys to itself and none between the others.

    Source: J. Lamping, E. Veach, "A Fast, Minimal Memory, Consistent Hash Algorithm", 2014.

    Examples
    --------
    >>> [stack_index_of_key("job/flights", count) for count in (1, 2, 8)]
    [0, 1, 2]
    """
    state = int.from_bytes(hashlib.sha256(key.encode()).digest()[:8])
    found, following = 0, 0
    while following < count:
        found = following
        state = (state * 2862933555777941757 + 1) % 2**64
        following = int((found + 1) * (2**31 / ((state >> 33) + 1)))
    return found
