"""Plan, run, advise and plan again, on real runs: ``python -m tests.advisor.advice_loop``.

A project of its own is deployed to LocalStack, and its job is started from the deployed launch document, with a limit that is
lower than what arrives. ``millrace advise`` reads the event log where the run left it in S3 and writes the change into the
environment file, ``millrace plan`` takes it up, the project is deployed again, and the job continues from its checkpoint: first
without new records until the backlog is gone, then with as many as before. The finding must be gone, too. It prints what
each command printed, and ends with 1 where the loop stays open.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import advised_environment_job
from millrace.advisor.findings.model import Advice
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.config import load
from millrace.sandbox.localstack_deployment import Sandbox, running_localstack_and_kafka
from millrace.sandbox.programs.child_processes import RUN, SandboxError
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from millrace.sandbox.programs.localstack import ACCOUNT, LocalStack
from millrace.sandbox.programs.run_launch_document_locally import (
    EVENT_LOGS,
    LocalJob,
    copy_then_move_event_logs,
)
from millrace.sandbox.records.ledger import row_count
from millrace.sandbox.records.producer import BackgroundThread, KafkaProducer
from millrace.sizing import plan
from tests.faults.batch_commits import commit_times
from tests.faults.shop import orders_with_expected_results
from tests.faults.shop_project import NAME, bring, run, write
from tests.steady_rate import yield_at_rate

HOME = RUN / "loop"
JOB, QUERY, TOPIC, TABLE = "orders", "land-orders", "orders", "orders_landed"
LIMIT, TRIGGER, PER_SECOND = 600, 10, 90
"""Every ten seconds 600 records are taken of the 900 that came."""

KINDS = {"silent-backlog", "at-capacity"}
PATIENCE_SECONDS = 600.0

ENVIRONMENT = f"""\
# A shop whose orders came to be more than its limit allows.
project: loop
region: us-east-1
account: "{ACCOUNT}"
removal: destroy
network: {{cidr: 10.42.0.0/16, availability_zones: 2}}
storage:
  disposable: [lake, checkpoints, event-logs, dead-letters, access-logs, database, logs]
kafka:
  main: {{kind: msk, brokers: 2, disposable: true}}
streams:
  {TOPIC}:
    kind: kafka
    cluster: main
    partitions: 2
    disposable: true
    traffic: {{records_per_second: 50, record_size: 150B}} # as it was last year
jobs:
  {JOB}:
    engine: emr
    latency: 60s
    rate: {{records_per_second_per_core: 5000}}
    queries:
      {QUERY}:
        kind: land
        source: {TOPIC}
        schema: pipelines/shop/order.ddl
        table: {TABLE}
        trigger: {TRIGGER}s
        records_per_batch: {LIMIT} # set by hand, long ago
"""


@dataclass
class Loop:
    """The deployed project, what is sent to it, and what was done."""

    stack: LocalStack
    broker: KafkaBroker
    seconds: float
    choose: random.Random
    project: Path = HOME / "project"
    logs: list[Path] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.broker.create_topic(TOPIC, 2)
        self.producer = KafkaProducer(self.broker.bootstrap, TOPIC)

    def told(self, *words: str, into: Path | None = None, only: str = "") -> None:
        """Run ``millrace`` in the project as a person would, and print what it prints, or its lines with a word.

        Raises
        ------
        SandboxError
            It failed.
        """
        shown = f" > {into.name}" if into is not None else ""
        sys.stdout.write(f"$ millrace {' '.join(words)}{shown}\n")
        sys.stdout.flush()
        environment = {
            **self.stack.environment_variables(),
            "COLUMNS": "120",
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        done = run([sys.executable, "-m", "millrace", *words], self.project, environment)
        if into is not None:
            into.write_text(done.stdout)
        printed = (done.stderr if into is not None else done.stdout).splitlines()
        sys.stdout.write("".join(f"{line.rstrip()}\n" for line in printed if only in line) + "\n")
        sys.stdout.flush()

    def fed(self) -> BackgroundThread:
        """Send records at a steady rate."""
        made = orders_with_expected_results.orders(self.choose, len(self.producer.ledger), 10**9)

        def send(stop: threading.Event) -> None:
            self.producer.send(yield_at_rate(made, per_second=PER_SECOND, stop=stop), sent=lambda _: None)

        return BackgroundThread(send, "orders")

    def run(self, sandbox: Sandbox, *, until: Callable[[Sandbox], bool]) -> str:
        """Run the deployed job; once a condition holds, feed it for a while; return where its log is.

        Raises
        ------
        SandboxError
            The job ended by itself, or did not come so far.
        """
        sandbox.spark.catalog(
            sandbox.names.warehouse_url
        )  # makes the catalog's own tables, where they are not there
        job = sandbox.spark.submit(sandbox.launch_document(JOB), f"loop-{len(self.logs) + 1}")
        try:
            _wait(job, lambda: bool(commit_times(job)) and until(sandbox))
            with self.fed():
                end = time.monotonic() + self.seconds
                _wait(job, lambda: time.monotonic() > end)
                done = len(commit_times(job))
                _wait(job, lambda: len(commit_times(job)) > done)  # so that no batch is cut in two
            job.process.stop(grace_seconds=60)
        finally:
            job.process.kill()
        [name] = [each.name for each in job.event_logs.iterdir()]
        place = sandbox.launch_document(JOB).content["event_logs"]
        copy_then_move_event_logs(self.stack, job, place)
        self.logs.append(EVENT_LOGS / name)
        return f"{place.rstrip('/')}/{name}"

    def caught_up(self, sandbox: Sandbox) -> bool:
        """Whether what was sent is in the table."""
        catalog = sandbox.spark.catalog(sandbox.names.warehouse_url)
        return row_count(catalog, sandbox.names.table(TABLE)) >= len(self.producer.ledger)

    def judged(self) -> Advice:
        """What the advisor says of the last log, with the environment as it is."""
        environment = load(NAME, root=self.project)
        return advise(
            read_history(find_event_logs(str(self.logs[-1]))[0]),
            advised_environment_job(environment, plan(environment), JOB),
        )


def _wait(job: LocalJob, reached: Callable[[], bool]) -> None:
    job.process.wait_until(reached, seconds=PATIENCE_SECONDS, what="so far")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog="python -m tests.advisor.advice_loop", description=__doc__)
    made.add_argument("--seconds", type=float, default=120.0, help="in which each run is fed")
    made.add_argument("--seed", type=int, default=1)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Run, advise, apply, plan, deploy, run, advise."""
    options = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    with running_localstack_and_kafka() as (stack, broker):
        write(HOME / "project", ENVIRONMENT)
        choose = random.Random(options.seed)
        loop = Loop(stack, broker, options.seconds, choose)
        try:
            return _around(loop)
        finally:
            del loop.producer  # while the broker is there to say goodbye to


def _around(loop: Loop) -> int:
    ours_ = ("--env", NAME, "--job", JOB)
    loop.producer.send(orders_with_expected_results.orders(loop.choose, 0, LIMIT), sent=lambda _: None)
    sandbox = bring(HOME, loop.stack, loop.broker)
    log = loop.run(sandbox, until=lambda _: True)
    before = loop.judged()
    number = next((n for n, each in enumerate(before.findings, 1) if each.kind in KINDS), None)
    if number is None:
        raise SandboxError(f"no limit that is hit was found, but {[each.kind for each in before.findings]}")
    forecast = HOME / "advice.json"
    loop.told("advise", log, *ours_)
    loop.told("advise", log, *ours_, "--apply", "--finding", str(number), "--json", into=forecast)
    loop.told("plan", "--env", NAME, only=QUERY)
    planned = plan(load(NAME, root=loop.project)).jobs[JOB].queries[QUERY].records_per_batch
    sandbox = bring(HOME, loop.stack, loop.broker)
    [deployed] = sandbox.launch_document(JOB).content["settings"]["queries"]
    log = loop.run(sandbox, until=loop.caught_up)
    loop.told("advise", log, *ours_, "--score", f"../{forecast.name}")
    after = {each.kind for each in loop.judged().findings}
    wanted = next(each.new for each in before.findings[number - 1].changes if each.kind == "environment")
    reached = (
        planned is not None
        and planned.value == wanted
        and deployed["routes"][0]["source"]["records_per_batch"] == wanted
    )
    gone = not KINDS & after
    sys.stdout.write(
        f"limit {LIMIT} before, {wanted} advised, {'and' if reached else 'NOT'} planned and deployed; "
        f"the finding {'is gone' if gone else 'IS STILL THERE'}\n"
    )
    return int(not (reached and gone))


if __name__ == "__main__":
    raise SystemExit(main())
