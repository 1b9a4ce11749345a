"""``millrace history``: Spark's history server on this machine, over a deployed environment's event logs."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.shared.options import EnvironmentName
from millrace.config import load
from millrace.config.aws.pagination import list_all
from millrace.config.base import grouped
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment, connect_to_account
from millrace.lifecycle.aws_error_messages import translating_aws_errors

if TYPE_CHECKING:
    from millrace.sandbox.programs.history_server import HistoryServer

_EMR_FOLDER = "/sparklogs/"
"""Part of a key before the log's own name, as EMR Serverless writes it."""


def history(
    env: EnvironmentName,
    jobs: Annotated[
        int,
        typer.Option(
            "--runs",
            min=1,
            help="Number of the newest event logs of each job to copy and show.",
        ),
    ] = 10,
) -> None:
    """Run Spark's history server on this machine over the event logs of a deployed environment, until Ctrl-C.

    Copies the newest logs of each job first.

    [bold]Examples[/bold]

      millrace history --env dev
    """
    environment = load(env)
    aws = connect_to_account(environment)
    server = start_server_over_newest_logs(aws, runs=jobs)
    try:
        typer.echo(f"{server.address} (stop with Ctrl-C)")
        while server.process.is_alive:
            time.sleep(0.5)
    except KeyboardInterrupt:
        typer.echo("ended")
    finally:
        server.process.stop()


def start_server_over_newest_logs(aws: DeployedEnvironment, *, runs: int) -> HistoryServer:
    """Copy the newest event logs of each job, and start the server over them.

    Parameters
    ----------
    runs
        Number of newest logs of each job to copy.

    Raises
    ------
    SandboxError
        The server did not start.
    AwsError
        AWS refused a call.
    """
    from millrace.sandbox.programs.child_processes import RUN
    from millrace.sandbox.programs.history_server import start_history_server

    names, bucket = aws.names, aws.names.bucket("event-logs")
    folder = RUN / "history" / names.prefix
    with translating_aws_errors(f"cannot read bucket {bucket}"):
        for job, section in names.environment.jobs.items():
            copy_newest_event_logs_flat(
                aws.client("s3"), bucket, f"{section.engine}/{job}/", folder, runs=runs
            )
    return start_history_server(folder)


def copy_newest_event_logs_flat(s3: Any, bucket: str, prefix: str, folder: Path, *, runs: int) -> list[str]:
    """Copy the newest logs below a prefix into one flat folder, as the history server needs them.

    A log is one object, or a folder ``eventlog_v2_...`` of rolled files.

    Returns
    -------
    list of str
        Names of the logs, newest first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    logs = grouped(
        (name.split("/")[0], {**item, "Name": name})
        for item in list_all(s3, "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix)
        if (name := flat_log_name(item["Key"], prefix))
    )
    newest = sorted(logs, key=lambda log: max(item["LastModified"] for item in logs[log]), reverse=True)[
        :runs
    ]
    for item in (item for log in newest for item in logs[log]):
        target = folder / item["Name"]
        target.parent.mkdir(parents=True, exist_ok=True)
        s3.download_file(bucket, item["Key"], str(target))
    return newest


def flat_log_name(key: str, prefix: str) -> str:
    """Return a log's path inside the flat folder; ``''`` for an object that is no event log."""
    rest = key.removeprefix(prefix)
    if _EMR_FOLDER in f"/{rest}":
        rest = f"/{rest}".split(_EMR_FOLDER, 1)[1]
    elif rest.startswith("applications/"):
        return ""  # standard output and error of EMR Serverless drivers and executors
    parts = rest.split("/")
    return rest if rest and ".." not in parts and not rest.endswith("/") else ""
