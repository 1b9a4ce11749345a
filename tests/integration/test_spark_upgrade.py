"""A running job moves to a later Spark line and back on the same checkpoint and table, with every record once."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.config.engines.versions import DEFAULT, LINES
from tests.faults.kafka_round_setup import KafkaStage

pytestmark = [pytest.mark.faults, pytest.mark.slow]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[KafkaStage]:
    made = KafkaStage(None, tmp_path / "home", "moves", random.Random(1))
    made.create_stream(2)
    yield made
    made.close()


def send(stage: KafkaStage, count: int) -> None:
    first = len(stage.feed.producer.ledger)
    for n in range(first, first + count):
        broken = n % 50 == 7
        stage.put(
            f"k{n % 7}", b"{" if broken else json.dumps({"n": n}).encode(), "broken" if broken else None
        )


@pytest.mark.timeout(400)
def test_there_and_back_with_nothing_lost_and_nothing_twice(stage: KafkaStage) -> None:
    newest = list(LINES)[-1]
    send(stage, 200)
    for move, line in enumerate((DEFAULT, newest, DEFAULT, newest)):
        stage.line = LINES[line]
        stage.start()
        stage.until_landed(len(stage.feed.producer.ledger))
        send(stage, 200)
        if move % 2:
            stage.until_landed(len(stage.feed.producer.ledger))
            stage.job.stop(grace_seconds=60)
        else:
            # What is planned and not committed is left to the next line.
            stage.job.kill()
    stage.start()
    stage.until_complete()
    result = stage.account()
    assert result.exact, result
    assert result.dead_letters == 20
    spark = [
        json.loads(p.read_text())["spark"]
        for p in (stage.home / "checkpoints" / "_millrace").glob("*.manifest.json")
    ]
    assert spark == [LINES[newest].spark]
