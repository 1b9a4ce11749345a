"""Servers of the sandbox and of the tests listen on loopback addresses only, and none is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest

from millrace.sandbox.programs import history_server, kafka_broker, localstack
from millrace.sandbox.programs.toolchain import program_variables
from tests import kinesalite, opensearch, postgres
from tests.listening_ports import listeners, tree
from tests.running_processes import still_running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="asks Linux' /proc")

PAGES = """
import sys, time
from pyspark.sql import SparkSession
builder = SparkSession.builder.master("local[1]").config("spark.driver.host", "127.0.0.1")
spark = builder.config("spark.ui.port", "0").config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
assert spark.range(3).count() == 3 and spark.sparkContext.uiWebUrl
print("all is there", flush=True)
time.sleep(600)
"""


def until(holds: Callable[[], bool], seconds: float = 240) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(0.1)


@pytest.mark.slow
def test_every_server_listens_on_this_machine_only(tmp_path, monkeypatch):
    # Another sandbox may be at work in the usual folder.
    for module in (history_server, kafka_broker, kinesalite, localstack, opensearch):
        monkeypatch.setattr(module, "RUN", tmp_path)
    with ExitStack() as stack:
        cloud = stack.enter_context(localstack.running_localstack())
        cloud.client("kinesis").create_stream(StreamName="s", ShardCount=1)
        cloud.client("s3").create_bucket(Bucket="bucket")
        stack.enter_context(kafka_broker.running_broker())
        stack.enter_context(kinesalite.running())
        stack.enter_context(postgres.running())
        stack.enter_context(opensearch.running())
        logs = tmp_path / "event-logs"
        logs.mkdir()
        server = history_server.start_history_server(logs)
        stack.callback(server.process.stop)
        log = (tmp_path / "pages.log").open("wb")
        stack.callback(log.close)
        pages = subprocess.Popen(
            [sys.executable, "-c", PAGES], env=program_variables(), stdout=log, stderr=log, cwd=Path.cwd()
        )
        stack.callback(pages.wait)
        stack.callback(pages.kill)
        until(lambda: b"all is there" in Path(log.name).read_bytes() or pages.poll() is not None)
        assert pages.poll() is None, Path(log.name).read_text()
        result = listeners(tree())
        assert len({each.port for each in result if each.kind.startswith("tcp")}) >= 13
        assert not [f"{each.address}:{each.port} {each.program}" for each in result if not each.local]


SERVERS = """
import time
from millrace.sandbox.programs import child_processes, kafka_broker, localstack
from tests import postgres
with child_processes.locked_sandbox_without_left_programs(), localstack.running_localstack() as cloud, kafka_broker.running_broker(), postgres.running():
    cloud.client("kinesis").create_stream(StreamName="s", ShardCount=1)
    print("all is there", flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
def test_servers_end_with_a_program_that_is_killed(tmp_path):
    log = (tmp_path / "log").open("wb")
    with log:
        program = subprocess.Popen(
            [sys.executable, "-c", SERVERS],
            stdout=log,
            stderr=log,
            env={**os.environ, "MILLRACE_SANDBOX": str(tmp_path / "sandbox")},
        )
    text = tmp_path / "log"
    until(lambda: "all is there" in text.read_text() or program.poll() is not None, 120)
    started = psutil.Process(program.pid).children(recursive=True)
    commands = " ".join(argument for process in started for argument in process.cmdline())
    assert all(name in commands for name in ("kinesis", "kafka.Kafka", "bin/postgres")), text.read_text()
    program.send_signal(signal.SIGKILL)
    program.wait()
    left = still_running(started, 20)
    for process in left:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    assert not [process.pid for process in left]
