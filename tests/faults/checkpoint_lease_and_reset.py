"""Fault test of checkpoints: second runs, a pause, a reset: ``python -m tests.faults.checkpoint_lease_and_reset --times 20``.

The job is deployed on LocalStack, with its checkpoints on S3, and started from its launch document while records come:

1. The same document is started again and again beside it: every one of these runs must end with status 2 and one message,
   before it has read or made anything.
2. The run stands still (SIGSTOP) until its lease is taken by another, and wakes: it must end with status 1.
3. The job is stopped, records come meanwhile, and its query begins anew, ten minutes before the stop.
4. The query's checkpoint is carried to another name and back.

The table must hold what the ledger says. It ends with 1 where it does not.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
from datetime import UTC, datetime, timedelta

from millrace.lifecycle.jobs.checkpoints import JobCheckpoints
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.programs.run_launch_document_locally import LocalJob
from tests.faults.batch_commits import commit_times
from tests.faults.kill_deployed_jobs import Shop, opened

JOB, QUERY = "direct", "tax"
OVERLAP = timedelta(minutes=10)
RECORDS = 300
REFUSED, FAILED = 2, 1
AT_ONCE = 4
"""Second runs beside each other: most of what each takes is waiting."""

PATIENCE_SECONDS = 240.0


def second_runs(shop: Shop, times: int) -> list[float]:
    """Start second runs beside the one that runs; seconds until each was refused."""
    result: list[float] = []
    while len(result) < times:
        shop.orders.send(shop.choose, RECORDS)
        begun = time.monotonic()
        for second in [shop.start(JOB) for _ in range(min(AT_ONCE, times - len(result)))]:
            status = second.process.popen.wait(timeout=PATIENCE_SECONDS)
            result.append(time.monotonic() - begun)
            said = [
                line for line in second.process.log.read_text().splitlines() if line.startswith("error: ")
            ]
            if status != REFUSED or len(said) != 1 or "is held by run" not in said[0]:
                raise SandboxError(f"a second run ended with {status}:\n{second.process.last_log_lines(30)}")
            if any(event["event"] in ("batch", "started") for event in second.events()):
                raise SandboxError("a second run did something")
    return result


def stood_still(shop: Shop, first: LocalJob) -> tuple[LocalJob, str]:
    """Let the first run stand still until another has its lease; the other run, and what the first said as it woke."""
    first.process.signal_group(signal.SIGSTOP)
    shop.orders.send(shop.choose, RECORDS)
    second = shop.start(JOB)
    shop.wait(second, lambda: bool(commit_times(second)), "a batch of the run that took over")
    first.process.signal_group(signal.SIGCONT)
    shop.orders.send(shop.choose, RECORDS)
    status = first.process.popen.wait(timeout=PATIENCE_SECONDS)
    said = [str(event["error"]) for event in first.events() if event["event"] == "failed"]
    if status != FAILED or not any("lease" in line for line in said):
        raise SandboxError(
            f"the run that stood still ended with {status}: {said}\n{first.process.last_log_lines(30)}"
        )
    return second, said[-1]


def begun_anew(shop: Shop, run: LocalJob) -> tuple[LocalJob, int]:
    """Stop the job and let its query begin anew; the next run, and how many rows it found in the table already."""
    run.process.stop(60)
    at = datetime.now(UTC)
    shop.orders.send(shop.choose, RECORDS)
    kept = JobCheckpoints(shop.sandbox.stack.client("s3"), shop.sandbox.names, JOB)
    with kept.holding_lease("reset"):
        kept.archive_checkpoint_and_return_url(QUERY, start=(at - OVERLAP).isoformat(), moment=at)
    following = shop.start(JOB)
    shop.until_taxed(following)
    shop.wait(following, lambda: shop.batches(following) > 0, "a batch's line")
    batches = [event for event in following.events() if event["event"] == "batch"]
    return following, sum(int(event["duplicates"]) for event in batches)


def carried(shop: Shop, run: LocalJob) -> LocalJob:
    """Carry the checkpoint to another name and back; the next run, which goes on without a word about it."""
    run.process.stop(60)
    shop.orders.send(shop.choose, RECORDS)
    kept = JobCheckpoints(shop.sandbox.stack.client("s3"), shop.sandbox.names, JOB)
    with kept.holding_lease("move"):
        for source, target in ((QUERY, "elsewhere"), ("elsewhere", QUERY)):
            kept.copy_checkpoint(source, kept, target, same_sink=True)
            kept.archive_checkpoint_and_return_url(source, start=None, moment=datetime.now(UTC))
    following = shop.start(JOB)
    shop.until_taxed(following)
    # A table shows a batch before its line is printed.
    shop.wait(following, lambda: shop.batches(following) > 0, "a batch's line")
    first = next(event for event in following.events() if event["event"] == "batch")
    if first["batch"] == 0 or any(event["event"] == "adopted" for event in following.events()):
        raise SandboxError(f"it did not go on: {first}")
    return following


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    return parser


def main() -> int:
    """Start, refuse, stop, compare, print."""
    options = parser().parse_args()
    with opened(options.seed) as shop:
        shop.orders.send(shop.choose, RECORDS)
        first = shop.start(JOB)
        shop.wait(first, lambda: bool(commit_times(first)), "a batch")
        seconds = second_runs(shop, options.times)
        sys.stdout.write(
            f"second runs: {len(seconds)} of {options.times} refused with status 2, the slowest after {max(seconds):.0f} s\n"
        )
        sys.stdout.flush()
        run, said = stood_still(shop, first)
        sys.stdout.write(f"a run that stood still: status 1, {said}\n")
        shop.until_taxed(run)
        run, again = begun_anew(shop, run)
        sys.stdout.write(f"begun anew ten minutes before its stop: {again} rows were there already\n")
        run = carried(shop, run)
        sys.stdout.write("carried to another name and back: it went on\n")
        sys.stdout.flush()
        time.sleep(3)  # for rows too many
        line, _ = shop.taxed()
        run.process.stop(60)
    sys.stdout.write(f"{line.what}: {line.wanted} rows wanted, {line}\n")
    return int(not line.exact or again == 0)


if __name__ == "__main__":
    raise SystemExit(main())
