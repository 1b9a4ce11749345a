"""One crash point of ``python -m tests.faults.crash_at_every_write`` leaves every record once; another point each third day."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.faults.crash_at_every_write import played
from tests.faults.crashed_job import servers
from tests.faults.numbered_writes import MODES, Mode

pytestmark = pytest.mark.faults

MUTATIONS = {
    "land-kafka": 14,
    "land-kinesis": 17,
    "derive": 14,
    "latest": 21,
    "stateful": 29,
    "join": 72,
    "direct": 17,
    "direct-postgresql": 19,
    "upkeep": 20,
    "upgrade": 17,
}
"""Of a batch, by kind (docs/internals/fault-rounds.md); of a join with the batch that follows when the watermark has moved."""

POINTS: list[tuple[str, Mode, int]] = [
    (kind, mode, number)
    for number in range(1, max(MUTATIONS.values()) + 1)
    for mode in MODES
    for kind, most in MUTATIONS.items()
    if number <= most
]


def of_day(day: int) -> tuple[str, Mode, int]:
    """Kind, mode and number of a day: all of them in turn, each third day (tests/suite_parts.py) another one."""
    return POINTS[day // 3 % len(POINTS)]


def test_every_point_has_its_day() -> None:
    assert len({of_day(day) for day in range(0, 3 * len(POINTS), 3)}) == sum(MUTATIONS.values()) * len(MODES)


@pytest.mark.timeout(600)
def test_the_point_of_the_day(tmp_path: Path) -> None:
    kind, mode, number = of_day(datetime.now(UTC).toordinal())
    with servers() as running:
        (outcome,) = played(running, tmp_path, kind, mode, [number])
    assert outcome.held, outcome
