"""The local history server over copied logs, with the log of a real Spark run."""

from __future__ import annotations

import json
import shutil
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from millrace.cli.watch.history_server import copy_newest_event_logs_flat
from millrace.sandbox.programs.history_server import HistoryServer, start_history_server
from tests.integration.lifecycle.conftest import Machines

pytestmark = pytest.mark.slow

RUN = "local-1795242547867"
"""A run of the example, whose log the advisor's tests read as well."""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = Path(__file__).parents[2] / "unit" / "advisor" / "data" / "flights-3.5.zstd"
    return Path(shutil.copy(kept, tmp_path_factory.mktemp("event-logs") / f"{RUN}.zstd"))


def applications(server: HistoryServer) -> list[dict[str, Any]]:
    with urllib.request.urlopen(f"{server.address}/api/v1/applications", timeout=10) as answer:
        return list(json.loads(answer.read()))


def test_the_newest_logs_are_copied(machines: Machines, log: Path, tmp_path: Path) -> None:
    s3 = machines.stack.client("s3")
    s3.create_bucket(Bucket="history-two-engines")
    for key in (
        "glue/clicks/spark-old",
        f"glue/clicks/{log.name}",
        "emr/flights/applications/a/jobs/r/sparklogs/eventlog_v2_r/events_1_r.zstd",
        "emr/flights/applications/a/jobs/r/SPARK_DRIVER/stdout.gz",
    ):
        s3.upload_file(str(log), "history-two-engines", key)
    s3.upload_file(str(log), "history-two-engines", f"glue/clicks/{log.name}")
    assert copy_newest_event_logs_flat(s3, "history-two-engines", "glue/clicks/", tmp_path, runs=1) == [
        log.name
    ]
    assert copy_newest_event_logs_flat(
        s3, "history-two-engines", "emr/flights/", tmp_path / "emr", runs=5
    ) == ["eventlog_v2_r"]
    assert (tmp_path / "emr" / "eventlog_v2_r" / "events_1_r.zstd").exists()
    server = start_history_server(tmp_path)
    try:
        assert [one["name"] for one in applications(server)] == ["main.py"]
    finally:
        server.process.stop()
