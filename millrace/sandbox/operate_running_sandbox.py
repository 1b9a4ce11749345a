"""Sandbox that was left running: its place, and runs of its jobs by hand."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError

from millrace.config.model import Environment
from millrace.lifecycle.account.catalog_columns import ddl_fields
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, connect_to_account
from millrace.lifecycle.audits.query_audit import AuditedDeployment, deployment_on_aws
from millrace.lifecycle.jobs.logs import LogLine
from millrace.sandbox.localstack_deployment import Sandbox, make_stand_in
from millrace.sandbox.programs.child_processes import RUN, SandboxError
from millrace.sandbox.programs.localstack import LocalStack, localstack_answers
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark

_RECORD = RUN / "kept.json"
NO_JOB_RUNS = (
    "no job runs in a sandbox that was kept, so records sent since then have not landed; `millrace sandbox run --env {} "
    "--from FILE --keep` sends records, good and bad, while the jobs run"
)
_MOST_BYTES = 16 * 1024**2
"""Bytes of a run's log that are read, at its end."""


def save_endpoints(sandbox: Sandbox) -> None:
    """Write the endpoints of a sandbox's servers to a file, for later commands."""
    record = {
        "environment": sandbox.environment.name,
        "localstack": sandbox.stack.endpoint,
        "region": sandbox.stack.region,
        "kafka": sandbox.kafka.bootstrap,
    }
    _RECORD.write_text(json.dumps(record))


def spark_of_running_sandbox(environment: Environment) -> SandboxSpark:
    """Return local Spark in the running sandbox of an environment.

    Raises
    ------
    SandboxError
        There is none.
    """
    record = json.loads(_RECORD.read_text()) if _RECORD.exists() else {}
    if record.get("environment") != environment.name or not localstack_answers(record["localstack"]):
        raise SandboxError(
            f"environment {environment.name} is not running in the sandbox; start it with `millrace sandbox "
            f"run --env {environment.name} --keep`"
        )
    stack = LocalStack(endpoint=record["localstack"], region=record["region"], process=None)
    return SandboxSpark(stack=stack, kafka=record["kafka"])


def running_sandbox_deployment(environment: Environment) -> AuditedDeployment | None:
    """Return the place of an environment that was left running; None where there is none."""
    try:
        return sandbox_deployment(spark_of_running_sandbox(environment), environment)
    except SandboxError:
        return None


def sandbox_deployment(spark: SandboxSpark, environment: Environment) -> AuditedDeployment:
    """Return the place of an environment in a sandbox; there CloudWatch does not count its streams."""
    names = make_stand_in(environment).names
    return AuditedDeployment(
        names,
        spark.stack.client,
        lambda: spark.catalog(names.warehouse_url),
        lambda _: {"bootstrap.servers": spark.kafka},
        counts=False,
    )


def sandbox_or_account_with_connection(
    environment: Environment,
) -> tuple[AuditedDeployment, DeployedEnvironment | None]:
    """Return the running sandbox of an environment, or its account with the connection if there is none."""
    if (sandbox := running_sandbox_deployment(environment)) is not None:
        return sandbox, None
    aws = connect_to_account(environment)
    return deployment_on_aws(aws), aws


def read_log_lines(job: str, since: datetime | None = None) -> list[LogLine]:
    """Return the log lines of a job's runs, each run's lines in order; the runs are ordered by their last write.

    A line has the time of the run's last one, since most have none.

    Parameters
    ----------
    since
        Runs without lines since then are left out.
    """
    own = re.compile(
        rf"{re.escape(job)}-(\d{{1,3}}|[a-z]+-\d{{15,}})"
    )  # the names by the drill and by :func:`run_job_once_locally`
    logs = [path for path in (RUN / "jobs").glob("*/driver.log") if own.fullmatch(path.parent.name)]
    lines: list[LogLine] = []
    for written, path in sorted((path.stat().st_mtime, path) for path in logs):
        at = datetime.fromtimestamp(written, UTC)
        if since is not None and at < since:
            continue
        with path.open("rb") as file:
            begin = file.seek(max(0, path.stat().st_size - _MOST_BYTES))
            if begin:
                begin += len(file.readline())  # whose start is cut off
            for each in file:
                text = each.decode(errors="replace").rstrip("\r\n")
                lines.append(LogLine(at, str(path), text, str(begin)))
                begin += len(each)
    return lines


def ddl_columns_of_local_tables(catalog: Catalog, tables: Iterable[str]) -> dict[str, str]:
    """Return the columns of the existing tables, as :func:`millrace.lifecycle.account.catalog_columns.ddl_columns_by_table` does."""
    result = {}
    for name in dict.fromkeys(tables):
        with suppress(NoSuchTableError):
            result[name] = ddl_fields(catalog.load_table(name).schema().model_dump()["fields"])
    return result


def replay_dead_letters_locally(
    spark: SandboxSpark, environment: Environment, job: str, query: str, arguments: Sequence[str]
) -> dict[str, Any]:
    """Replay dead letters of a query.

    Parameters
    ----------
    arguments
        ``--id`` and ``--corrected`` of the entry script (``docs/launch-document.md``).

    Returns
    -------
    dict
        The core's event ``replayed``.

    Raises
    ------
    SandboxError
        The run failed.
    """
    return run_job_once_locally(
        spark, environment, job, "replay", ["--replay", query, *arguments], "replayed"
    )


def run_job_once_locally(
    spark: SandboxSpark,
    environment: Environment,
    job: str,
    what: str,
    arguments: Sequence[str],
    event: str,
    program: Path | None = None,
) -> dict[str, Any]:
    """Run a deployed job's entry script, or another program, for a task that ends by itself.

    Parameters
    ----------
    what
        Name of the task, for the run's folder.
    arguments
        Arguments of the entry script.
    event
        Event of the core at the end.

    Returns
    -------
    dict
        That event.

    Raises
    ------
    SandboxError
        The run ended without it.
    """
    document = spark.launch_document(make_stand_in(environment).names, job)
    run = spark.submit(document, f"{job}-{what}-{time.time_ns()}", arguments, program=program)
    with run.process:
        status = run.process.popen.wait()
    if not (said := [each for each in run.events() if each["event"] == event]):
        raise SandboxError(
            f"{what} ended with status {status} and without a result:\n{run.process.last_log_lines()}"
        )
    return said[-1]


@contextmanager
def run_jobs_during_block(environment: Environment, jobs: Sequence[str]) -> Iterator[None]:
    """Run deployed jobs during a block, as a sandbox that was left running runs none.

    Raises
    ------
    SandboxError
        The environment is not in the sandbox.
    """
    spark = spark_of_running_sandbox(environment)
    names = make_stand_in(environment).names
    with ExitStack() as ending:
        for job in jobs:
            run = spark.submit(spark.launch_document(names, job), f"{job}-run-{time.time_ns()}")
            ending.callback(run.process.stop, 60)
        yield
