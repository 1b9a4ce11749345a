"""Spark's history server on this machine: over the sandbox's event logs, or copies of a deployed environment's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

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
    server = start_history_server(EVENT_LOGS)
    server.process.leave_running()
    return server.address


def start_history_server(logs: Path) -> HistoryServer:
    """Start a history server over a folder of event logs, on a free port of 127.0.0.1.

    Raises
    ------
    SandboxError
        It did not start.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    RUN.mkdir(parents=True, exist_ok=True)
    properties = RUN / f"history-{port}.properties"
    properties.write_text(f"spark.history.fs.logDirectory {logs.as_uri()}\nspark.history.ui.port {port}\n")
    process = ChildProcess.start(
        "history-server",
        [
            java_home() / "bin" / "java",
            "-Xmx512m",
            "-cp",
            f"{spark_home() / 'jars'}/*",
            "org.apache.spark.deploy.history.HistoryServer",
            "--properties-file",
            properties,
        ],
        environment=program_variables(),
        log=RUN / "history.log",
    )
    process.wait_until(
        lambda: local_server_answers(f"{address}/api/v1/applications"), seconds=60, what="answering"
    )
    return HistoryServer(address, process)
