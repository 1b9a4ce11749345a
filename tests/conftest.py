"""Shared set-up of all tests: reports name the tests with faults, and random examples are repeatable."""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import typer.main
import typer.testing
from botocore.loaders import JSONFileLoader
from hypothesis import HealthCheck, settings
from ruamel.yaml import YAML

from tests.run import DAYS, FAULTS, SLOW, SLOWLY, day, examples

# The same examples in every run: a commit is not red for what another one did. `SEARCH=1 make test-unit` looks for new ones.
# Neither is held to a time: how long an example takes is the machine's doing.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(100))
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

# And each session of boto3 the same models of services.
_model = cache(JSONFileLoader().load_file)
JSONFileLoader.load_file = lambda _, path: _model(path)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note the tests that throw faults, which :mod:`tests.run` counts; leave out slow ones whose day is not today."""
    for item in items:
        if item.get_closest_marker(FAULTS):
            item.user_properties.append((FAULTS, "thrown"))
    share = os.environ.get(SLOWLY, "all")
    slow = {item: unit_of_rotation(item) for item in items if item.get_closest_marker(SLOW)}
    today = set(due(Counter(slow.values()), day())) if share == "today" else set()
    left_out = [item for item, unit in slow.items() if share != "all" and unit not in today]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        gone = set(left_out)
        items[:] = [item for item in items if item not in gone]


def unit_of_rotation(item: pytest.Item) -> str:
    """Return the test's id; for tests that share a fixture of their module the module's file, as one day pays for the fixture."""
    fixtures = item._fixtureinfo.name2fixturedefs.values()  # type: ignore[attr-defined]
    shares = any(each[-1].scope in {"class", "module"} for each in fixtures if each)
    return item.nodeid.partition("::")[0] if shares else item.nodeid


def due(units: Mapping[str, int], on: int) -> list[str]:
    """Choose the slow tests that run on a day, from units of so many tests.

    Each unit goes to the day that has the fewest tests, the largest first. Single tests rotate in the order of their names, so that
    those of one file come on different days: by whole files, one day took two minutes longer than another. By a hash, half of all
    that deploys was due on one day.
    """
    days: list[list[str]] = [[] for _ in range(DAYS)]
    tests = [0] * DAYS
    for unit in sorted(units, key=lambda each: (-units[each], each)):
        fewest = tests.index(min(tests))
        days[fewest].append(unit)
        tests[fewest] += units[unit]
    return days[on % DAYS]


def pytest_collection_finish() -> None:
    """Take what was collected out of the garbage collector's sight: each full collection went through all of it."""
    gc.collect()
    gc.freeze()
