"""One round of ``python -m tests.faults`` ends with every record once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import kinesalite
from tests.faults.__main__ import play

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.mark.timeout(240)
def test_the_only_shard_is_split_under_load(tmp_path: Path) -> None:
    """All shards that the job reads end at once."""
    with kinesalite.running(name="test-kinesalite") as kinesis:
        outcome = play("only_shard_split", seed=1, records=3000, kinesis=kinesis, home=tmp_path)
    assert (outcome.lost, outcome.duplicated, outcome.other) == (0, 0, 0)
    assert outcome.met, outcome.stalled
    assert outcome.landed >= 3000
    assert 0 < outcome.dead_letters < outcome.landed
