"""Pages with charts that need no network: Vega-Lite, its program within the page.

A page reads from 400 pixels on, in light and in dark, with a keyboard and with a screen reader: each chart has a name,
what it shows in words and a table of its points; each table has a caption and heads; nothing may be fetched.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape as _escape
from pathlib import Path
from typing import Any

from millrace.cli.shared.output_files import writing
from millrace.config.visible import visible


def escape(text: str) -> str:
    """Write a text for HTML; marks of direction and control characters, which a browser obeys, are written out."""
    return _escape(visible(text))


_TABLE_ROWS = 24
"""Of a chart's own table: who listens to it wants its course, not each point."""

_COLORS = ("#1f77d0", "#d1541f", "#2b8a43", "#a34fd1", "#c2348a", "#8a7400", "#0f8a8a", "#7a7f87")
"""Each at least 3 : 1 against both backgrounds, as WCAG 2.2 asks of graphics (1.4.11)."""

_CONFIG = {
    "background": None,
    "font": "system-ui, sans-serif",
    "range": {"category": list(_COLORS)},
    "legend": {"orient": "bottom", "columns": 2, "labelLimit": 300, "symbolStrokeWidth": 2.5},
    "axis": {"titleFontWeight": "normal", "labelLimit": 140, "gridOpacity": 0.35},
    "view": {"stroke": None},
}

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
)
"""Vega compiles its expressions; nothing else of the page could, as nothing may be fetched."""

_STYLE = """
:root { color-scheme: light dark; --back: #fff; --text: #1d2733; --note: #55616e; --line: #d5dce4; --link: #0b5cad; }
@media (prefers-color-scheme: dark) {
  :root { --back: #12181f; --text: #e3e8ee; --note: #a9b5c2; --line: #3a4652; --link: #7db4f5; }
}
* { box-sizing: border-box; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 0; color: var(--text); background: var(--back); }
main { max-width: 62rem; margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.2rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin-top: 1.6rem; }
a { color: var(--link); } :focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.scroll { overflow-x: auto; margin: .8rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; overflow-wrap: normal; }
caption { text-align: left; color: var(--note); }
td, th { padding: .25rem .8rem .25rem 0; text-align: right; vertical-align: top; border-bottom: 1px solid var(--line); }
td:first-child, th:first-child, .words td, .words th { text-align: left; }
tbody th { font-weight: normal; } .note { color: var(--note); }
tr:target, section:target { outline: 2px solid var(--link); }
figure { margin: 1.2rem 0; } figcaption { font-weight: 600; } .chart, .chart > div { width: 100%; }
.chart svg text { fill: var(--text) !important; }
.chart .role-axis line, .chart .role-axis-grid line, .chart .role-axis-domain line { stroke: var(--line) !important; }
summary { cursor: pointer; color: var(--note); }
"""


@dataclass(frozen=True)
class Link:
    """Words that lead to another place of the page.

    Attributes
    ----------
    text
        The words.
    to
        The place's name: the ``ids`` of a table's rows.
    """

    text: str
    to: str


Cell = str | Link | Sequence[Link]


class Page:
    """A page under construction: text, tables and charts from top to bottom."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        self._charts: list[dict[str, Any]] = []

    def heading(self, text: str, *, below: bool = False, anchor: str | None = None) -> None:
        """Begin a section, or with ``below`` one within it."""
        level = 3 if below else 2
        place = f' id="{escape(anchor)}"' if anchor else ""
        self._parts.append(f"<h{level}{place}>{escape(text)}</h{level}>")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f'<p class="note">{escape(text)}</p>')

    def links(self, before: str, links: Sequence[Link]) -> None:
        """Add a paragraph of words and links."""
        self._parts.append(f"<p>{escape(before)} {_cell(links)}</p>")

    def table(
        self,
        head: Sequence[str],
        rows: Sequence[Sequence[Cell]],
        caption: str,
        *,
        ids: Sequence[str] = (),
        words: bool = False,
    ) -> None:
        """Add a table.

        Parameters
        ----------
        head
            A word or two for each column.
        rows
            The first cell names its row.
        caption
            What the table holds.
        ids
            Names of the rows that links lead to.
        words
            Whether it holds words more than figures.
        """
        self._parts.append(_table(head, rows, caption, ids=ids, words=words))

    def chart(self, chart: Any, name: str) -> None:
        """Add an Altair chart under its name; what it shows in words and as a table is taken from its points."""
        spec = _responsive(chart.to_dict())
        views = list(_views(spec))
        said = "; ".join(filter(None, (each.words() for each in views)))
        tables = "".join(each.table(name) for each in views)
        number = len(self._charts)
        self._parts.append(
            f'<figure><figcaption id="name{number}">{escape(name)}</figcaption>'
            f'<div class="chart" role="img" aria-label="{escape(f"{name}: {said}")}">'
            f'<div id="chart{number}" aria-hidden="true"></div></div>'
            f"<details><summary>{escape(name)} as a table</summary>{tables}</details></figure>"
        )
        self._charts.append(spec)

    def html(self) -> str:
        """Return the page."""
        import vl_convert as vlc

        # Data apart from the program: what bundles that would write characters back that must not end a script.
        specs = json.dumps(_visible(self._charts)).replace("<", "\\u003c")
        program = ""
        if self._charts:
            program = vlc.javascript_bundle(
                "JSON.parse(document.getElementById('specs').textContent).forEach("
                "(spec, i) => vegaEmbed('#chart' + i, spec, {actions: false, renderer: 'svg'}));"
            )
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self._title)}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
            f"<style>{_STYLE}</style></head><body><main>{''.join(self._parts)}</main>"
            f'<script type="application/json" id="specs">{specs}</script>'
            f'<script type="module">{program}</script></body></html>\n'
        )


def _visible(spec: Any) -> Any:
    """A chart's data with every text visible: Vega draws them as they are."""
    if isinstance(spec, str):
        return visible(spec)
    if isinstance(spec, Mapping):
        return {visible(key): _visible(each) for key, each in spec.items()}
    return [_visible(each) for each in spec] if isinstance(spec, list) else spec


def check_page(file: Path) -> None:
    """See before the work, not after it, that a page can be written.

    Raises
    ------
    ConfigurationError
        It cannot be written there.
    """
    with writing("--html", file), file.open("a", encoding="utf-8"):
        pass


def write_page(file: Path, page: Page) -> None:
    """Write a page.

    Raises
    ------
    ConfigurationError
        It cannot be written there.
    """
    check_page(file)
    with writing("--html", file):
        file.write_text(page.html(), encoding="utf-8")


def number(value: Any) -> str:
    """Write a figure with three digits that count, and all of a large one."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return escape(cell)
    links = [cell] if isinstance(cell, Link) else cell
    return " ".join(f'<a href="#{escape(each.to)}">{escape(each.text)}</a>' for each in links)


def _table(
    head: Sequence[str],
    rows: Sequence[Sequence[Cell]],
    caption: str,
    *,
    ids: Sequence[str] = (),
    words: bool = False,
) -> str:
    cells = "".join(f'<th scope="col">{escape(each)}</th>' if each else "<td></td>" for each in head)
    body = ""
    for place, (first, *rest) in enumerate(rows):
        name = f' id="{escape(ids[place])}"' if place < len(ids) else ""
        others = "".join(f"<td>{_cell(each)}</td>" for each in rest)
        body += f'<tr{name}><th scope="row">{_cell(first)}</th>{others}</tr>'
    kind = ' class="words"' if words else ""
    # A keyboard scrolls what has the focus.
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table{kind}>'
        f"<caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _responsive(spec: dict[str, Any]) -> dict[str, Any]:
    """Take the width from the page, the colours from its style."""
    made = {**spec, "width": "container", "config": {**spec.get("config", {}), **_CONFIG}}
    made["autosize"] = {"type": "fit-x", "contains": "padding"}
    for each in made.get("layer", ()):
        each.pop("width", None)
    return made


@dataclass(frozen=True)
class _View:
    """One layer of a chart: its points and what its channels are called."""

    rows: Sequence[Mapping[str, Any]]
    titles: Mapping[str, str]
    group: str | None
    y: str | None

    def groups(self) -> dict[str, list[Mapping[str, Any]]]:
        found: dict[str, list[Mapping[str, Any]]] = {}
        for row in self.rows:
            found.setdefault(str(row[self.group]) if self.group else "", []).append(row)
        return found

    def words(self) -> str:
        """From where to where each curve goes."""
        if self.y is None:
            return ""
        said = []
        for name, rows in self.groups().items():
            values = [row[self.y] for row in rows if isinstance(row[self.y], int | float)]
            if values:
                low, high = number(min(values)), number(max(values))
                spread = low if low == high else f"{low} to {high}"
                said.append(f"{name} {spread}".strip())
        return ", ".join(said[:8]) + (f" and {len(said) - 8} more" if len(said) > 8 else "")

    def table(self, name: str) -> str:
        """Its points, thinned."""
        groups = self.groups()
        most = max(4, _TABLE_ROWS // max(1, len(groups)))
        kept = [row for rows in groups.values() for row in rows[:: -(-len(rows) // most)]]
        what = f", {self.titles[self.y]}" if self.y is not None else ""
        of = "" if len(kept) == len(self.rows) else f", {len(kept)} of {len(self.rows):,} points"
        cells = [[number(row.get(field, "")) for field in self.titles] for row in kept]
        return _table(list(self.titles.values()), cells, f"{name}{what}{of}")


def _views(spec: Mapping[str, Any], data: Any = None, sets: Any = None) -> Iterator[_View]:
    data, sets = spec.get("data", data), spec.get("datasets", sets) or {}
    for each in spec.get("layer", ()):
        yield from _views(each, data, sets)
    channels = spec.get("encoding", {})
    if not data or not channels or "layer" in spec:
        return
    rows = data.get("values") or sets.get(data.get("name"), [])
    if not rows:
        return
    titles, of = {}, {}
    for channel in ("color", "yOffset", "shape", "x", "x2", "y", "y2"):
        field = channels.get(channel, {}).get("field")
        if field is not None and field not in titles:
            # Two ends of one rule share its axis, so each goes by its own name.
            ends = f"{channel.rstrip('2')}2" in channels
            titles[field] = field if ends else channels[channel].get("title") or field
            of[channel] = field
    figures = [of[c] for c in ("y", "x") if c in of and isinstance(rows[0].get(of[c]), int | float)]
    yield _View(rows, titles, of.get("color"), figures[0] if figures else None)
