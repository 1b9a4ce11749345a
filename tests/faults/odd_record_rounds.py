"""Fault rounds with unusual records: empty, large, aggregated, invalid."""

from __future__ import annotations

from tests.faults import bad_record_examples
from tests.faults.record_sender import send_aggregate
from tests.faults.round_scenarios import running
from tests.faults.round_setup import Stage


def zero_length(stage: Stage, records: int) -> None:
    """Empty records first in a shard, alone in it, many in a row, and last."""

    def empties(count: int) -> None:
        for n in range(count):
            stage.put(str(n), b"", "empty")

    empties(4)
    stage.start()
    stage.until_complete()
    empties(1)
    stage.until_complete()
    empties(300)
    stage.feed.backlog(records)
    stage.until_complete()
    stage.split()
    empties(5)
    stage.until_complete()


def large(stage: Stage, records: int) -> None:
    """Records of 1 MiB and of 5 MiB (more than a request to kinesalite holds is not to be had) among small ones."""

    def put(size: int) -> None:
        payload = b'{"n": 1, "text": "' + b"L" * (size - 20) + b'"}'
        stage.put(f"{stage.choose.getrandbits(64):x}", payload, None)

    running(stage, records)
    for size in (1 << 20, 5 << 20, 1 << 20, 5 << 20, 5 << 20, 5 << 20):
        stage.feed.backlog((records - records // 8) // 6)
        put(size)
    stage.until_complete()


def aggregated(stage: Stage, records: int) -> None:
    """Aggregates of the producer library among others, with the same record twice in one; and a kill."""
    ledger = stage.feed.producer.ledger
    stage.start()
    for n in range(records // 100):
        packed = [(f"k{n}-{i % 3}", b'{"n": %d, "text": "a"}' % (n * 10 + i)) for i in range(8)]
        send_aggregate(stage.client, ledger, stage.stream, [*packed, packed[0], packed[0]])
        if n == records // 200:
            stage.until_landed(1)
            stage.job.kill()
            stage.start()
    stage.feed.backlog(records - records // 10)
    stage.until_complete()


def bad_input(stage: Stage, records: int) -> None:
    """Every bad record that we know of: first alone, then among good ones, with odd keys and with one hot key."""
    stage.start()
    for _, payload, dirt in bad_record_examples.spoiled():
        stage.put("k", payload, dirt)
    stage.until_complete()
    for n, (_, payload, dirt) in enumerate(
        [*bad_record_examples.taken(), *bad_record_examples.spoiled(), *bad_record_examples.taken()]
    ):
        stage.put(bad_record_examples.KEYS[n % len(bad_record_examples.KEYS)], payload, dirt)
    for n in range(max(0, records - len(stage.feed.producer.ledger))):
        stage.put("hot", bad_record_examples.good(n), None)
    stage.until_complete()
