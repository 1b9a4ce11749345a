"""What all kinds of tests share: which of them throw faults is written into their reports."""

from __future__ import annotations

import pytest

from tests.run import FAULTS


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Note the tests that are marked; :mod:`tests.run` counts them and their time."""
    for item in items:
        if item.get_closest_marker(FAULTS):
            item.user_properties.append((FAULTS, "thrown"))
