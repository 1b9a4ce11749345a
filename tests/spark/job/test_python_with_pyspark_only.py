"""A job runs on a Python with PySpark alone; boto3 comes from the job's archive."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import py4j
import pyspark
import pytest

from millrace.infra.launch.carried_boto3 import boto3_files_by_archive_path as carried_libraries
from millrace.infra.launch.job_assets import write_archive
from millrace.sandbox.programs import jars
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults.in_process_job import PORTION, Job
from tests.faults.moto_server import moto

ROOT = Path(__file__).parents[3]


class Landing(Job):
    """Only sends and says what its job is; a Python of its own runs it."""

    def document(self) -> dict[str, Any]:
        return self._job()


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python 3.11 without anything that is installed into it."""
    folder = tmp_path_factory.mktemp("python")
    (folder / "held").mkdir()
    for package in (pyspark, py4j):
        result = Path(str(package.__file__)).parent
        (folder / "held" / result.name).symlink_to(result)
    base: str = sys._base_executable  # type: ignore[attr-defined]  # the interpreter behind an environment's
    bare = folder / "python3.11"
    bare.write_text(f'#!/bin/sh\nexec "{base}" -S "$@"\n')
    bare.chmod(0o755)
    return bare


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(ROOT, tmp_path_factory.mktemp("archive"), carried_libraries())


@pytest.fixture
def environ(python: Path, archive: Path, tmp_path: Path) -> dict[str, str]:
    path = os.pathsep.join([str(archive), str(python.parent / "held")])
    told = {
        "PYTHONPATH": path,
        "PYSPARK_PYTHON": str(python),
        "TMPDIR": str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    return {**told, "JAVA_HOME": os.environ.get("JAVA_HOME", ""), "HOME": str(tmp_path)}


@pytest.fixture
def s3() -> Iterator[str]:
    with moto() as server:
        yield server.endpoint


LEASE = """
import importlib.util, sys
for name in ("boto3", "numpy", "pandas", "pyarrow"):
    assert importlib.util.find_spec(name) is None, f"{name} is there: this shows nothing"
import pkgutil
from millrace import etl
for each in pkgutil.walk_packages(etl.__path__, "millrace.etl."):
    if each.name not in ("millrace.etl.main", "millrace.etl.job.entry_point", "millrace.etl.engines.glue_kinesis_connector"):
        __import__(each.name)
from millrace.etl.job import lease
held = lease.lease_of_checkpoints("s3://bare/checkpoints", "run", (), print)
held.acquire()
print("held", held.loss_reason())
held.release()
from millrace.etl.services import aws_clients
print(sorted(aws_clients.make_client(name, "us-east-1", None).meta.service_model.service_name for name in sys.argv[1:]))
"""


@pytest.mark.slow
def test_every_module_and_the_lease_need_pyspark_alone(
    python: Path, environ: dict[str, str], s3: str
) -> None:
    from millrace.infra.launch.carried_boto3 import SERVICES

    client: Any = boto3.client(
        "s3", region_name="us-east-1", endpoint_url=s3, aws_access_key_id="t", aws_secret_access_key="t"
    )
    client.create_bucket(Bucket="bare")
    keys = {"AWS_ACCESS_KEY_ID": "t", "AWS_SECRET_ACCESS_KEY": "t", "AWS_REGION": "us-east-1"}
    done = subprocess.run(
        [str(python), "-c", LEASE, *SERVICES],
        env={**environ, **keys, "AWS_ENDPOINT_URL_S3": s3},
        cwd=environ["TMPDIR"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["held None", str(sorted(SERVICES))]


@pytest.mark.slow
def test_a_job_lands_records_on_pyspark_alone(
    python: Path, environ: dict[str, str], tmp_path: Path, spark: Any, broker: KafkaBroker
) -> None:
    job = Landing(spark, broker, tmp_path, 0, "land")
    job.send()
    document = tmp_path / "launch.json"
    document.write_text(json.dumps({"version": 1, "name": "bare", "settings": job.document()}))
    entry = shutil.copy(ROOT / "etl" / "main.py", tmp_path / "entry.py")
    brought = [jar for jar in jars.jar_files("sandbox") if jar.name.startswith("iceberg-")]
    brought += jars.jar_files("kafka-client")
    conf = {
        "spark.jars": ",".join(map(str, brought)),
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(tmp_path / "warehouse"),
        "spark.sql.catalog.lake.cache-enabled": "false",
    }
    options = " ".join(f"--conf {name}={value}" for name, value in conf.items())
    stderr = os.open(tmp_path / "stderr", os.O_WRONLY | os.O_CREAT)
    running = subprocess.Popen(
        [str(python), entry, "--launch-document", str(document)],
        env={**environ, "PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell"},
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        assert running.stdout is not None
        batch: dict[str, Any] = {}
        for line in running.stdout:
            told = json.loads(line) if line.startswith("{") else {}
            if told.get("event") == "batch":
                batch = told
                break
        assert batch, (tmp_path / "stderr").read_text()
        assert batch["read"] == batch["landed"] == PORTION
        running.send_signal(signal.SIGTERM)
        assert running.wait(120) == 0
    finally:
        running.kill()
        running.wait()
        running.stdout.close()
        os.close(stderr)
