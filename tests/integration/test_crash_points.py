"""One crash point of those that ``python -m tests.faults.crash_points`` meets: another one each day."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.faults.crash_points import played
from tests.faults.crashed import servers
from tests.faults.mutations import MODES, Mode

pytestmark = pytest.mark.faults

KINDS = ("land-kafka", "derive")
"""Those whose points were all met (docs/reliability.md); others join when they are."""

NUMBERS = 14
"""Mutations of a batch of theirs."""


def of_day(day: int) -> tuple[str, Mode, int]:
    """Kind, mode and number of a day: all of them in turn."""
    day, kind = divmod(day, len(KINDS))
    day, mode = divmod(day, len(MODES))
    return KINDS[kind], MODES[mode], 1 + day % NUMBERS


def test_every_point_has_its_day() -> None:
    days = len(KINDS) * len(MODES) * NUMBERS
    assert len({of_day(day) for day in range(days)}) == days


@pytest.mark.timeout(600)
def test_the_point_of_the_day(tmp_path: Path) -> None:
    kind, mode, number = of_day(datetime.now(UTC).toordinal())
    with servers() as running:
        (outcome,) = played(running, tmp_path, kind, mode, [number])
    assert outcome.held, outcome
