"""Flow from left to right, and in a narrow window from top to bottom: HTML boxes, SVG arrows.

Connected boxes are one graph; each box is written once, with its place in both layouts.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from millrace.cli.shared.html_pages import badge, escape
from millrace.cli.shared.verdict import SEVERITIES, Severity
from millrace.sizing.text_format import count

WIDTH, GAP, ABOVE = 230, 88, 14
"""Pixels: width of a box, gap between two columns, gap between two boxes of a column."""

_INDENT = 14
"""Pixels by which each layer is indented further, in the layout from top to bottom."""

_LABEL = 17
"""Pixels for an arrow's label, in the layout from top to bottom."""

_EDGE = 15
"""Pixels from a box's top to its incoming arrow, and from its bottom to its outgoing arrow, from top to bottom."""

_TITLE, _LINE = 24, 32
"""Letters that fit on one line of a box, for its title and for other lines."""

OPEN = 6
"""Graphs that are shown without a click; cheaper ones without trouble are behind a summary."""


@dataclass(frozen=True)
class Box:
    """One box.

    Attributes
    ----------
    key
        Unique among all boxes.
    kind
        Its class in the style, and its type: ``stream``, ``job`` or ``table``.
    name
        Its title.
    lines
        Text below the title.
    usd
        Monthly cost, which orders the graphs.
    link
        Id of the page element that it links to.
    severity, trouble
        Severity of the risk that concerns it, and the risk in a word or two.
    """

    key: str
    kind: str
    name: str
    lines: tuple[str, ...] = ()
    usd: float = 0.0
    link: str | None = None
    severity: Severity | None = None
    trouble: str = ""

    @property
    def height(self) -> int:
        """Height in pixels."""
        told = f"x {self.severity} {self.trouble}" if self.severity else ""
        rows = sum(math.ceil(len(line) / _LINE) for line in (*self.lines, told))
        return 14 + 19 * math.ceil(len(self.name) / _TITLE) + 17 * rows


@dataclass(frozen=True)
class Arrow:
    """Arrow from one box to another, with a short label for the data."""

    begin: str
    end: str
    label: str = ""


def flow_picture(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    """Draw boxes and arrows; each end of an arrow is the key of a box."""
    graphs = _graphs(boxes, arrows)
    drawn = [_graph(*each) for each in graphs]
    if len(graphs) <= OPEN + 1:
        return "".join(drawn)
    hidden = [box.kind for more, _ in graphs[OPEN:] for box in more]
    kinds = ", ".join(count(hidden.count(kind), kind) for kind in dict.fromkeys(hidden))
    return (
        f"{''.join(drawn[:OPEN])}<details><summary>{count(len(graphs) - OPEN, 'more flow')}: {kinds}</summary>"
        f"{''.join(drawn[OPEN:])}</details>"
    )


def in_words(boxes: Sequence[Box]) -> str:
    """Return the number of boxes of each kind, in words."""
    kinds = [box.kind for box in boxes]
    return ", ".join(count(kinds.count(kind), kind) for kind in dict.fromkeys(kinds))


def _graphs(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> list[tuple[list[Box], list[Arrow]]]:
    """Return connected boxes with their arrows: those with the worst trouble first, then those with the highest cost."""
    root = {box.key: box.key for box in boxes}

    def top(key: str) -> str:
        while root[key] != key:
            root[key] = key = root[root[key]]
        return key

    for arrow in arrows:
        root[top(arrow.begin)] = top(arrow.end)
    found: dict[str, tuple[list[Box], list[Arrow]]] = {}
    for box in boxes:
        found.setdefault(top(box.key), ([], []))[0].append(box)
    for arrow in arrows:
        found[top(arrow.begin)][1].append(arrow)
    return sorted(found.values(), key=lambda each: (_severest(each[0]), -sum(box.usd for box in each[0])))


def _severest(boxes: Sequence[Box]) -> int:
    """Return the index of the worst severity; after all of them if nothing is wrong."""
    wrong = [SEVERITIES.index(box.severity) for box in boxes if box.severity is not None]
    return min(wrong, default=len(SEVERITIES))


def _layers(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> list[list[Box]]:
    """Return boxes by the longest path to them; within a layer, in the order of their predecessors."""
    depth = {box.key: 0 for box in boxes}
    for _ in boxes:  # with a cycle, which a flow may have, the number of rounds is the limit
        for arrow in arrows:
            depth[arrow.end] = min(max(depth[arrow.end], depth[arrow.begin] + 1), len(boxes) - 1)
    used = sorted(set(depth.values()))
    layers: list[list[Box]] = [[box for box in boxes if depth[box.key] == level] for level in used]
    place = {box.key: float(n) for n, box in enumerate(layers[0])}
    for layer in layers[1:]:
        for box in layer:
            before = [place[a.begin] for a in arrows if a.end == box.key and a.begin in place]
            place[box.key] = sum(before) / len(before) if before else 0.0
        layer.sort(key=lambda box: place[box.key])
        place.update({box.key: float(n) for n, box in enumerate(layer)})
    return layers


@dataclass(frozen=True)
class _Spot:
    """Position of a box: its left and top edge in the layout from left to right, and from top to bottom."""

    x: int
    y: int
    down_x: int
    down_y: int


def _graph(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> str:
    layers = _layers(boxes, arrows)
    outgoing = [arrow.begin for arrow in arrows]
    incoming = [arrow.end for arrow in arrows]
    # A label is at the end where its arrow is the only one; with no such end, only the table has it.
    at_begin = {a for a in arrows if a.label and outgoing.count(a.begin) == 1}
    at_end = {a for a in arrows if a.label and a not in at_begin and incoming.count(a.end) == 1}
    below = {arrow.begin for arrow in at_begin}
    above = {arrow.end for arrow in at_end}
    tall = max(sum(box.height + ABOVE for box in layer) - ABOVE for layer in layers)
    spots: dict[str, _Spot] = {}
    down = 0
    for level, layer in enumerate(layers):
        y = (tall - sum(box.height + ABOVE for box in layer) + ABOVE) // 2
        for box in layer:
            down += _LABEL * (box.key in above)
            spots[box.key] = _Spot(level * (WIDTH + GAP), y, 22 + _INDENT * level, down)
            y += box.height + ABOVE
            down += box.height + 8 + _LABEL * (box.key in below)
    heights = {box.key: box.height for box in boxes}
    across = "".join(_across(spots[a.begin], spots[a.end], heights[a.begin], heights[a.end]) for a in arrows)
    downward = "".join(_down(spots[a.begin], spots[a.end], heights[a.begin]) for a in arrows)
    labels = "".join(
        _label(a, spots[a.begin if a in at_begin else a.end], heights, at_end=a in at_end)
        for a in arrows
        if a in at_begin or a in at_end
    )
    wide = (len(layers) - 1) * (WIDTH + GAP) + WIDTH
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(_title(boxes))}">'
        f'<div class="graph" style="--w:{wide}px;--h:{tall}px;--nh:{down}px">'
        f'<svg class="across" aria-hidden="true" width="{wide}" height="{tall}">{across}</svg>'
        f'<svg class="down" aria-hidden="true" width="60" height="{down}">{downward}</svg>'
        f"{''.join(_box(box, spots[box.key]) for layer in layers for box in layer)}{labels}</div></div>"
    )


def _title(boxes: Sequence[Box]) -> str:
    jobs = [box.name for box in boxes if box.kind == "job"] or [box.name for box in boxes]
    return f"Flow of {', '.join(jobs)}"


def _box(box: Box, spot: _Spot) -> str:
    trouble = f"<span>{badge(box.severity)} {escape(box.trouble)}</span>" if box.severity else ""
    lines = "".join(f"<span>{escape(line)}</span>" for line in box.lines)
    name = escape(box.name)
    title = f'<a href="#{escape(box.link)}">{name}</a>' if box.link else name
    kinds = f"box {box.kind} {box.severity or ''}".strip()
    return (
        f'<div class="{kinds}" data-box="{escape(box.key)}" style="--x:{spot.x}px;--y:{spot.y}px;--nx:{spot.down_x}px;'
        f'--ny:{spot.down_y}px;--b:{box.height}px"><b>{title}</b>{lines}{trouble}</div>'
    )


def _label(arrow: Arrow, spot: _Spot, heights: Mapping[str, int], *, at_end: bool) -> str:
    if at_end:
        x, y = spot.x - 92, spot.y + heights[arrow.end] // 2 - 17
        down = spot.down_y - _LABEL + 1
    else:
        x, y = spot.x + WIDTH + 6, spot.y + heights[arrow.begin] // 2 - 17
        down = spot.down_y + heights[arrow.begin] + 2
    side = " to" if at_end else ""
    place = f"--x:{x}px;--y:{y}px;--nx:{spot.down_x + 8}px;--ny:{down}px"
    return f'<span class="on{side}" style="{place}">{escape(arrow.label)}</span>'


def _across(begin: _Spot, end: _Spot, tall: int, other: int) -> str:
    """Return a curve from the right edge of one box to the left edge of another, with its head."""
    x, y = begin.x + WIDTH, begin.y + tall // 2
    to_x, to_y = end.x - 2, end.y + other // 2
    # An arrow backwards, in a cycle, leaves and arrives at the same edges.
    bend = max(GAP // 2, (to_x - x) // 2) if to_x > x else GAP
    return (
        f'<path d="M{x} {y}C{x + bend} {y} {to_x - bend} {to_y} {to_x} {to_y}M{to_x - 7} {to_y - 4}L{to_x} {to_y}'
        f'L{to_x - 7} {to_y + 4}"/>'
    )


def _down(begin: _Spot, end: _Spot, tall: int) -> str:
    """Return a line left of the boxes, from one's left edge to the other's, with its head."""
    y, to_y, to_x = begin.down_y + tall - _EDGE, end.down_y + _EDGE, end.down_x - 2
    gutter = begin.down_x - 14
    return f'<path d="M{begin.down_x} {y}H{gutter}V{to_y}H{to_x}M{to_x - 6} {to_y - 4}L{to_x} {to_y}L{to_x - 6} {to_y + 4}"/>'
