"""Hooks of MkDocs: generated pages, pages from the root folder, and links that leave the docs."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from tests.docs_site.command_reference import commands_page
from tests.docs_site.environment_reference import environment_page

ROOT = Path(__file__).parents[2]
GENERATED: dict[str, Callable[[], str]] = {
    "index.md": lambda: (ROOT / "README.md").read_text(),
    "CHANGELOG.md": lambda: (ROOT / "CHANGELOG.md").read_text(),
    "reference/environment.md": environment_page,
    "reference/commands.md": commands_page,
}
_SHIM = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"\[([^\]]*)\]\(((?!https?:|#|mailto:)[^)#\s]+)(#[^)]*)?\)")


def on_config(config: Any) -> Any:
    """List in the navigation what is a page for each file: recipes and design pages."""
    for section in config["nav"]:
        if "How to" in section:
            section["How to"] = _pages("how-to")
        for entry in section.get("Internals", ()):
            if "Design" in entry:
                entry["Design"] = _pages("design")
    return config


def _pages(folder: str) -> list[str]:
    result = sorted(each.name for each in (ROOT / "docs" / folder).glob("*.md"))
    first = [name for name in ("index.md", "README.md") if name in result]
    return [f"{folder}/{name}" for name in [*first, *(each for each in result if each not in first)]]


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are generated and those of the root."""
    for path, written in GENERATED.items():
        files.append(File.generated(config, path, content=written()))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Lead each link to a page of the site; a file of the repository that is none is named and not linked."""
    source = page.file.src_uri
    # README and CHANGELOG stand at the root, above `docs`.
    home = "" if source in ("index.md", "CHANGELOG.md") else posixpath.join("docs", posixpath.dirname(source))

    def led(match: re.Match[str]) -> str:
        text, target, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(posixpath.join(home, target))
        inside = "index.md" if path == "README.md" else path.removeprefix("docs/")
        if target.endswith("/") or path == "docs/design":
            inside = f"{inside.rstrip('/')}/README.md"
        if files.get_file_from_path(inside) is None:
            return f"{text} (`{path}`)" if path != text.strip("`") else f"`{path}`"
        return f"[{text}]({posixpath.relpath(inside, posixpath.dirname(source) or '.')}{anchor})"

    return _LINK.sub(led, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load what searches on a disk from the site; the theme's offline search would fetch it from a network."""
    ours = posixpath.relpath("search-on-disk.js", posixpath.dirname(page.file.dest_uri) or ".")
    return output.replace(_SHIM, ours)


def on_post_template(output_content: str, **_: Any) -> str:
    """Do the same in the page of a missing page."""
    return output_content.replace(_SHIM, "/search-on-disk.js")
