"""HTML pages that need no network: one template draws the document that ``--json`` prints.

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
from typing import Any

from millrace.cli.shared.output_file_errors import reporting_write_errors_as_wrong_option
from millrace.config.document.escape_invisible_characters import escape_invisible

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
        What ``--json`` prints, and curves (:mod:`millrace.cli.shared.page_curve_data`) where it has any.
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
    """Check before the work that a page can be written, if one is asked for.

    Raises
    ------
    ConfigurationError
        The file cannot be written.
    """
    if file is not None:
        with reporting_write_errors_as_wrong_option("--html", file):
            file.open("a", encoding="utf-8").close()


def write_page(file: Path, page: str) -> None:
    """Write a page.

    Raises
    ------
    ConfigurationError
        The file cannot be written.
    """
    with reporting_write_errors_as_wrong_option("--html", file):
        file.write_text(page, encoding="utf-8")
