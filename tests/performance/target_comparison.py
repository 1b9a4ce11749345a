"""Comparison of a benchmark's figures with their targets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tests.performance.median_intervals import Interval, interval

Figures = Mapping[str, float]
"""Of a case in a round, by name."""

Round = Mapping[str, Figures]
"""Of all cases."""

UNITS = {
    "rate": "records/s",
    "cpu": "µs CPU a record",
    "tasks": "µs of them in tasks",
    "small": "s a batch of few",
    "small_cpu": "s CPU of it",
    "empty": "s a trigger of none",
}


@dataclass(frozen=True)
class Target:
    """Ratio of a figure of two cases that is wanted: at least, or at most."""

    figure: str
    ours: str
    other: str
    at_least: float | None = None
    at_most: float | None = None

    def __str__(self) -> str:
        bound = f"≥ {self.at_least:g}" if self.at_least is not None else f"≤ {self.at_most:g}"
        return f"{UNITS[self.figure]:19} {self.ours:7} / {self.other:12} {bound:6}"

    def ratio(self, rounds: Sequence[Round]) -> Interval | None:
        """Median of the rounds' ratios; None if a case was not measured."""
        measured = [self.figure in each.get(case, {}) for each in rounds for case in (self.ours, self.other)]
        if not all(measured) or not measured:
            return None
        return interval([r[self.ours][self.figure] / r[self.other][self.figure] for r in rounds])

    def verdict(self, found: Interval) -> str:
        """Say whether the median meets the target, in brackets where the interval contradicts it.

        Examples
        --------
        >>> Target("rate", "landing", "same_columns", at_least=0.9).verdict(Interval(0.92, 0.88, 0.95))
        '(met)'
        """

        def meets(ratio: float) -> bool:
            return (self.at_least is None or ratio >= self.at_least) and (
                self.at_most is None or ratio <= self.at_most
            )

        word = "met" if meets(found.median) else "MISSED"
        return word if meets(found.low) == meets(found.high) else f"({word})"


TARGETS = (
    *(Target("rate", ours, "same_columns", at_least=0.9) for ours in ("landing", "direct")),
    *(Target("rate", ours, "tutorial", at_least=3) for ours in ("landing", "direct")),
    *(Target("cpu", ours, "same_columns", at_most=1.1) for ours in ("landing", "direct")),
    *(Target("small", ours, "same_columns", at_most=1.15) for ours in ("landing", "direct")),
    *(Target("small_cpu", ours, "same_columns", at_most=1.15) for ours in ("landing", "direct")),
    *(Target("empty", ours, "same_columns", at_most=1.3) for ours in ("landing", "direct")),
)


def screen(lines: Mapping[str, Sequence[Round]]) -> list[str]:
    """Lines of text: the targets with the ratios of each Spark line, and the figures of each case.

    Parameters
    ----------
    lines
        Rounds by Spark's version.
    """
    told = [f"{'median of the rounds’ ratios [95 % interval]':51}" + "".join(f"Spark {v:24}" for v in lines)]
    for target in TARGETS:
        cells = []
        for rounds in lines.values():
            found = target.ratio(rounds)
            cells.append(
                "not measured"
                if found is None
                else f"{found.median:.2f} [{found.low:.2f}, {found.high:.2f}] {target.verdict(found)}"
            )
        told.append(f"{target} {''.join(f'{cell:30}' for cell in cells)}".rstrip())
    for version, rounds in lines.items():
        told += ["", f"Spark {version:14}" + "".join(f"{unit:>21}" for unit in UNITS.values())]
        for case in rounds[0]:
            medians = (
                f"{np.median([r[case][name] for r in rounds]):,.{0 if name == 'rate' else 3}f}"
                if name in rounds[0][case]
                else ""
                for name in UNITS
            )
            told.append(f"{case:20}" + "".join(f"{each:>21}" for each in medians))
    return told
