"""Spark's history server over the sandbox's event logs."""

from __future__ import annotations

import urllib.error
import urllib.request

from millrace.sandbox.process import RUN, Process, free_port
from millrace.sandbox.spark import EVENT_LOGS
from millrace.sandbox.toolchain import java_home, program_environment, spark_home


def history_server() -> str:
    """Start a history server that runs until ``millrace sandbox stop``; give its address.

    Raises
    ------
    SandboxError
        It did not start.
    """
    port = free_port()
    address = f"http://127.0.0.1:{port}"
    RUN.mkdir(parents=True, exist_ok=True)
    settings = RUN / "history.properties"
    settings.write_text(
        f"spark.history.fs.logDirectory {EVENT_LOGS.as_uri()}\nspark.history.ui.port {port}\n"
    )
    process = Process.start(
        "history-server",
        [
            java_home() / "bin" / "java",
            "-Xmx512m",
            "-cp",
            f"{spark_home() / 'jars'}/*",
            "org.apache.spark.deploy.history.HistoryServer",
            "--properties-file",
            settings,
        ],
        environment={**program_environment(), "SPARK_LOCAL_IP": "127.0.0.1"},
        log=RUN / "history.log",
    )
    process.wait_until(lambda: _answers(address), seconds=60, what="answering")
    return address


def _answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"{address}/api/v1/applications", timeout=2) as answer:  # noqa: S310 - http, ours
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
