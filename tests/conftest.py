"""What all kinds of tests share: which of them throw faults is written into their reports; examples that repeat."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
import typer.testing
from hypothesis import HealthCheck, settings
from ruamel.yaml import YAML

from tests.run import DAYS, FAULTS, SLOW, SLOWLY, day

# The same examples in every run: a commit is not red for what another one did. `SEARCH=1 make test-unit` looks for new ones.
# Neither is held to a time: how long an example takes is the machine's doing.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", untimed, derandomize=True)
settings.register_profile("searching", untimed)
settings.load_profile("searching" if os.environ.get("SEARCH") else "repeatable")

# A run of `millrace` puts its whole command line together, which is the same each time: hundreds of tests share one.
typer.main.get_command = typer.testing._get_command = cache(typer.main.get_command)

_compose = YAML.compose
_NODES: dict[str, Any] = {}


def _composed(reader: YAML, text: str) -> Any:
    if text not in _NODES:
        _NODES[text] = _compose(reader, text)
    return _NODES[text]


# So does what reads the same few environments a thousand times: nodes are read, never changed.
YAML.compose = _composed


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the tests that throw faults, which :mod:`tests.run` counts; leave out slow ones whose day is not today."""
    for item in items:
        if item.get_closest_marker(FAULTS):
            item.user_properties.append((FAULTS, "thrown"))
    asked = os.environ.get(SLOWLY, "all")
    slow = [item for item in items if item.get_closest_marker(SLOW)]
    today = set(due({item.path for item in slow}, day())) if asked == "today" else set()
    left_out = [item for item in slow if asked != "all" and item.path not in today]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def due(files: Iterable[Path], on: int) -> list[Path]:
    """Choose the files with slow tests that run on a day, file by file, as a file's fixtures are shared.

    They take turns in the order of their names: by a hash of them, half of all that deploys was due on one day.
    """
    return sorted(files)[on % DAYS :: DAYS]


def pytest_collection_finish() -> None:
    """Take what was collected out of the garbage collector's sight: each full collection went through all of it."""
    gc.collect()
    gc.freeze()
