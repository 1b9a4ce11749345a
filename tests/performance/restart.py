"""Time from kill -9 to the first committed batch: ``python -m tests.performance.restart --times 20``.

A job that is deployed on LocalStack (a topic of a real broker is landed, and two queries with state derive from the table; its
checkpoints and tables are on S3) is killed at a random moment, again and again, and started at once from its launch document.
Prints where the time goes, with median and worst; ends with 1 where one took longer than the promise.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from millrace.sandbox.programs.run_launch_document_locally import LocalJob
from tests.faults.batch_commits import commit_times
from tests.faults.kill_deployed_jobs import Shop, opened

PROMISE_SECONDS = 60.0
"""``docs/reliability.md``: under a minute on a laptop."""

RECORDS = 150
PHASES = ("files", "session", "queries", "first batch", "all")


@dataclass(frozen=True)
class Restart:
    """Seconds of one restart, from the kill on.

    Attributes
    ----------
    files
        Until ``spark-submit`` was called: script, archive and jars are fetched from S3.
    session
        Until the core spoke: JVM, session, launch document.
    queries
        Until all queries were started: lease, manifests, tables, plans.
    batch
        Until a batch was committed.
    waited
        Whether the lease of the killed run had to be waited for.
    """

    files: float
    session: float
    queries: float
    batch: float
    waited: bool

    @property
    def seconds(self) -> tuple[float, ...]:
        return (self.files, self.session, self.queries, self.batch, self.all)

    @property
    def all(self) -> float:
        return self.files + self.session + self.queries + self.batch


def restarted(shop: Shop, job: str, run: LocalJob, queries: int) -> tuple[LocalJob, Restart]:
    """Kill a run, start the job, and wait for its first committed batch."""
    run.process.kill()
    killed = time.time()
    shop.orders.send(shop.choose, RECORDS)  # so that there is something to commit
    following = shop.start(job)
    submitted = time.time()

    def seen(what: Callable[[], bool], name: str) -> float:
        shop.wait(following, what, name)
        return time.time()

    def told(event: str) -> int:
        return sum(1 for each in following.events() if each["event"] == event)

    session = seen(lambda: told("metrics") > 0, "a line of the core")
    started = seen(lambda: told("started") == queries, "all queries started")
    seen(lambda: bool(commit_times(following)), "a batch")
    committed = min(commit_times(following)).astimezone(UTC).timestamp()
    waited = told("waiting_for_lease") > 0
    phases = (submitted - killed, session - submitted, started - session, committed - started)
    return following, Restart(*phases, waited)


def measured(shop: Shop, job: str, times: int) -> list[Restart]:
    """Kill and restart a job so many times, at random moments."""
    queries = len(shop.sandbox.environment.jobs[job].queries)
    shop.orders.send(shop.choose, RECORDS)
    run = shop.start(job)
    found = []
    for number in range(times):
        shop.wait(run, lambda run=run: bool(commit_times(run)), "a batch")  # type: ignore[misc]  # of this turn
        shop.orders.send(shop.choose, RECORDS)
        time.sleep(shop.choose.uniform(0.0, 3.0))
        run, one = restarted(shop, job, run, queries)
        found.append(one)
        sys.stderr.write(
            f"{number + 1}: {one.all:.1f} s{', the lease was waited for' if one.waited else ''}\n"
        )
    run.process.stop(60)
    return found


def table(found: list[Restart]) -> str:
    """Median and worst of each phase."""
    lines = [f"{'':12}{'median':>9}{'worst':>9}"]
    for place, name in enumerate(PHASES):
        seconds = [one.seconds[place] for one in found]
        lines.append(f"{name:12}{statistics.median(seconds):8.1f}s{max(seconds):8.1f}s")
    return "\n".join(lines)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=20)
    parser.add_argument("--job", choices=("direct", "stateful"), default="stateful")
    parser.add_argument("--seed", type=int, default=1)
    return parser


def main() -> int:
    """Kill, start, measure, print."""
    given = parser().parse_args()
    with opened(given.seed) as shop:
        found = measured(shop, given.job, given.times)
    worst = max(one.all for one in found)
    sys.stdout.write(
        f"{datetime.now(UTC):%Y-%m-%d}: {given.times} restarts of job {given.job} after kill -9, "
        f"{sum(one.waited for one in found)} waited for the lease\n{table(found)}\n"
        f"{given.times} restarts: median {statistics.median(one.all for one in found):.1f} s, worst {worst:.1f} s\n"
    )
    return int(worst >= PROMISE_SECONDS)


if __name__ == "__main__":
    raise SystemExit(main())
