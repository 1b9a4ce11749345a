"""What all kinds of tests share: which of them throw faults is written into their reports; examples that repeat."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

from tests.run import FAULTS

# The same examples in every run: a commit is not red for what another one did. `SEARCH=1 make test-unit` looks for new ones.
settings.register_profile("repeatable", derandomize=True)
settings.load_profile("default" if os.environ.get("SEARCH") else "repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note the tests that are marked; :mod:`tests.run` counts them and their time."""
    for item in items:
        if item.get_closest_marker(FAULTS):
            item.user_properties.append((FAULTS, "thrown"))
