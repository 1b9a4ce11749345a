"""One browser for all tests of pages."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from tests.pages import browser


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    with browser.running() as started:
        yield started
