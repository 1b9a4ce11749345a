"""Run ``millrace verify`` in a simulated account: ``python -m tests.faults.verify_simulated_account``.

The command runs as it does for an account, as a process of its own, with the credentials and the address of a LocalStack. CDK
deploys there; the state machines, their rules and their parameters are LocalStack's. The Glue and the EMR Serverless that they
call are the tests' own (``tests/integration/lifecycle/simulated_engines.py``), whose runs here are real ones: local Spark, from the
launch document that the job's stack names, on checkpoints and tables in LocalStack's S3. A run that is killed is killed with
SIGKILL, its end is an event as the services send it, and nothing but the deployed rule starts the next one. Where a table is, the
played Data Catalog tells.

It ends with 1 where the command does not find all records once, where something is left, or where a run was started by anybody else.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from millrace.lifecycle.account.deployed_environment import read_stack_outputs
from millrace.sandbox.programs import localstack
from millrace.sandbox.programs.child_processes import RUN, SandboxError
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark
from millrace.sandbox.programs.toolchain import ROOT
from millrace.sandbox.records.producer import BackgroundThread
from tests.faults.engines_on_local_spark import RealRuns, beside_localstack
from tests.faults.shop_project import run
from tests.integration.lifecycle.simulated_engines import EMR_STATES, GLUE_STATES, RefusedError

HOME = RUN / "faults-verified"
POLL_SECONDS = 0.5
ENVIRONMENT = f"""\
project: tiny
account: "{localstack.ACCOUNT}"
network: {{availability_zones: 2}}
streams:
  clicks:
    kind: kinesis
    traffic: {{records_per_second: 100, record_size: 500B}}
jobs:
  on-glue: &job
    engine: glue
    rate: {{records_per_second_per_core: 5000}}
    queries: &queries
      land-clicks: {{kind: land, source: clicks, table: by_glue, schema: pipelines/clicks/schemas/click.ddl}}
  on-emr:
    <<: *job
    engine: emr
    queries:
      land-clicks: {{kind: land, source: clicks, table: by_emr, schema: pipelines/clicks/schemas/click.ddl}}
"""


@dataclass
class Played(RealRuns):
    """Both engines, with runs of local Spark; and a Data Catalog that tells of the tables that these write."""

    told: set[str] = field(default_factory=set)
    """Runs of whose end an event was sent."""

    # ---- Glue ----

    def glue(self, action: str, given: dict[str, Any]) -> dict[str, Any]:
        if action == "GetJobs":
            return {"Jobs": []}
        if action == "GetTable":
            return {"Table": _table(str(given["DatabaseName"]), str(given["Name"]))}
        answer = super().glue(action, given)
        if action == "BatchStopJobRun":
            for run in given["JobRunIds"]:
                self.jobs[run].process.signal_group(signal.SIGKILL)  # it waits for nothing
        return answer

    def launch_document(self, job: str) -> str:
        """Where that of a Glue job lies: it is named after the environment and the job, and so is its stack."""
        prefix, _, name = job.rpartition("-")
        return read_stack_outputs(self._client("cloudformation"), f"{prefix}-job-{name}")["LaunchDocument"]

    # ---- EMR Serverless ----

    def emr(self, method: str, path: str, query: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
        if (method, path) == ("GET", "/applications"):
            return {"applications": []}
        return super().emr(method, path, query, given)

    # ---- runs ----

    def _client(self, service: str) -> Any:
        assert self.spark is not None
        return self.spark.stack.client(service)

    def send_ends(self) -> None:
        """Send an event for each run that has ended since, as the services do."""
        for run_id, job in list(self.jobs.items()):
            if run_id in self.told or job.process.is_alive:
                continue
            self.told.add(run_id)
            with self._lock:
                run, application = self.runs[run_id], self.applications.get(run_id)
                state = self._show(run, EMR_STATES if application else GLUE_STATES)
            detail = {"jobRunId": run_id, "state": state}
            source, kind, whose = (
                ("aws.emr-serverless", "EMR Serverless Job Run State Change", {"applicationId": application})
                if application
                else ("aws.glue", "Glue Job State Change", {"jobName": run.job})
            )
            entry = {"Source": source, "DetailType": kind, "Detail": json.dumps({**whose, **detail})}
            self._client("events").put_events(Entries=[entry])


def _table(database: str, name: str) -> dict[str, Any]:
    """A table as the Data Catalog tells of it: the catalog of local Spark knows where it is."""
    with closing(sqlite3.connect(RUN / "catalog.db")) as held:
        result = held.execute(
            "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?",
            (database, name),
        ).fetchone()
    if result is None:
        raise RefusedError("EntityNotFoundException", f"Table {database}.{name} not found.")
    parameters = {"table_type": "ICEBERG", "metadata_location": result[0]}
    return {"Name": name, "DatabaseName": database, "Parameters": parameters}


@contextmanager
def played() -> Iterator[Played]:
    """LocalStack with both engines, bootstrapped for CDK; ends all runs at last."""
    engines = Played()
    engines.glue_document = engines.launch_document

    def events(stop: threading.Event) -> None:
        while not stop.wait(POLL_SECONDS):
            engines.send_ends()

    with beside_localstack(engines) as stack:
        shutil.rmtree(HOME, ignore_errors=True)
        HOME.mkdir(parents=True)
        account = f"aws://{localstack.ACCOUNT}/{stack.region}"
        run(["cdklocal", "bootstrap", account], HOME, stack.environment_variables())
        SandboxSpark(stack=stack, kafka="").catalog("s3://none")  # makes the catalog's own tables
        with BackgroundThread(events, "events"):
            yield engines


def verified(engines: Played, given: argparse.Namespace) -> int:
    """Run the command; print what it told, and what the engines saw."""
    assert engines.spark is not None
    stack = engines.spark.stack
    file = HOME / "small.yaml"
    file.write_text(ENVIRONMENT)
    words = ["verify", "--env", str(file), "--yes", "--json"]
    words += ["--records", str(given.records), "--rate", str(given.rate), "--kills", str(given.kills)]
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "millrace", *words, "--reshards", str(given.reshards)],
        cwd=ROOT,
        # PyIceberg's files know nothing of AWS_ENDPOINT_URL.
        env={**stack.environment_variables(), "PYICEBERG_CATALOG__LAKE__S3__ENDPOINT": stack.endpoint},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if not done.stdout:
        raise SandboxError(f"the command ended with status {done.returncode} and told nothing")
    told = json.loads(done.stdout)
    for step in told["steps"]:
        sys.stdout.write(f"{step['name']}: {step['seconds']} s\n")
    for table in told["tables"]:
        sys.stdout.write(f"{json.dumps(table)}\n")
    for kill in told["kills"]:
        sys.stdout.write(f"{json.dumps(kill)}\n")
    sys.stdout.write(f"trouble: {told['trouble']}; left: {told['remains']}\n")
    wanted, runs = (given.kills + 1) * len({table["job"] for table in told["tables"]}), len(engines.runs)
    live = sum(job.process.is_alive for job in engines.jobs.values())
    seconds = time.monotonic() - begun
    sys.stdout.write(f"status {done.returncode} after {seconds:.0f} s; {runs} runs, {live} of them live\n")
    return int(not (done.returncode == 0 and told["exact"] and runs == wanted and not live))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="python -m tests.faults.verify_simulated_account", description=__doc__
    )
    made.add_argument("--records", type=int, default=600)
    made.add_argument("--rate", type=float, default=20.0)
    made.add_argument("--kills", type=int, default=1)
    made.add_argument("--reshards", type=int, default=1)
    return made


def main(arguments: list[str] | None = None) -> int:
    """Verify, with servers of its own."""
    options = parser().parse_args(arguments)
    with played() as engines:
        return verified(engines, options)


if __name__ == "__main__":
    raise SystemExit(main())
