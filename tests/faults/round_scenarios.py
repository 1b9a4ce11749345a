"""Sequences of events of the fault rounds, for one stream and one job."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime

from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.records.ledger import Ledger
from tests.faults.round_setup import Stage

RATE = 2_000.0
"""Records per second while a round's job runs: about what two cores land beside everything else."""

Step = Callable[[Stage], None]


def running(stage: Stage, records: int) -> None:
    """Begin: half of a quarter waits, and the job has landed some of it."""
    stage.feed.backlog(records // 8)
    stage.start()
    stage.until_landed(1)


def _flow(stage: Stage, records: int, step: Callable[[], None], times: int = 1) -> None:
    """Send the rest at a steady pace, with a step in the middle, or several at even distances."""
    with stage.feed.flowing(per_second=RATE):
        begun = stage.feed.sent
        for n in range(1, times + 1):
            stage.until(
                lambda n=n: stage.feed.sent >= begun + (records - begun) * n // (times + 1), 600, "feed"
            )
            step()
        stage.until(lambda: stage.feed.sent >= records, 600, "the last record is sent")
    stage.until_complete()


def under_load(stage: Stage, records: int, *, steps: Sequence[Step], times: int) -> None:
    """Split or merge shards while records flow; with one step of an only shard, or of all, every shard that is read ends at once."""

    def step() -> None:
        for each in steps:
            each(stage)

    running(stage, records)
    _flow(stage, records, step, times)


def in_a_gap(stage: Stage, records: int, *, step: Step) -> None:
    """Split or merge shards of which all is read, with nothing arriving for a while."""
    running(stage, records)
    for _ in range(3):
        stage.feed.backlog(records // 4)
        stage.until_complete()
        step(stage)
        time.sleep(stage.choose.uniform(1, 4))
    stage.complete(records)


def while_stopped(stage: Stage, records: int, *, step: Step, kill: bool = False) -> None:
    """Stop with an unread backlog, change the shards with more arriving before and after, start again."""
    running(stage, records)
    for n in (1, 2):
        stage.job.kill() if kill else stage.job.stop(grace_seconds=60)
        stage.feed.backlog(records // 8)
        step(stage)
        stage.feed.backlog(records // 8)
        stage.start()
        if n == 1:
            stage.until_more()
    stage.complete(records)


def grandchildren_while_killed(stage: Stage, records: int) -> None:
    """Shards open and close again unseen."""

    def twice(_: Stage) -> None:
        stage.split(2)
        stage.feed.backlog(records // 16)
        stage.merge()
        stage.split()

    while_stopped(stage, records, step=twice, kill=True)


def unread_tail(stage: Stage, records: int) -> None:
    """Shards end while a minute's worth of them and more is unread, since a batch takes little of it."""
    stage.start()
    stage.feed.backlog(records // 2)
    stage.until_landed(1)
    stage.split(2)
    stage.feed.backlog(records // 4)
    stage.merge()
    stage.complete(records)


def killed_between_write_and_commit(stage: Stage, records: int) -> None:
    """Kill -9 as soon as the table has the rows: Spark has not committed the batch, and replays it with more."""
    stage.feed.backlog(records // 4)
    stage.start()
    for _ in range(3):
        before = stage.landed()
        while stage.landed() == before and stage.job.is_alive:
            time.sleep(0.002)
        stage.job.kill()
        stage.feed.backlog(records // 4)
        stage.start()
    stage.complete(records)


def killed_while_splitting(stage: Stage, records: int) -> None:
    """A reshard, and a kill while the children are found."""
    running(stage, records)
    for step in (stage.split, stage.merge, stage.split):
        stage.feed.backlog(records // 8)
        step()
        time.sleep(stage.choose.uniform(0, 1.0))
        stage.job.kill()
        stage.feed.backlog(records // 8)
        stage.start()
        stage.until_more()
    stage.complete(records)


def throttled(stage: Stage, records: int) -> None:
    """Three of ten reads are refused, with a split in between."""
    running(stage, records)
    stage.kinesis.throttle(0.3)
    try:
        _flow(stage, records, stage.split, times=2)
    finally:
        stage.kinesis.throttle(0)


def iterators_expire(stage: Stage, records: int) -> None:
    """The stream's clock goes six minutes ahead, again and again: every iterator in use is then too old."""
    running(stage, records)
    ahead = 0.0

    def jump() -> None:
        nonlocal ahead
        ahead += 360.0
        stage.kinesis.set_clock(ahead)

    try:
        _flow(stage, records, jump, times=12)
    finally:
        stage.kinesis.set_clock(0)


def contended(stage: Stage, records: int) -> None:
    """Four programs want the same two cores, and a batch may fetch for a fifth of a second."""
    with _busy(4):
        running(stage, records)
        _flow(stage, records, stage.split)


@contextmanager
def _busy(count: int) -> Iterator[None]:
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for one in spinning:
            one.kill()
            one.wait()


def latest_over_a_stop(stage: Stage, records: int) -> None:
    """A query that began at the latest record: what arrives on new shards while it is stopped is not skipped."""
    stage.start()
    stage.until(lambda: any(e["event"] == "started" for e in stage.reported()), 60, "the query is started")
    time.sleep(5)
    stage.feed.backlog(records // 2)
    stage.until_complete()
    stage.job.stop(grace_seconds=60)
    stage.split()
    stage.feed.backlog(records - records // 2)
    stage.start()
    stage.until_complete()


def closed_shards_passed_over(stage: Stage, records: int) -> None:
    """As with the connector of EMR Serverless: a shard that is found closed counts as read, and its tail is not.

    That connector is not to be had here. Its habit is written into the files of the one that is, and the
    core is told that it has to read such tails.
    """
    running(stage, records)
    for _ in range(2):
        stage.job.kill()
        stage.feed.backlog(records // 4)
        stage.split(2)
        listed = stage.client.list_shards(StreamName=stage.stream)["Shards"]
        closed = {s["ShardId"] for s in listed if "EndingSequenceNumber" in s["SequenceNumberRange"]}
        for path in stage.last_positions().iterdir():
            if path.name in closed:
                ended = {"shardId": path.name, "iteratorType": "SHARD_END", "iteratorPosition": ""}
                path.write_text(json.dumps(ended))
        stage.feed.backlog(records // 8)
        stage.start()
        stage.until_landed(len(stage.feed.producer.ledger))
    stage.complete(records)


def _failures(stage: Stage) -> int:
    return sum(event["event"] == "failed" for event in stage.reported())


def positions_cut_short(stage: Stage, records: int) -> None:
    """A file of the connector's own is cut to nothing, then to half: how far a shard was read in the last batch.

    It goes on exactly, or says so and goes on when the file is put back.
    """
    running(stage, records)
    for share in (0.0, 0.5):
        stage.until_complete()
        stage.job.stop(grace_seconds=60)
        stage.feed.backlog(records // 8)
        path = stage.choose.choice(sorted(stage.last_positions().iterdir()))
        whole = path.read_bytes()
        path.write_bytes(whole[: int(len(whole) * share)])
        before = _failures(stage)
        job = stage.start()
        deadline = time.monotonic() + 60
        wanted = len(stage.feed.producer.ledger)
        while job.is_alive and stage.landed() < wanted and time.monotonic() < deadline:
            time.sleep(0.2)
        if stage.landed() >= wanted:
            continue
        if _failures(stage) == before:
            raise SandboxError(
                f"neither read on nor refused, with {share:.0%} of {path.name}:\n{job.last_log_lines(25)}"
            )
        job.kill()
        path.write_bytes(whole)
        stage.start()
    stage.complete(records)


def started_at_a_moment(stage: Stage, records: int) -> None:
    """A query that begins at a moment: nothing from before it, all since, on a stream that was split meanwhile."""
    stage.feed.backlog(records // 4)
    stage.split()
    stage.feed.backlog(records // 4)
    time.sleep(2)
    stage.settings["start"] = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    stage.feed.producer.ledger = Ledger()
    stage.feed.backlog(records // 4)
    stage.split()
    stage.start()
    stage.until_landed(1)
    stage.feed.backlog(records - stage.feed.sent)
    stage.split()
    stage.until_complete()


def limits_follow_shards(stage: Stage, records: int) -> None:
    """Two splits: a batch stays within its limit, because each shard's part of it is worked out again."""
    stage.feed.backlog(records // 3)
    stage.start()
    stage.until_landed(1)
    for _ in range(2):
        stage.split()
        stage.feed.backlog(records // 3)
        stage.until_landed(stage.feed.sent)
    stage.complete(records)
    if [e["why"][-40:] for e in stage.reported() if e["event"] == "reopened"] == []:
        raise SandboxError("the query was never opened again")
    # While a parent is read to its end beside its children, a batch holds one part more.
    most, limit = max(b["read"] for b in stage.batches()), stage.settings["records_per_batch"]
    if most > 2 * limit:
        raise SandboxError(f"a batch of {most} records, where the limit is {limit}")


def trimmed(stage: Stage, records: int) -> None:
    """Stopped for longer than the stream keeps records: some are gone unread, and more have come."""
    running(stage, records)
    stage.until_complete()
    stage.job.kill()
    stage.feed.backlog(records // 2)
    stage.kinesis.set_clock(25 * 3600)
    try:
        stage.feed.backlog(records // 8)
        job = stage.start()
        stage.until(lambda: not job.is_alive, 120, "the job refuses")
    finally:
        stage.kinesis.set_clock(0)
