"""Doctest examples give the printed results."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

from tests.product_files import PRODUCT, ROOT, files

SHOWING = [path for path in files(list(PRODUCT)) if "\n    >>> " in (ROOT / path).read_text(encoding="utf-8")]


@pytest.mark.parametrize("path", SHOWING, ids=str)
def test_an_example_comes_to_what_it_shows(path: Path) -> None:
    # The core has one name, under which all import it.
    top = () if path.parts[0] == "millrace" else ("millrace",)
    result = doctest.testmod(importlib.import_module(".".join((*top, *path.with_suffix("").parts))))
    assert result.attempted > 0
    assert result.failed == 0
