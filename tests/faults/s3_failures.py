"""Fault test with a failing S3 and expired credentials: ``python -m tests.faults.s3_failures``.

Checkpoints, their lease and the tables lie in LocalStack's S3, behind a proxy that throttles, fails, cuts connections, loses
answers, or knows the caller's credentials no more (:mod:`tests.faults.s3_proxy`). The job must outlast what passes, and end with
one message that names what S3 said where it does not; with S3 well again it must go on, and the tables hold what the ledger says.
A job that cannot renew its lease must end before another may take it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial

from pyiceberg.catalog.sql import SqlCatalog
from pyspark.sql import SparkSession

from millrace.etl.launch.lease_record import LIVE_SECONDS
from millrace.sandbox.programs import jars, kafka_broker, localstack, open_spark_session
from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark, local_catalog_settings
from tests.faults import s3_proxy
from tests.faults.in_process_job import Job, UnexpectedResultError, report_results, run_scenario
from tests.faults.s3_proxy import Faults

HOME = RUN / "faults-storage"
BUCKET = "faults"
RETRIES = 8
PORTIONS = 4

ENDS_SECONDS = LIVE_SECONDS + 60
"""A job whose lease is gone must have ended by then; the storage is well again afterwards, so that no story hangs."""


def fail_a_share(kind: str, share: float, job: Job, faults: Faults) -> str:
    """Let a share of all requests fare badly, from before the start to the end."""
    faults.set(kind, share=share)
    job.retries = RETRIES
    for _ in range(PORTIONS):
        job.send()
        ended = job.run()
        if ended.status:
            raise UnexpectedResultError(f"status {ended.status}: {ended.message}")
    return _outlasted(job, faults)


def fail_for_seconds(kind: str, seconds: float, job: Job, faults: Faults) -> str:
    """Let all requests fare badly for a while, from the middle of a batch."""
    job.send()
    job.run()
    job.send()
    job.retries = RETRIES
    with _from_a_batch(faults, kind, seconds) as disturbed:
        ended = job.run(disturbed=disturbed)
    if ended.status or not faults.done[kind]:
        raise UnexpectedResultError(
            f"status {ended.status} after {faults.done[kind]} {kind}: {ended.message}"
        )
    return _outlasted(job, faults)


def refuse_at_start(kind: str, job: Job, faults: Faults) -> str:
    """Refuse everything before the job has begun."""
    job.send()
    faults.set(kind)
    ended = job.run()
    code = s3_proxy.REFUSALS[kind][1]
    if ended.status not in (1, 2) or code not in ended.message:
        raise UnexpectedResultError(f"status {ended.status}: {ended.message}")
    return f"told with status {ended.status}: {ended.message.splitlines()[-1]}"


def refuse_in_batch(kind: str, job: Job, faults: Faults) -> str:
    """Refuse everything from the middle of a batch, with no retries left: the batch fails, and says why."""
    job.send()
    job.run()
    job.send()
    with _from_a_batch(faults, kind, ENDS_SECONDS) as disturbed:
        ended = job.run(disturbed=disturbed)
    status, code, _ = s3_proxy.REFUSALS[kind]
    # The answer to a HEAD has no body, so no code: S3's status is all that there is to tell.
    if ended.status != 1 or not (code in ended.message or f"Status Code: {status}" in ended.message):
        raise UnexpectedResultError(f"status {ended.status}: {ended.message}")
    return f"told with status {ended.status}: {ended.message.splitlines()[-1]}"


def fail_longer_than_the_lease(job: Job, faults: Faults) -> str:
    """Cut all connections for longer than the lease lives: the job ends before another may take it."""
    job.send()
    job.run()
    job.send()
    job.retries = RETRIES
    begun: list[float] = []
    with _from_a_batch(faults, "cut", ENDS_SECONDS, begun) as disturbed:
        ended = job.run(disturbed=disturbed)
    took = time.monotonic() - begun[0]
    if ended.status != 1 or "lease" not in ended.message or took > ENDS_SECONDS:
        raise UnexpectedResultError(f"status {ended.status} after {took:.0f} s: {ended.message}")
    return f"ended itself {took:.0f} s after the last answer: {ended.message.splitlines()[-1]}"


@contextmanager
def _from_a_batch(
    faults: Faults, kind: str, seconds: float, begun: list[float] | None = None
) -> Iterator[Callable[[], None]]:
    """Give what lets all requests fare badly, once, when it is called, for so many seconds or until this is left."""
    called = [] if begun is None else begun
    well = threading.Timer(seconds, faults.set)

    def disturb() -> None:
        if not called:
            called.append(time.monotonic())
            faults.set(kind)
            well.start()

    try:
        yield disturb
    finally:
        well.cancel()
        faults.set()


def _outlasted(job: Job, faults: Faults) -> str:
    faults.set()
    retries = sum(event["event"] == "retrying" for event in job.events)
    befell = ", ".join(f"{kind} {count}" for kind, count in sorted(faults.done.items()))
    return f"outlasted, the last run with {retries} retries of a batch ({befell})"


Story = Callable[[Job, Faults], str]

STORIES: Mapping[str, Story] = {
    **{
        f"a fifth of all requests {kind}": partial(fail_a_share, kind, 0.2)
        for kind in ("slow_down", "failed", "cut")
    },
    "throttled for 15 s": partial(fail_for_seconds, "slow_down", 15.0),
    "away for 15 s": partial(fail_for_seconds, "cut", 15.0),
    "credentials expired for 10 s": partial(fail_for_seconds, "expired", 10.0),
    "credentials expired at a start": partial(refuse_at_start, "expired"),
    "no permission at a start": partial(refuse_at_start, "denied"),
    "credentials expired in a batch": partial(refuse_in_batch, "expired"),
    "permission taken in a batch": partial(refuse_in_batch, "denied"),
    "away for longer than the lease": fail_longer_than_the_lease,
}
KINDS = ("land", "direct", "derive")


def run_story(
    spark: SparkSession,
    broker: kafka_broker.KafkaBroker,
    faults: Faults,
    number: int,
    kind: str,
    story: Story,
) -> tuple[bool, str]:
    """Play one story; whether all held, and what it came to."""
    faults.set()
    faults.done.clear()
    job = Job(spark, broker, HOME, number, kind, f"s3a://{BUCKET}/checkpoints/{number}")
    return run_scenario(job, lambda: story(job, faults), faults.set)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.s3_failures",
        description="An S3 that fails, and credentials that expire.",
    )
    reading.add_argument("--only", nargs="+", choices=STORIES, default=list(STORIES), metavar="STORY")
    return reading


def main() -> int:
    """Break, compare, print a line for each."""
    options = parser().parse_args()
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    with ExitStack() as ending:
        stack = ending.enter_context(localstack.running_localstack(name="faults-storage"))
        stack.client("s3").create_bucket(Bucket=BUCKET)
        broker = ending.enter_context(kafka_broker.running_broker())
        faults = ending.enter_context(s3_proxy.before(stack.endpoint))
        failing = LocalStack(faults.endpoint, stack.region, None)
        # Of the session's JVM, and of boto3 in this process: the lease is its own.
        os.environ |= {k: v for k, v in failing.environment_variables().items() if k.startswith("AWS_")}
        database = HOME / "catalog.db"
        SqlCatalog("lake", uri=f"sqlite:///{database}", warehouse=f"s3a://{BUCKET}/lake").close()
        settings = local_catalog_settings("lake", database, f"s3a://{BUCKET}/lake")
        settings |= SandboxSpark(failing, broker.bootstrap).s3_file_system_settings()
        files = [*jars.jar_files("sandbox"), *jars.jar_files("kafka-client")]
        spark = ending.enter_context(
            open_spark_session.running_spark_session(files, settings, warehouse=HOME / "lake")
        )
        kinds = [KINDS[number % len(KINDS)] for number in range(len(options.only))]
        stories = enumerate(zip(kinds, options.only, strict=True))
        return report_results(
            ((f"{kind}, {name}", run_story(spark, broker, faults, n, kind, STORIES[name])) for n, (kind, name) in stories),
            "faults of S3 and credentials",
        )  # fmt: skip


if __name__ == "__main__":
    raise SystemExit(main())
