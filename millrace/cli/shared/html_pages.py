"""Pages that need no network: pictures of HTML and SVG, and curves of Vega-Lite with its program within the page.

A page reads from 400 pixels on, in light and in dark, with a keyboard and with a screen reader: each chart has a name,
what it shows in words and a table of its points; each table has a caption and heads; nothing may be fetched.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape as _escape
from pathlib import Path
from typing import Any

from millrace.cli.shared.output_files import report_write_errors
from millrace.cli.shared.style import CONFIG, STYLE
from millrace.cli.shared.verdict import LARGEST, MARKS, Verdict
from millrace.config.invisible_characters import escape_invisible


def escape(text: str) -> str:
    """Write a text for HTML; marks of direction and control characters, which a browser obeys, are written out."""
    return _escape(escape_invisible(text))


_TABLE_ROWS = 24
"""Of a chart's own table: who listens to it wants its course, not each point."""

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
)
"""Vega compiles its expressions; nothing else of the page could, as nothing may be fetched."""

_SILENT = "default-src 'none'; style-src 'unsafe-inline'"
"""Of a page without Vega: no program at all."""


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


@dataclass(frozen=True)
class Badge:
    """A severity or a state, as a shape and a word in its colour."""

    name: str


Cell = str | Badge | Link | Sequence[Link]


class Page:
    """A page under construction: text, tables and charts from top to bottom."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        self._charts: list[dict[str, Any]] = []

    def verdict(self, verdict: Verdict) -> None:
        """Open with a verdict."""
        more = ""
        if verdict.count_of_others:
            rest = "".join(
                f"<li>{_marked(each.severity, each.words)}</li>" for each in verdict.risks[LARGEST:]
            )
            more = f'<details><summary>{verdict.count_of_others}</summary><ol start="{LARGEST + 1}">{rest}</ol></details>'
        largest = "".join(f"<li>{_marked(each.severity, each.words)}</li>" for each in verdict.largest)
        risks = f"<ol>{largest}</ol>{more}" if largest else "none that was looked for"
        rows = {
            "Cost": f'<span class="cost">{escape(verdict.cost)}</span> {escape(verdict.cost_words)}',
            "SLA": _marked(verdict.sla.state, verdict.sla.words),
            "Risks": risks,
            "Next": f"<code>{escape(verdict.command)}</code> {_prose(verdict.why)}",
        }
        self._parts.append(
            f'<section class="verdict {_class(verdict.worst_state)}" aria-labelledby="verdict"><h2 id="verdict">Verdict</h2>'
            f"<p>{escape(verdict.subject)}</p>"
            f"<dl>{''.join(f'<dt>{name}</dt><dd>{told}</dd>' for name, told in rows.items())}</dl></section>"
        )

    def picture(self, question: str, words: str, drawn: str, *, kind: str) -> None:
        """Add a picture that is drawn already, under the question that it answers.

        Parameters
        ----------
        question
            Its title.
        words
            What it shows, for who does not see it.
        drawn
            HTML, every name in it escaped.
        kind
            Its class in the style.
        """
        self._parts.append(
            f'<figure class="{kind}" aria-label="{escape(f"{question} {words}")}">'
            f"<figcaption><h2>{escape(question)}</h2></figcaption>{drawn}</figure>"
        )

    def begin_fold(self, summary: str, anchor: str | None = None) -> None:
        """Put what is added from here on behind a summary, until :meth:`end_fold`."""
        place = f' id="{escape(anchor)}"' if anchor else ""
        self._parts.append(f"<details{place}><summary>{escape(summary)}</summary>")

    def end_fold(self) -> None:
        """End what :meth:`begin_fold` began."""
        self._parts.append("</details>")

    def add_heading(self, text: str, *, below: bool = False, anchor: str | None = None) -> None:
        """Begin a section, or with ``below`` one within it."""
        level = 3 if below else 2
        place = f' id="{escape(anchor)}"' if anchor else ""
        self._parts.append(f"<h{level}{place}>{escape(text)}</h{level}>")

    def text(self, text: str) -> None:
        """Add a paragraph."""
        self._parts.append(f'<p class="note">{_prose(text)}</p>')

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
        fold: bool = False,
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
        fold
            Whether it is the text of a picture, and behind a summary.
        """
        drawn = _table(head, rows, caption, ids=ids, words=words)
        if fold:
            drawn = f"<details><summary>{escape(caption)} As a table</summary>{drawn}</details>"
        self._parts.append(drawn)

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
        program = ""
        if self._charts:
            import vl_convert as vlc

            # Data apart from the program: what bundles that would write characters back that must not end a script.
            specs = json.dumps(_visible(self._charts)).replace("<", "\\u003c")
            drawing = vlc.javascript_bundle(
                "JSON.parse(document.getElementById('specs').textContent).forEach("
                "(spec, i) => vegaEmbed('#chart' + i, spec, {actions: false, renderer: 'svg'}));"
            )
            program = f'<script type="application/json" id="specs">{specs}</script><script type="module">{drawing}</script>'
        return (
            f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(self._title)}</title>'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY if self._charts else _SILENT}">'
            f"<style>{STYLE}</style></head><body><main>{''.join(self._parts)}</main>{program}</body></html>\n"
        )


def _visible(spec: Any) -> Any:
    """A chart's data with every text visible: Vega draws them as they are."""
    if isinstance(spec, str):
        return escape_invisible(spec)
    if isinstance(spec, Mapping):
        return {escape_invisible(key): _visible(each) for key, each in spec.items()}
    return [_visible(each) for each in spec] if isinstance(spec, list) else spec


def check_page(file: Path) -> None:
    """See before the work, not after it, that a page can be written.

    Raises
    ------
    ConfigurationError
        It cannot be written there.
    """
    with report_write_errors("--html", file), file.open("a", encoding="utf-8"):
        pass


def write_page(file: Path, page: Page) -> None:
    """Write a page.

    Raises
    ------
    ConfigurationError
        It cannot be written there.
    """
    check_page(file)
    with report_write_errors("--html", file):
        file.write_text(page.html(), encoding="utf-8")


def format_number(value: Any) -> str:
    """Write a figure with three digits that count, and all of a large one."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def badge(name: str) -> str:
    """Write a severity or a state as a shape and a word in its colour."""
    return f'<span class="mark {_class(name)}"><span aria-hidden="true">{MARKS[name]}</span> {name}</span>'


def _class(name: str) -> str:
    """A severity's class; that of a note is not the class of small print."""
    return "note-mark" if name == "note" else name.replace(" ", "-")


def _marked(name: str, words: str) -> str:
    return f"{badge(name)} {_prose(words)}"


def _prose(text: str) -> str:
    """Write a text in which what is typed stands between backticks."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))


def _cell(cell: Cell) -> str:
    if isinstance(cell, str):
        return escape(cell)
    if isinstance(cell, Badge):
        return badge(cell.name)
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
    made = {**spec, "width": "container", "config": {**spec.get("config", {}), **CONFIG}}
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
                low, high = format_number(min(values)), format_number(max(values))
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
        cells = [[format_number(row.get(field, "")) for field in self.titles] for row in kept]
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
