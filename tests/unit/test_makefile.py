"""Code in the Makefile is not seen by the checks of types: its imports exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

MAKEFILE = Path(__file__).parents[2] / "Makefile"


def test_what_the_makefile_imports_exists() -> None:
    imports = re.findall(
        r"from ((?:millrace|tests)[\w.]*) import (\w+)", MAKEFILE.read_text(encoding="utf-8")
    )
    assert imports
    for module, name in imports:
        assert hasattr(importlib.import_module(module), name), (module, name)
