"""Data classes of advice: findings, evidence, changes, effects."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

from millrace.advisor.logs.application_history_model import History

Kind = Literal[
    "at-capacity",
    "silent-backlog",
    "overhead-bound",
    "trigger-too-short",
    "slow-checkpoint",
    "skewed-tasks",
    "queued-partitions",
    "idle-cores",
    "rows-counted-twice",
    "missing-cache",
    "needless-cache",
    "retried-tasks",
    "small-files",
    "empty-batches",
    "unstable-start",
    "growing-state",
    "too-few-partitions",
    "too-many-partitions",
    "failed-query",
    "restarted-query",
]

Value = str | int | float | bool | None
"""Value of a setting."""


@dataclass(frozen=True)
class Change:
    """One value to change.

    Attributes
    ----------
    kind
        ``environment``: ``key`` of the environment file ``where``. ``argument``: job argument ``key`` of the job
        ``where``, as its own service names it. ``code``: the job's own program, which no setting reaches.
    where
        ``environments/prod.yaml``, ``job orders-glue``, or the call in the program.
    key
        Dotted path in the file, or the argument's or option's name.
    old
        Its value now; ``None`` where it is not set.
    new
        Its new value; ``None`` removes it.
    also
        Changes without which this one has no effect: the tasks for more cores, the limit of a batch on a trigger.
    """

    kind: Literal["environment", "argument", "code"]
    where: str
    key: str
    old: Value
    new: Value
    also: tuple[Change, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """One figure that a finding rests on.

    Attributes
    ----------
    name
        Its name, in words.
    value, unit
        The figure; ``""`` for a bare number.
    low, high
        95 % interval, where one was estimated.
    """

    name: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Effect:
    """Expected effect of a change.

    Attributes
    ----------
    what
        The figure that changes, such as ``batch duration`` or ``record age``.
    unit
        ``s`` for seconds; less is better.
    low, likely, high
        By how much it falls: 95 % interval and median.
    """

    what: str
    unit: str
    low: float
    likely: float
    high: float


@dataclass(frozen=True)
class Finding:
    """One thing to change.

    Attributes
    ----------
    query
        Name of the query, or ``None`` for the complete application.
    words
        One or two sentences for people.
    evidence
        Figures that show it.
    batches
        Batches in which it shows, in their order.
    changes
        What to change, the best way first.
    effect
        What the first change is expected to bring.
    dollars_a_month
        USD a month that the first change saves: machines that go or, for a key of an environment file, the difference of the two
        plans. ``None`` where it saves none or no price is known; a batch that takes less time on the same machines costs as much.
    run
        Run id of the query: a query that was restarted within the application has several runs of one name.
    """

    kind: Kind
    query: str | None
    words: str
    evidence: tuple[Evidence, ...]
    batches: tuple[int, ...]
    changes: tuple[Change, ...]
    effect: Effect
    dollars_a_month: float | None = None
    run: str | None = None

    @property
    def best_change(self) -> Change | None:
        """The best change; None without any."""
        return self.changes[0] if self.changes else None

    def with_changes(self, left: Iterable[Change]) -> Finding:
        """Return the finding with the changes that are left; with none where the best is not, as the effect is the best one's."""
        changes = tuple(left)
        return replace(self, changes=changes if changes[:1] == self.changes[:1] else ())

    @property
    def worth(self) -> tuple[float, float]:
        """Dollars a month, then seconds: findings are in this order, the largest first."""
        return self.dollars_a_month or 0.0, self.effect.likely


@dataclass(frozen=True)
class Advice:
    """All findings of one log.

    Attributes
    ----------
    history
        The history that was read.
    findings
        The most valuable first: by dollars a month, then by seconds.
    disturbed
        Why figures of this run cannot be trusted; ``None`` where they can.
    notes
        What could not be judged, and why.
    """

    history: History
    findings: tuple[Finding, ...]
    disturbed: str | None = None
    notes: tuple[str, ...] = field(default=())
