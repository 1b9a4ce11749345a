"""HTML pages that need no network: one template draws the document that ``--json`` prints, and its curves.

The template and its scripts are in ``page/``. They show every text of the document as text, never as HTML, and the page's
content policy runs its own scripts only, by their hash, and fetches nothing.
"""

from __future__ import annotations

import json
import math
import re
from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import numpy as np

from millrace.cli.shared.console import reporting_write_errors_as_wrong_option
from millrace.config.document.problems import escape_invisible

SCRIPTS = ("elements.js", "charts.js", "flow.js", "documents.js")
"""In the order in which they use each other."""


def html_page(kind: str, title: str, document: Mapping[str, Any]) -> str:
    """Return a page.

    Parameters
    ----------
    kind
        Function of ``documents.js`` that draws the document.
    title
        Heading of the page.
    document
        What ``--json`` prints, and curves (:func:`page_curve`) where it has any.
    """
    folder = files("millrace.cli.shared") / "page"
    script = "".join((folder / name).read_text(encoding="utf-8") for name in SCRIPTS)
    data = _escape_invisible({**document, "kind": kind, "title": title})
    parts = {
        "TITLE": escape(escape_invisible(title)),
        "POLICY": f"script-src 'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'",
        "STYLE": (folder / "page.css").read_text(encoding="utf-8"),
        "DATA": json.dumps(data, allow_nan=False).replace("<", "\\u003c"),
        "SCRIPT": script,
    }
    return re.sub(
        r"\{\{(\w+)\}\}", lambda found: parts[found[1]], (folder / "page.html").read_text(encoding="utf-8")
    )


def _escape_invisible(value: Any) -> Any:
    """Return a document whose invisible characters are escaped; numbers that JSON does not have become null."""
    if isinstance(value, str):
        return escape_invisible(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {escape_invisible(str(key)): _escape_invisible(each) for key, each in value.items()}
    return [_escape_invisible(each) for each in value] if isinstance(value, list | tuple) else value


def check_page_is_writable(file: Path | None) -> None:
    """Check before the work that a page can be written, if one is asked for; a file that was not there is not left behind.

    Raises
    ------
    ConfigurationError
        The file cannot be written.
    """
    if file is not None:
        with reporting_write_errors_as_wrong_option("--html", file):
            existed = file.exists()
            file.open("a", encoding="utf-8").close()
            if not existed:
                file.unlink()


def write_page(file: Path, page: str) -> None:
    """Write a page.

    Raises
    ------
    ConfigurationError
        The file cannot be written.
    """
    with reporting_write_errors_as_wrong_option("--html", file):
        file.write_text(page, encoding="utf-8")


POINTS = 600
"""Most points of a curve; a screen cannot show more."""


def page_curve(
    question: str,
    unit: str,
    times: Any,
    series: Mapping[str, Any],
    *,
    kind: Literal["line", "step", "bars"] = "line",
    limits: Mapping[str, float] | None = None,
) -> dict[str, Any]:
    """Return a curve over time, thinned so that no peak is lost; bars keep every n-th moment, where they stack.

    Parameters
    ----------
    question
        Its title.
    unit
        Title of the y axis.
    times
        Seconds, of all series or by their name.
    series
        A value for each moment, by name; a value that is not finite is left out.
    kind
        ``step``: a value holds until the next. ``bars``: series are stacked.
    limits
        Limit of a series, by its name: a dashed line, and red triangles above it.
    """
    drawn = {}
    for name, values in series.items():
        own = times[name] if isinstance(times, Mapping) else times
        pairs = np.column_stack((own, np.asarray(values, float)))
        pairs = pairs[np.isfinite(pairs[:, 1])]
        step = max(1, -(-len(pairs) // (POINTS // len(series) if kind == "bars" else POINTS)))
        firsts = range(0, len(pairs), step)
        peaks = firsts if kind == "bars" else [at + int(np.argmax(pairs[at : at + step, 1])) for at in firsts]
        drawn[name] = [[float(f"{x:.6g}"), float(f"{y:.4g}")] for x, y in pairs[list(peaks)].tolist()]
    return {
        "question": question,
        "unit": unit,
        "x": "time",
        "kind": kind,
        "series": drawn,
        "limits": limits or {},
    }
