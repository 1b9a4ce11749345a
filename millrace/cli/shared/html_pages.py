"""HTML pages that need no network: pictures in HTML and SVG, and Vega-Lite charts with their program in the page.

A page is readable from 400 pixels on, in light and dark, with a keyboard and with a screen reader: each chart has a name,
a description and a table of its points; each table has a caption and heads; the page may fetch nothing.
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
    """Escape a text for HTML, including direction marks and control characters, which a browser interprets."""
    return _escape(escape_invisible(text))


_TABLE_ROWS = 24
"""Most rows of a chart's own table: a listener needs the course, not each point."""

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"
)
"""Content policy of a page with charts. Vega compiles its expressions; nothing else could, as nothing may be fetched."""

_SILENT = "default-src 'none'; style-src 'unsafe-inline'"
"""Content policy of a page without charts: no program at all."""


@dataclass(frozen=True)
class Link:
    """Words that link to another element of the page.

    Attributes
    ----------
    text
        The words.
    to
        The element's id: one of the ``ids`` of a table's rows.
    """

    text: str
    to: str


@dataclass(frozen=True)
class Badge:
    """A severity or a state, as a shape and a word in its colour."""

    name: str


Cell = str | Badge | Link | Sequence[Link]


class Page:
    """Builder of a page: text, tables and charts from top to bottom."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._parts = [f"<h1>{escape(title)}</h1>"]
        self._charts: list[dict[str, Any]] = []

    def verdict(self, verdict: Verdict) -> None:
        """Add a verdict, as the first part."""
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
        """Add a picture that is already drawn, with the question that it answers.

        Parameters
        ----------
        question
            Its title.
        words
            Its content in words, for readers who cannot see it.
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
        """Put everything that is added from here on behind a summary, until :meth:`end_fold`."""
        place = f' id="{escape(anchor)}"' if anchor else ""
        self._parts.append(f"<details{place}><summary>{escape(summary)}</summary>")

    def end_fold(self) -> None:
        """End the part that :meth:`begin_fold` started."""
        self._parts.append("</details>")

    def add_heading(self, text: str, *, below: bool = False, anchor: str | None = None) -> None:
        """Start a section, or with ``below`` a subsection."""
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
            Description of the table.
        ids
            Ids of the rows that links lead to.
        words
            Whether it has more words than figures.
        fold
            Whether it is the text of a picture, and behind a summary.
        """
        drawn = _table(head, rows, caption, ids=ids, words=words)
        if fold:
            drawn = f"<details><summary>{escape(caption)} As a table</summary>{drawn}</details>"
        self._parts.append(drawn)

    def chart(self, chart: Any, name: str) -> None:
        """Add an Altair chart with its name; its description and table come from its points."""
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

            # The data is separate from the program, because the bundler would restore characters that must not end a script.
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
    """Return a chart's data with invisible characters escaped, because Vega draws them unchanged."""
    if isinstance(spec, str):
        return escape_invisible(spec)
    if isinstance(spec, Mapping):
        return {escape_invisible(key): _visible(each) for key, each in spec.items()}
    return [_visible(each) for each in spec] if isinstance(spec, list) else spec


def check_page(file: Path) -> None:
    """Check before the work that a page can be written.

    Raises
    ------
    ConfigurationError
        The file cannot be written.
    """
    with report_write_errors("--html", file), file.open("a", encoding="utf-8"):
        pass


def write_page(file: Path, page: Page) -> None:
    """Write a page.

    Raises
    ------
    ConfigurationError
        The file cannot be written.
    """
    check_page(file)
    with report_write_errors("--html", file):
        file.write_text(page.html(), encoding="utf-8")


def format_number(value: Any) -> str:
    """Return a figure with three significant digits; a large one with all its digits."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return str(value)
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def badge(name: str) -> str:
    """Return a severity or a state as a shape and a word in its colour."""
    return f'<span class="mark {_class(name)}"><span aria-hidden="true">{MARKS[name]}</span> {name}</span>'


def _class(name: str) -> str:
    """Return a severity's CSS class; that of a note differs from the class of small print."""
    return "note-mark" if name == "note" else name.replace(" ", "-")


def _marked(name: str, words: str) -> str:
    return f"{badge(name)} {_prose(words)}"


def _prose(text: str) -> str:
    """Return a text as HTML; parts between backticks become code."""
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
    # A keyboard scrolls the element with the focus.
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{escape(caption)}"><table{kind}>'
        f"<caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _responsive(spec: dict[str, Any]) -> dict[str, Any]:
    """Let the page decide the width, and its style the colours."""
    made = {**spec, "width": "container", "config": {**spec.get("config", {}), **CONFIG}}
    made["autosize"] = {"type": "fit-x", "contains": "padding"}
    for each in made.get("layer", ()):
        each.pop("width", None)
    return made


@dataclass(frozen=True)
class _View:
    """One layer of a chart: its points and the titles of its channels."""

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
        """Return the range of each curve in words."""
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
        """Return a table of its points, thinned."""
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
            # The two ends of a rule share an axis, so each uses its own name.
            ends = f"{channel.rstrip('2')}2" in channels
            titles[field] = field if ends else channels[channel].get("title") or field
            of[channel] = field
    figures = [of[c] for c in ("y", "x") if c in of and isinstance(rows[0].get(of[c]), int | float)]
    yield _View(rows, titles, of.get("color"), figures[0] if figures else None)
