"""Verdict at the start of a plan, a simulation and advice: cost, SLA, largest risks, next command."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from rich import box
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from millrace.sizing.readable_numbers import count, join_names

Severity = Literal["breach", "warning", "note"]
State = Literal["kept", "at risk", "missed", "unknown"]

SEVERITIES: tuple[Severity, ...] = ("breach", "warning", "note")
"""The worst first."""

MARKS: Mapping[str, str] = {
    "breach": "✖",
    "missed": "✖",
    "warning": "▲",
    "at risk": "▲",
    "note": "●",
    "unknown": "●",
    "kept": "✔",
}
"""Shapes beside the words, for readers who cannot see the colours."""

_COLOURS: Mapping[str, str] = {"✖": "red", "▲": "yellow", "●": "blue", "✔": "green"}

LARGEST = 3
"""Number of risks that a verdict names."""


@dataclass(frozen=True)
class Risk:
    """One risk or failure, for all subjects that it concerns.

    Attributes
    ----------
    kind
        Its name for scripts.
    severity
        ``breach``: a promise is broken in a simulated or measured case. ``warning``: it may be broken. ``note``:
        other assumptions of the figures.
    words
        For people.
    concerns
        Keys such as ``jobs.flights`` or ``streams.clicks``; names of queries in advice.
    usd_month
        Monthly cost of the subjects; None if unknown.
    """

    kind: str
    severity: Severity
    words: str
    concerns: tuple[str, ...] = ()
    usd_month: float | None = None


def risks_largest_first(risks: Iterable[Risk]) -> tuple[Risk, ...]:
    """Return risks in order, the largest first.

    Breaches come before warnings, warnings before notes. Among equals, the one that concerns more dollars a month
    comes first, and one with unknown dollars last. Risks that are equal in both keep their order.
    """
    return tuple(sorted(risks, key=lambda each: (SEVERITIES.index(each.severity), -(each.usd_month or 0.0))))


def also_concerned_text(several: Sequence[str]) -> str:
    """Return the names that a risk concerns if there are several; otherwise nothing."""
    return f"; concerns {join_names(several)}" if len(set(several)) > 1 else ""


@dataclass(frozen=True)
class SlaState:
    """State of the SLA: the share of records in time.

    Attributes
    ----------
    state
        ``at risk``: kept in one simulated case and not in another; ``unknown``: there is no SLA.
    words
        The figures.
    share
        Share of records in time, in the worst simulated case; None if unknown.
    """

    state: State
    words: str
    share: float | None = None


@dataclass(frozen=True)
class Verdict:
    """Summary that is shown first.

    Attributes
    ----------
    subject
        Subject of the summary.
    cost, cost_words
        Monthly cost as a headline, and what it includes.
    usd_month, assumed
        The same for scripts; whether an input was not measured.
    sla
        State of the SLA.
    risks
        All of them, the largest first (:func:`risks_largest_first`).
    command, why
        Next command, and its effect.
    moves
        Changes that cost less, a line for each.
    """

    subject: str
    cost: str
    cost_words: str
    usd_month: float | None
    assumed: bool
    sla: SlaState
    risks: tuple[Risk, ...]
    command: str
    why: str
    moves: tuple[str, ...] = ()


def verdict_document(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as an object that ``json.dumps`` takes.

    Returns
    -------
    dict
        ``subject``, ``cost`` (``usd_month``, ``assumed``, ``headline``, ``words``), ``sla`` (``state``: ``kept``, ``at risk``, ``missed`` or
        ``unknown``; ``share``, ``words``), ``risks``, the largest first, each with ``kind``, ``severity`` (``breach``,
        ``warning`` or ``note``), ``words``, ``concerns`` and ``usd_month``, and ``next`` (``command``, ``words``).
    """
    return {
        "subject": verdict.subject,
        "cost": {
            "usd_month": verdict.usd_month,
            "assumed": verdict.assumed,
            "headline": verdict.cost,
            "words": f"{verdict.cost}, {verdict.cost_words}",
        },
        "sla": {"state": verdict.sla.state, "share": verdict.sla.share, "words": verdict.sla.words},
        "risks": [
            {
                "kind": each.kind,
                "severity": each.severity,
                "words": each.words,
                "concerns": list(each.concerns),
                "usd_month": each.usd_month,
            }
            for each in verdict.risks
        ],
        "next": {"command": verdict.command, "words": verdict.why},
    }


def verdict_panel(verdict: Verdict, *, terminal: bool) -> Iterator[RenderableType]:
    """Yield a verdict: a coloured panel in a terminal, plain lines in a pipe.

    The panel has no sides, and the command has its own line before its explanation, so that it can be copied.
    """
    cost = Text.assemble((verdict.cost, "bold"), f", {verdict.cost_words}")
    rows = [("cost", cost), ("SLA", _marked_text(verdict.sla.state, verdict.sla.words, terminal))]
    rows += [
        ("" if place else "risks", _marked_text(risk.severity, risk.words, terminal))
        for place, risk in enumerate(verdict.risks[:LARGEST])
    ]
    if others := verdict.risks[LARGEST:]:
        rows.append(("", Text(f"and {count(len(others), 'smaller risk')}: --json has all", "dim")))
    if not verdict.risks:
        rows.append(("risks", Text("none found")))
    rows += [("" if place else "moves", Text(line)) for place, line in enumerate(verdict.moves)]
    if not terminal:
        rows.append(("next", Text(f"{verdict.command}  {verdict.why}")))
        yield Text(f"VERDICT  {verdict.subject}")
        for name, cells in rows:
            yield Text(f"  {name:<7}{cells.plain}")
        return
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, cells in rows:
        grid.add_row(name, cells)
    # A breach counts as a missed SLA.
    broken = any(each.severity == "breach" for each in verdict.risks)
    colour = _COLOURS[MARKS["missed" if broken else verdict.sla.state]]
    title = Text("VERDICT", f"bold {colour}")
    command = Text(verdict.command, "bold")
    inside = Group(Text(verdict.subject, "bold"), grid, command, Text(verdict.why, "dim"))
    yield Panel(
        inside, box=box.HORIZONTALS, title=title, title_align="left", border_style=colour, padding=(0, 1)
    )


def _marked_text(name: str, words: str, terminal: bool) -> Text:
    if not terminal:
        return Text(f"{name.upper()}: {words}")
    return Text.assemble((f"{MARKS[name]} {name}", f"bold {_COLOURS[MARKS[name]]}"), f"  {words}")
