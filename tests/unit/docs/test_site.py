"""The documentation's site builds without a warning, lists every key and command, and loads nothing from a network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.config.environment_json_schema import json_schema
from tests.docs_site.command_reference import commands

ROOT = Path(__file__).parents[3]
LOADED = re.compile(
    r"<(?:script|img|iframe)[^>]*\ssrc=\"(?:https?:)?//|<link[^>]*rel=\"(?:stylesheet|preconnect)[^>]*href=\"(?:https?:)?//"
)


# `make check` builds it, too, and finds links that lead nowhere.
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--quiet",
            "--config-file",
            "toolchain/mkdocs.yml",
            "--site-dir",
            str(folder),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_the_reference_has_each_key_and_each_command(site: Path) -> None:
    page = (site / "reference" / "environment.html").read_text()
    schema = json_schema()
    for model in (schema, *schema["$defs"].values()):
        for key in model.get("properties", {}):
            assert f"<code>{key}</code>" in page
    page = (site / "reference" / "commands.html").read_text()
    result = list(commands())
    assert len(result) > 30
    for words, command in result:
        assert f">{words}<" in page
        for parameter in command.params:
            assert all(f"<code>{option}</code>" in page for option in parameter.opts if option[:2] == "--")


def test_each_document_is_a_page(site: Path) -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        name = "index.html" if page.name == "README.md" else f"{page.stem}.html"
        assert (site / page.relative_to(ROOT / "docs").parent / name).exists()


def test_it_fetches_nothing(site: Path) -> None:
    """Whoever reads it may be behind a wall, and is nobody's to count."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 80
    assert [page.name for page in pages if LOADED.search(page.read_text())] == []
    assert LOADED.search('<script src="https://example.com/a.js">')
