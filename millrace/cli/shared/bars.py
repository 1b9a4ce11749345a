"""HTML bars: shares of limits, and a tree of costs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millrace.cli.shared.html_pages import badge, escape
from millrace.sizing.risks import FULL
from millrace.sizing.text_format import count, dollars, percent

SHOWN = 12
"""Most bars of a picture, and children of a branch, that are shown without a click."""


@dataclass(frozen=True)
class Bar:
    """Share of its limit that a subject uses; more than 1 breaks the limit."""

    name: str
    share: float
    words: str


def bars(of: Sequence[Bar], noun: str) -> str:
    """Draw bars, the fullest first; one above its limit is hatched, red and marked with a word.

    Parameters
    ----------
    noun
        Name of a subject, for the summary of the hidden bars.
    """
    drawn = [_bar(each) for each in sorted(of, key=lambda each: -each.share)]
    shown, more = (drawn, []) if len(drawn) <= SHOWN + 1 else (drawn[:SHOWN], drawn[SHOWN:])
    rest = ""
    if more:
        rest = f'<details><summary>{count(len(more), noun)} with more room</summary><ul class="bars">{"".join(more)}</ul></details>'
    return f'<ul class="bars">{"".join(shown)}</ul>{rest}'


def bars_in_words(of: Sequence[Bar]) -> str:
    """Return the number of broken limits, and the fullest bar, in words."""
    over = sum(each.share > 1 for each in of)
    first = max(of, key=lambda each: each.share)
    return f"{over or 'None'} of {len(of)} beyond the bound; the fullest is {first.name}, {percent(first.share)}."


def _bar(bar: Bar) -> str:
    severity = "breach" if bar.share > 1 else "warning" if bar.share > FULL else ""
    told = f"{badge(severity)} " if severity else ""
    return (
        f'<li class="{severity}"><span class="name">{escape(bar.name)}</span>'
        f'<span class="track" aria-hidden="true"><i style="width:{min(1.0, bar.share):.1%}"></i></span>'
        f'<span class="figure">{told}{percent(bar.share)}: {escape(bar.words)}</span></li>'
    )


@dataclass(frozen=True)
class Branch:
    """Monthly cost of a subject, and the parts of that cost.

    Attributes
    ----------
    name
        Name of the subject.
    usd, assumed
        USD a month; whether an input was not measured.
    why
        Reason, for a line of the bill.
    children
        Parts of any other branch; its cost is their sum.
    """

    name: str
    usd: float
    assumed: bool = False
    why: str = ""
    children: tuple[Branch, ...] = ()

    @classmethod
    def of(cls, name: str, children: Sequence[Branch], noun: str = "") -> Branch:
        """Add up children, the most expensive first; with a noun, many of them are combined into one."""
        kept = sorted(children, key=lambda each: -each.usd)
        if noun and len(kept) > SHOWN + 1:
            rest = cls.of(f"{count(len(kept) - SHOWN, noun)} that cost less", kept[SHOWN:])
            kept = [*kept[:SHOWN], rest]
        return cls(name, sum(each.usd for each in kept), any(each.assumed for each in kept), "", tuple(kept))


def cost_tree(root: Branch) -> str:
    """Draw a tree of costs with each branch's share of the total; the first level is open."""
    return f'<div class="tree">{_branch(root, root.usd, 0)}</div>'


def cost_in_words(root: Branch) -> str:
    """Return the total, and the shares of its first branches, in words."""
    parts = ", ".join(f"{each.name} {percent(each.usd / (root.usd or 1))}" for each in root.children)
    return f"{dollars(root.usd, assumed=root.assumed)} a month: {parts}."


def _branch(branch: Branch, whole: float, level: int) -> str:
    share = branch.usd / whole if whole else 0.0
    row = (
        f'<span class="row"><span class="name">{escape(branch.name)}</span><span class="track" aria-hidden="true">'
        f'<i style="width:{share:.1%}"></i></span><span class="figure">{dollars(branch.usd, assumed=branch.assumed)}</span>'
        f'<span class="figure">{percent(share)}</span></span>'
    )
    if not branch.children:
        return f'{row}<p class="why">{escape(branch.why)}</p>'
    inner = "".join(f"<li>{_branch(each, whole, level + 1)}</li>" for each in branch.children)
    return f"<details{' open' * (level < 2)}><summary>{row}</summary><ul>{inner}</ul></details>"
