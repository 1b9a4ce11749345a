"""Spark's history server on this machine: over the sandbox's event logs, or a deployed environment's."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from millrace.sandbox.programs import jars
from millrace.sandbox.programs.child_processes import RUN, ChildProcess, free_port
from millrace.sandbox.programs.run_launch_document_locally import EVENT_LOGS
from millrace.sandbox.programs.toolchain import java_home, local_server_answers, program_variables, spark_home


@dataclass(frozen=True)
class HistoryServer:
    """A running history server; ``address`` is its URL for a browser."""

    address: str
    process: ChildProcess


def start_sandbox_history_server() -> str:
    """Start a history server over the sandbox's logs that runs until ``millrace sandbox stop``; return its address.

    Raises
    ------
    SandboxError
        It did not start.
    """
    server = start_history_server({"spark.history.fs.logDirectory": EVENT_LOGS.as_uri()}, {})
    server.process.leave_running()
    return server.address


def start_bucket_history_server(
    url: str, *, region: str, credentials: Mapping[str, str], endpoint: str | None
) -> HistoryServer:
    """Start a history server over a deployed environment's event logs.

    Parameters
    ----------
    url
        ``s3a://bucket/prefix/``, the flat prefix that holds the logs of both engines.
    credentials
        Environment variables ``AWS_ACCESS_KEY_ID`` and so on.
    endpoint
        An endpoint instead of the region's own.

    Raises
    ------
    SandboxError
        It did not start.
    JarError
        The jars that read S3 are missing.
    """
    s3a = "spark.hadoop.fs.s3a."
    settings = {
        "spark.history.fs.logDirectory": url,
        f"{s3a}endpoint.region": region,
        f"{s3a}aws.credentials.provider": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
        f"{s3a}bucket.probe": "0",
    }
    if "AWS_SESSION_TOKEN" in credentials:
        # Credentials of a sign-in expire; the logs that were read before are kept on disk.
        settings["spark.history.store.path"] = str(RUN / "history-store")
    if endpoint:
        settings |= {
            f"{s3a}endpoint": endpoint,
            f"{s3a}path.style.access": "true",
            f"{s3a}connection.ssl.enabled": str(endpoint.startswith("https")).lower(),
        }
    return start_history_server(settings, credentials, jars.jar_files("sandbox"))


def start_history_server(
    settings: Mapping[str, str], environment: Mapping[str, str], libraries: Sequence[Path] = ()
) -> HistoryServer:
    """Start a history server on a free port of 127.0.0.1.

    Raises
    ------
    SandboxError
        It did not start.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    RUN.mkdir(parents=True, exist_ok=True)
    properties = RUN / f"history-{port}.properties"
    lines = {**settings, "spark.history.ui.port": str(port)}
    properties.write_text("".join(f"{key} {value}\n" for key, value in lines.items()))
    process = ChildProcess.start(
        "history-server",
        [
            java_home() / "bin" / "java",
            "-Xmx512m",
            "-cp",
            os.pathsep.join([f"{spark_home() / 'jars'}/*", *map(str, libraries)]),
            "org.apache.spark.deploy.history.HistoryServer",
            "--properties-file",
            properties,
        ],
        environment={**program_variables(), **environment},
        log=RUN / "history.log",
    )
    process.wait_until(
        lambda: local_server_answers(f"{address}/api/v1/applications"), seconds=60, what="answering"
    )
    return HistoryServer(address, process)
