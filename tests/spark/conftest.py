"""One local Spark session for all tests here, with an Iceberg catalog in a temporary folder."""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl import session, upkeep
from etl.tables import Table
from tests.spark.profiles import profile_named


def pytest_configure(config: pytest.Config) -> None:
    # PySpark leaves the socket of every collected result to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket.socket:ResourceWarning")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--profile", help="Spark settings of an engine, by their name in tests/spark/profiles.py"
    )


JARS = Path(__file__).parents[2] / ".millrace" / "jars"


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse: Path, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    jars = [
        *(JARS / "sandbox").glob("iceberg-spark-runtime-*.jar"),
        *(JARS / "kafka-client").glob("*.jar"),
        *(JARS / "postgresql").glob("*.jar"),
    ]
    jars += (JARS / "avro").glob("*.jar")
    assert jars, "no JVM jars: `make setup` brings them"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = (
        # Two cores, and three attempts at a task.
        SparkSession.builder.master("local[2,3]")
        .appName("tests")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "1g")
        # What a test holds of a broadcast keeps a page of memory: of 8 MiB each by default, some fifty of them at the
        # end, which with all the rest is this heap; a driver without memory ends itself in the middle of a test.
        .config("spark.buffer.pageSize", "1m")
        # One test loses files of a shuffle. In local mode Spark then takes the only executor for lost, cannot register it
        # anew (that asks a scheduler which local mode has not), and ends the JVM after sixty heartbeats: ten minutes
        # later, in the middle of another test.
        .config("spark.executor.heartbeat.maxFailures", "1000000")
        # Nothing here runs long enough to earn back what the second compiler takes: a quarter of all CPU time.
        .config(
            "spark.driver.extraJavaOptions",
            "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
            # What threads allocated is asked through an inner class.
            "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
        )
        .config("spark.ui.enabled", "false")
        # What Python workers sign requests to local servers with.
        .config("spark.executorEnv.AWS_ACCESS_KEY_ID", "test")
        .config("spark.executorEnv.AWS_SECRET_ACCESS_KEY", "test")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.extensions", "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions")
        .config("spark.sql.catalog.lake", "org.apache.iceberg.spark.SparkCatalog")
        .config("spark.sql.catalog.lake.type", "hadoop")
        .config("spark.sql.catalog.lake.warehouse", str(warehouse))
        .config("spark.sql.catalog.lake.cache-enabled", "false")
        .config("spark.sql.streaming.checkpoint.fileManagerClass", FILES)
    )
    named = request.config.getoption("--profile", default=None)
    for key, value in (profile_named(named).settings() if named else session.RUNTIME).items():
        builder = builder.config(key, value)
    running = builder.getOrCreate()
    running.sparkContext.setLogLevel("OFF")
    yield running
    running.stop()


FILES = "org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager"
_numbers = itertools.count()


@pytest.fixture
def table() -> Callable[[str], Table]:
    """Names of tables that no other test has."""
    number = next(_numbers)
    return lambda name: Table("lake", "tests", f"{name}_{number}")


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few commits have something to forget."""
    monkeypatch.setattr(upkeep, "FEWEST_SNAPSHOTS", 1)
