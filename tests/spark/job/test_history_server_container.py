"""Spark's own history server, started by the container's command, over event logs in an S3 stand-in."""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from millrace.infra.stacks.history_server import S3_JARS, START
from millrace.sandbox.programs import jars
from millrace.sandbox.programs.child_processes import free_port
from millrace.sandbox.programs.toolchain import (
    exclude_local_servers_from_proxies,
    installed_spark_line,
    java_home,
    program_variables,
    spark_home,
)
from tests.faults.moto_server import moto

pytestmark = pytest.mark.skipif(
    not installed_spark_line().is_default_line, reason="the server's image has the default line's jars"
)

BUCKET, RUN = "event-logs", "app-20261123-0001"
EVENTS = (
    {"Event": "SparkListenerLogStart", "Spark Version": "3.5.7"},
    {
        "Event": "SparkListenerApplicationStart",
        "App Name": "departures",
        "App ID": RUN,
        "Timestamp": 1_700_000_000_000,
        "User": "hadoop",
    },
    {"Event": "SparkListenerApplicationEnd", "Timestamp": 1_700_000_060_000},
)
LOG = "\n".join(json.dumps(event, separators=(",", ":")) for event in EVENTS)
"""Written as Spark does: its server looks for events by the first bytes of their lines."""

PATIENCE_SECONDS = 90
"""Until the server must have answered or ended; nothing is judged by it."""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """Start an S3 with one event log; its address."""
    with moto() as server:
        client = server.client("s3")
        client.create_bucket(Bucket=BUCKET)
        client.put_object(Bucket=BUCKET, Key="spark/", Body=b"")
        client.put_object(Bucket=BUCKET, Key=f"spark/{RUN}", Body=LOG.encode())
        yield server.endpoint


def s3_jars(folder: Path, names: tuple[str, ...] = ("hadoop-aws", "aws-java-sdk-bundle")) -> Path:
    """Fill a folder with the jars for S3, and nothing else."""
    folder.mkdir(parents=True)
    for jar in jars.jar_files("sandbox"):
        if jar.name.startswith(names):
            (folder / jar.name).symlink_to(jar)
    return folder


@pytest.fixture
def served(s3: str, tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Give a function that starts the server: the answer of its REST interface, or what it wrote before it ended."""
    started: list[subprocess.Popen[bytes]] = []

    def run(command: str = START, defaults: str = "", extra: str = "") -> str:
        conf = tmp_path / "conf"
        conf.mkdir()
        (conf / "spark-defaults.conf").write_text(defaults)
        (conf / "spark-env.sh").write_text(extra)
        port = free_port()
        options = {
            "spark.history.fs.logDirectory": f"s3a://{BUCKET}/spark/",
            "spark.history.ui.port": str(port),
            "spark.hadoop.fs.s3a.endpoint": s3,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }
        log = tmp_path / "history.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                ["/bin/sh", "-c", command],
                env={
                    **program_variables(),
                    "PATH": os.environ["PATH"],
                    "JAVA_HOME": str(java_home()),
                    "SPARK_HOME": str(spark_home()),
                    "SPARK_CONF_DIR": str(conf),
                    "SPARK_DAEMON_MEMORY": "512m",
                    "SPARK_HISTORY_OPTS": " ".join(f"-D{key}={value}" for key, value in options.items()),
                    "AWS_ACCESS_KEY_ID": "k",
                    "AWS_SECRET_ACCESS_KEY": "s",
                },
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        started.append(process)
        deadline = time.monotonic() + PATIENCE_SECONDS
        while process.poll() is None and time.monotonic() < deadline:
            result = _applications(port)
            if RUN in result:
                return result
            time.sleep(0.2)
        return log.read_text()

    yield run
    for process in started:
        process.kill()
        process.wait()


def _applications(port: int) -> str:
    exclude_local_servers_from_proxies()
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/applications", timeout=5) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


@pytest.mark.slow
def test_jars_that_the_image_gives_to_drivers_reach_the_server(
    served: Callable[..., str], tmp_path: Path
) -> None:
    """AWS's image keeps its jars for S3 outside Spark's folder, named by its own defaults."""
    folder = s3_jars(tmp_path / "image")
    result = served(
        defaults=f"spark.driver.extraClassPath      /nowhere/*:{folder}/*\nspark.master  custom:x\n"
    )
    assert '"name" : "departures"' in result


@pytest.mark.slow
def test_an_environment_script_of_the_image_changes_nothing_of_that(
    served: Callable[..., str], tmp_path: Path
) -> None:
    """Variables as AWS's own script sets them; its class path for drivers names no jar that is there."""
    folder = s3_jars(tmp_path / "image")
    command = START
    for place, name in zip(S3_JARS, ("hadoop-aws-*", "aws-java-sdk-bundle-*"), strict=False):
        (jar,) = folder.glob(f"{name}.jar")
        command = command.replace(place, str(jar))
    script = "export SPARK_MASTER_PORT=7077\nexport SPARK_DIST_CLASSPATH=/nowhere/*\n"
    result = served(command, "spark.driver.extraClassPath /nowhere/*\n", script)
    assert '"name" : "departures"' in result


@pytest.mark.slow
def test_without_the_jars_the_server_ends_and_says_so(served: Callable[..., str]) -> None:
    assert "S3AFileSystem not found" in served()
