"""One local Spark session for all tests here, with an Iceberg catalog in a temporary folder."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.maintenance import table_maintenance
from millrace.etl.record.tables import Table
from millrace.etl.services import jvm_name_cache
from millrace.sandbox.programs import jars, kafka_broker, open_spark_session
from millrace.sandbox.programs.start_spark_submit import KINESIS_READER
from tests import opensearch, secured_kafka
from tests.spark.engine_sessions import profile_named


def pytest_configure(config: pytest.Config) -> None:
    # PySpark leaves the socket of every collected result to the garbage collector.
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket.socket:ResourceWarning")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--profile", help="Spark settings of an engine, by their name in tests/spark/engine_sessions.py"
    )


@pytest.fixture(scope="session")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("warehouse")


@pytest.fixture(scope="session")
def spark(warehouse: Path, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    # Those of the Spark line that this interpreter has; no Kinesis source is built for Scala 2.13.
    brought = [jar for name in ("kafka-client", "postgresql", "avro") for jar in jars.jar_files(name)]
    brought += [
        jar for jar in jars.jar_files("sandbox") if jar.name.startswith(("iceberg-", "spark-sql-kinesis_"))
    ]
    settings = {
        # Two cores, and three attempts at a task.
        "spark.master": "local[2,3]",
        # As every job that is deployed.
        "spark.scheduler.mode": "FAIR",
        "spark.driver.memory": "1g",
        # What a test holds of a broadcast keeps a page of memory: of 8 MiB each by default, some fifty of them at the
        # end, which with all the rest is this heap; a driver without memory ends itself in the middle of a test.
        "spark.buffer.pageSize": "1m",
        # One test loses files of a shuffle. In local mode Spark then takes the only executor for lost, cannot register it
        # again (that asks a scheduler which local mode has not), and ends the JVM after sixty heartbeats: ten minutes
        # later, in the middle of another test.
        "spark.executor.heartbeat.maxFailures": "1000000",
        # Nothing here runs long enough to earn back what the second compiler takes: a quarter of all CPU time.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseSerialGC "
        # What threads allocated is asked through an inner class.
        "--add-opens=jdk.management/com.sun.management.internal=ALL-UNNAMED",
        "spark.sql.codegen.cache.maxEntries": "5000",
        "spark.python.daemon.module": "tests.spark.python_worker_daemon",
    }
    named = request.config.getoption("--profile", default=None)
    settings |= profile_named(named).settings() if named else {}
    with ExitStack() as ending:
        with pytest.MonkeyPatch.context() as patch:
            # Of the JVM's Python workers: what they sign requests to local servers with, and where data sources are.
            for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
                patch.setenv(name, "test")
            for folder in (Path(__file__).parents[2], KINESIS_READER):
                patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
            running = ending.enter_context(
                open_spark_session.running_spark_session(brought, settings, warehouse=warehouse)
            )
        yield jvm_name_cache.session_with_cached_jvm_names(running)


@pytest.fixture(scope="session")
def broker() -> Iterator[kafka_broker.KafkaBroker]:
    """One broker for all tests here, whose topics each have names of their own."""
    with kafka_broker.running_broker() as running:
        yield running


@pytest.fixture(scope="session")
def guarded_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[secured_kafka.Guarded]:
    """One that asks who comes; whoever changes its password puts the old one back."""
    with secured_kafka.running(tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture(scope="session")
def domain() -> Iterator[opensearch.OpenSearch]:
    """One OpenSearch for all tests here, whose indexes each have names of their own."""
    with pytest.MonkeyPatch.context() as patch, opensearch.running() as running:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        yield running


_numbers = itertools.count()


@pytest.fixture
def table() -> Callable[[str], Table]:
    """Names of tables that no other test has."""
    number = next(_numbers)
    return lambda name: Table("lake", "tests", f"{name}_{number}")


REGIMES = {"small": ("10485760", "2", "false"), "large": ("-1", "4", "false")}
"""Broadcast threshold, shuffle partitions, adaptive execution (off in a stream's batches): what is known of a batch is
broadcast, or sorted and merged."""


@pytest.fixture(params=["small", pytest.param("large", marks=pytest.mark.slow)])
def regime(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[str]:
    names = (
        "spark.sql.autoBroadcastJoinThreshold",
        "spark.sql.shuffle.partitions",
        "spark.sql.adaptive.enabled",
    )
    before = {name: spark.conf.get(name) for name in names}
    for name, value in zip(names, REGIMES[request.param], strict=True):
        spark.conf.set(name, value)
    yield request.param
    for name, old in before.items():
        assert old is not None
        spark.conf.set(name, old)


@pytest.fixture
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables of a few commits have something to forget."""
    monkeypatch.setattr(table_maintenance, "FEWEST_SNAPSHOTS", 1)
