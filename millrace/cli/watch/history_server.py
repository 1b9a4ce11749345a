"""``millrace history``: Spark's history server on this machine, over a deployed environment's event logs."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from millrace.cli.shared.options import EnvironmentName
from millrace.config import Names, load
from millrace.config.aws.pagination import list_all
from millrace.lifecycle.account.deployed_environment import connect_to_account
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
            help="Without a deployed history server: number of the newest event logs of each job to copy and show here.",
        ),
    ] = 10,
) -> None:
    """Run Spark's history server on this machine over the event logs of a deployed environment, until Ctrl-C.

    If the environment deploys a history server, reads the bucket directly, because both engines' logs are below one prefix
    there. Otherwise copies the newest logs of each job first.

    [bold]Examples[/bold]

      millrace history --env dev
    """
    environment = load(env)
    aws = connect_to_account(environment)
    server = start_history_server(aws, runs=jobs)
    try:
        typer.echo(f"{server.address} (stop with Ctrl-C)")
        while server.process.is_alive:
            time.sleep(0.5)
    except KeyboardInterrupt:
        typer.echo("ended")
    finally:
        server.process.stop()


def start_history_server(aws: Any, *, runs: int) -> HistoryServer:
    """Start the server over the bucket, or over a copy of its newest logs.

    Parameters
    ----------
    aws
        From :func:`millrace.lifecycle.account.deployed_environment.connect_to_account`.
    runs
        Number of newest logs of each job to copy.

    Raises
    ------
    SandboxError, JarError
        The server did not start.
    AwsError
        AWS refused a call.
    """
    from millrace.sandbox.programs.child_processes import RUN
    from millrace.sandbox.programs.history_server import (
        start_bucket_history_server,
        start_history_server,
    )

    names: Names = aws.names
    bucket = names.bucket("event-logs")
    if names.environment.history is not None:
        from millrace.infra.constructs.event_log_copier import FLAT_PREFIX

        return start_bucket_history_server(
            f"s3a://{bucket}/{FLAT_PREFIX}/",
            region=names.environment.region,
            credentials=_credentials_as_variables(),
            endpoint=os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL"),
        )
    folder = RUN / "history" / names.prefix
    with translating_aws_errors(f"cannot read bucket {bucket}"):
        for job, section in names.environment.jobs.items():
            copy_newest_event_logs_flat(
                aws.client("s3"), bucket, f"{section.engine}/{job}/", folder, runs=runs
            )
    return start_history_server({"spark.history.fs.logDirectory": folder.as_uri()}, {})


def copy_newest_event_logs_flat(s3: Any, bucket: str, prefix: str, folder: Path, *, runs: int) -> list[str]:
    """Copy the newest logs below a prefix into one flat folder, as the history server needs them.

    A log is one object, or a folder ``eventlog_v2_...`` of rolled files.

    Returns
    -------
    list of str
        Names of the logs, newest first.
    """
    folder.mkdir(parents=True, exist_ok=True)
    logs: dict[str, list[dict[str, Any]]] = {}
    for item in list_all(s3, "list_objects_v2", "Contents", Bucket=bucket, Prefix=prefix):
        name = flat_log_name(item["Key"], prefix)
        if name:
            logs.setdefault(name.split("/")[0], []).append({**item, "Name": name})
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


def _credentials_as_variables() -> dict[str, str]:
    """Return the caller's credentials for a program without support for profiles and single sign-on."""
    import boto3

    credentials = boto3.Session().get_credentials()
    if credentials is None:
        return {}
    frozen = credentials.get_frozen_credentials()
    named = {
        "AWS_ACCESS_KEY_ID": frozen.access_key,
        "AWS_SECRET_ACCESS_KEY": frozen.secret_key,
        "AWS_SESSION_TOKEN": frozen.token,
    }
    return {key: value for key, value in named.items() if value}
