"""What all kinds of tests share: which of them throw faults is written into their reports; examples that repeat."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

from tests.run import FAULTS

# The same examples in every run: a commit is not red for what another one did. `SEARCH=1 make test-unit` looks for new ones.
# Neither is held to a time: how long an example takes is the machine's doing.
untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", untimed, derandomize=True)
settings.register_profile("searching", untimed)
settings.load_profile("searching" if os.environ.get("SEARCH") else "repeatable")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note the tests that are marked; :mod:`tests.run` counts them and their time."""
    for item in items:
        if item.get_closest_marker(FAULTS):
            item.user_properties.append((FAULTS, "thrown"))
