"""The documentation site works in a browser from local files, without a network."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from playwright.sync_api import Browser

from tests.pages.test_pages import ROOT, wait


def test_the_site_on_a_disk_is_searched_and_no_code_is_clipped(chromium: Browser, tmp_path: Path) -> None:
    building = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--strict",
        "--quiet",
        "--config-file",
        "toolchain/mkdocs.yml",
        "--site-dir",
        str(tmp_path),
    ]
    subprocess.run(building, cwd=ROOT, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
    page = chromium.new_page(viewport={"width": 1280, "height": 900})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    for name in ("start.html", "how-to/windows.html", "reference/environment.html"):
        page.goto((tmp_path / name).as_uri())
        clipped = "[...document.querySelectorAll('pre code')].filter(each => each.scrollWidth > each.clientWidth + 1).length"
        assert page.evaluate(clipped) == 0
        page.click(".md-search__input")
        page.keyboard.type("dead letters")
        wait(page, "document.querySelectorAll('.md-search-result__item').length > 3")
    assert [each for each in asked if not each.startswith("file:")] == []
    page.close()
