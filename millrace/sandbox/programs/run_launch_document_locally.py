"""Local Spark instead of Glue and EMR Serverless: it runs a job from its launch document.

The sandbox replaces what the engine provides (S3 access, Iceberg, a Kinesis source, a
catalog); everything else of the document is used unchanged. The engine's own Spark settings come before the document's
(``engine_settings.yaml``, with its date and sources).
"""

from __future__ import annotations

import json
import re
import shutil
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import date
from functools import cache
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlparse

from pydantic import Field
from pyiceberg.catalog.sql import SqlCatalog
from ruamel.yaml import YAML

from millrace.config.aws.resource_names import Names
from millrace.config.base import Model
from millrace.config.engines import KINDS
from millrace.config.engines.glue import glue_tasks_per_worker
from millrace.config.engines.versions import spark_line_of
from millrace.lifecycle.account.deployed_environment import (
    LaunchDocument,
    read_launch_document,
    split_s3_url,
)
from millrace.sandbox.programs import jars, start_spark_submit
from millrace.sandbox.programs.child_processes import RUN, ChildProcess
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.toolchain import java_home


class EngineDefault(Model):
    """A value that an engine sets instead of Spark's default."""

    value: str
    source: str
    confirmed: bool = True


class SparkSetting(Model):
    """One Spark setting.

    Attributes
    ----------
    effect
        Effect on a streaming job.
    default
        Spark's own, by line: ``4`` means all of 4, ``4.1`` only that one; none where the line does not have the setting.
    engines
        Values by engine, for all its versions.
    """

    effect: str
    default: dict[str, str]
    engines: dict[Literal["glue", "emr"], EngineDefault] = Field(default_factory=dict)

    def value_on_engine(self, engine: str, spark: str) -> str | None:
        """Return its value on an engine with a version of Spark; None where it is not set."""
        result = next((value for name, value in self.engines.items() if name == engine), None)
        lines = [line for line in self.default if f"{spark}.".startswith(f"{line}.")]
        return result.value if result else self.default[max(lines, key=len)] if lines else None


class EngineSettingsTable(Model):
    """All settings, with the date on which they were read."""

    read: date
    source: str
    settings: dict[str, SparkSetting]


@cache
def read_settings_table() -> EngineSettingsTable:
    """Return the table of ``engine_settings.yaml``."""
    text = (resources.files("millrace.sandbox") / "engine_settings.yaml").read_text(encoding="utf-8")
    return EngineSettingsTable.model_validate(YAML(typ="safe", pure=True).load(text))


def engine_default_settings(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the Spark settings with which a job starts on its engine.

    Parameters
    ----------
    document
        The job's launch document: its ``engine``, ``engine_version`` and ``workers`` are read.

    Returns
    -------
    dict
        Setting to value, without the document's own.
    """
    engine, version, workers = document["engine"], document["engine_version"], document["workers"]
    tasks = workers["vcpu"] if engine == "emr" else glue_tasks_per_worker(version, workers["type"])
    slots = (workers["max"] - 1) * int(tasks)  # one worker is the driver
    values = {
        name: row.value_on_engine(engine, KINDS[engine].spark_of_version(version))
        for name, row in read_settings_table().settings.items()
    }
    return {name: value.format(slots=slots) for name, value in values.items() if value is not None}


_CATALOG_DATABASE = RUN / "catalog.db"

_SIGNED_FOR = "us-east-1"
"""Region for which the Kinesis connector's AWS SDK signs requests to an unknown host."""

EVENT_LOGS = RUN / "event-logs"
"""Event logs of all ended runs in one flat folder, as the history server needs them.
A run writes to disk, and its logs are moved afterwards: S3 shows an object only when
it is closed, which a killed driver never does.
"""

METRICS_FILE = "metrics.jsonl"
"""File beside the log of a run (``docs/metrics.md``, JSON lines)."""

REPLACED: Mapping[str, str] = {
    "spark.sql.catalog.": "tables are in a catalog of the sandbox and on its own S3",
    "spark.hadoop.": "S3 is LocalStack's",
    "spark.jars": "what an engine ships is a file here",
    "spark.eventLog.": "a driver that is killed leaves its log on disk (see EVENT_LOGS)",
    "spark.master": "one process is driver and executor",
    "spark.driver.": "one process is driver and executor",
    "spark.executor.": "one process is driver and executor",
    "spark.default.parallelism": "one process has its own number of cores",
    "spark.dynamicAllocation.": "one process neither grows nor shrinks",
    "spark.emr-serverless.": "no workers are asked for",
    "spark.ssl.internode.": "one process is driver and executor",
    "spark.pyspark.": "the interpreter is this machine's",
    "spark.executorEnv.PYSPARK_PYTHON": "the interpreter is this machine's",
    "spark.ui.": "the history server shows it",
    "spark.log.level": "the core's lines are read, not Spark's",
    "spark.app.name": "says which job it is",
}
"""Settings in which a local run differs from its engine's, by their prefix, each with the reason.
All others are the engine's (:mod:`millrace.sandbox.programs.run_launch_document_locally`) and the launch document's.
"""


def local_catalog_settings(name: str, database: Path, warehouse: str) -> dict[str, str]:
    """Return the Spark settings of an Iceberg catalog in an SQLite file, whose tables PyIceberg creates.

    Parameters
    ----------
    name
        Name of the catalog in Spark.
    warehouse
        URL below which the tables lie.
    """
    prefix = f"spark.sql.catalog.{name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{database}?busy_timeout=30000&journal_mode=WAL",
        f"{prefix}.jdbc.schema-version": "V1",
        # Its check for the catalog's own tables never closes the cursor, which locks others out; PyIceberg creates them.
        f"{prefix}.jdbc.init-catalog-tables": "false",
        f"{prefix}.warehouse": warehouse,
        f"{prefix}.cache-enabled": "false",
    }


@dataclass(frozen=True)
class SandboxSpark:
    """Local Spark with its S3, its Kinesis and its Kafka.

    Attributes
    ----------
    kafka
        Bootstrap servers of the one broker that replaces every cluster.
    """

    stack: LocalStack
    kafka: str

    def job_spark_settings(self, document: Mapping[str, Any]) -> dict[str, str]:
        """Return a job's local Spark settings: its engine's and the document's, without those of :data:`REPLACED`."""
        result = self.without_replaced_settings({**engine_default_settings(document), **document["spark"]})
        name = document["settings"]["catalog"]
        warehouse = document["spark"][f"spark.sql.catalog.{name}.warehouse"]
        return {
            **result,
            "spark.app.name": f"{document['environment']}/{document['job']}",
            **self.s3_file_system_settings(),
            **local_catalog_settings(name, _CATALOG_DATABASE, warehouse),
            **start_spark_submit.LOCAL,
            # A local master does not read spark.task.maxFailures.
            "spark.master": f"local[2,{result['spark.task.maxFailures']}]",
            "spark.eventLog.enabled": "true",
            # Spark 4 rolls by default, into a folder; the logs that are copied here are single files.
            "spark.eventLog.rolling.enabled": "false",
        }

    @staticmethod
    def without_replaced_settings(settings: Mapping[str, str]) -> dict[str, str]:
        """Return settings without those that :data:`REPLACED` names."""
        return {k: v for k, v in settings.items() if not k.startswith(tuple(REPLACED))}

    def s3_file_system_settings(self) -> dict[str, str]:
        """Return the Spark settings with which ``s3://`` and ``s3a://`` are the stack's S3."""
        s3a = "spark.hadoop.fs.s3a."
        return {
            "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
            "spark.hadoop.fs.AbstractFileSystem.s3a.impl": "org.apache.hadoop.fs.s3a.S3A",
            f"{s3a}endpoint": self.stack.endpoint,
            f"{s3a}endpoint.region": self.stack.region,
            f"{s3a}path.style.access": "true",
            f"{s3a}connection.ssl.enabled": "false",
            f"{s3a}aws.credentials.provider": "com.amazonaws.auth.EnvironmentVariableCredentialsProvider",
            # Every probe for a bucket is a call; the deployment has created the buckets.
            f"{s3a}bucket.probe": "0",
            f"{s3a}change.detection.mode": "none",
        }

    def launch_document(self, names: Names, job: str) -> LaunchDocument:
        """Read a job's launch document from the deployed stack."""
        return read_launch_document(self.stack.client("cloudformation"), self.stack.client("s3"), names, job)

    def submit(
        self, launch: LaunchDocument, run: str, arguments: Sequence[str] = (), *, program: Path | None = None
    ) -> LocalJob:
        """Start a job from its launch document with ``spark-submit``, on the Spark line of its engine's version.

        Parameters
        ----------
        run
            Name of this run; its files and log are kept under it.
        arguments
            Further arguments of the entry script, such as ``--replay QUERY``.
        program
            Program that runs in the place of the entry script.

        Raises
        ------
        JarError, ToolchainError
            Its line is not installed; the message has the command that installs it.
        """
        document = launch.content
        line = spark_line_of(KINDS[document["engine"]].spark_of_version(document["engine_version"]))
        home = RUN / "jobs" / run
        shutil.rmtree(
            home, ignore_errors=True
        )  # files of an earlier run with that name must not count for this one
        home.mkdir(parents=True)
        event_logs = home / "event-logs"
        event_logs.mkdir(exist_ok=True)
        entry = home / "main.py"
        if program is None:
            self._download_from_s3(document["entry_script"], entry)
        else:
            shutil.copy(program, entry)
        archive = self._download_from_s3(document["archive"], home / document["archive"].rpartition("/")[2])
        own = [self._download_from_s3(url, home / url.rpartition("/")[2]) for url in document["jars"]]
        shipped = ("sandbox", "kafka-client", "postgresql") if document["engine"] == "glue" else ("sandbox",)
        engine = [path for jar_set in shipped for path in jars.jar_files(jar_set, line)]
        settings = {
            **self.job_spark_settings(document),
            "spark.jars": ",".join(str(path) for path in [*engine, *own]),
            "spark.eventLog.dir": event_logs.as_uri(),
        }
        if self.stack.region != _SIGNED_FOR:
            settings["spark.driver.extraClassPath"] = str(
                _write_kinesis_signing_config_folder(home / "conf", self.stack)
            )
        bindings = (("--bind", each) for each in self._core_bind_options(document["settings"], home))
        own_arguments = ("--launch-document", launch.url, "--engine", "sandbox")
        tail = [*document["arguments"], *own_arguments, *chain.from_iterable(bindings), *arguments]
        environment = {
            **self.stack.environment_variables(),
            "AWS_CBOR_DISABLE": "true",
            "JAVA_HOME": str(java_home()),
        }
        process = start_spark_submit.start_driver(
            f"job-{run}", home, entry, settings, tail, environment=environment, archive=archive, line=line
        )
        return LocalJob(process, event_logs)

    def _core_bind_options(self, settings: Mapping[str, Any], home: Path) -> Iterator[str]:
        """Yield the core's ``--bind`` arguments: values that are known only where a job runs."""
        yield f"metrics.file={home / METRICS_FILE}"
        for service in ("dynamodb", "kinesis", "secretsmanager"):
            yield f"{service}.endpoint={self.stack.endpoint}"
        # The Kinesis connector opens its checkpoint with an API that has S3A under that name only.
        yield f"checkpoints={settings['checkpoints'].replace('s3://', 's3a://', 1)}"
        for connection in settings["connections"]:
            yield f"kafka.{connection}.bootstrap={self.kafka}"
            yield f"kafka.{connection}.authentication=none"

    def _download_from_s3(self, url: str, target: Path) -> Path:
        bucket, key = split_s3_url(url)
        self.stack.client("s3").download_file(bucket, key, str(target))
        return target

    def catalog(self, warehouse: str) -> SqlCatalog:
        """Open the local catalog without Spark: a second, independent reader of the tables."""
        _CATALOG_DATABASE.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(_CATALOG_DATABASE)) as database:
            # Readers and the writer never wait for each other then; the file keeps this mode.
            database.execute("PRAGMA journal_mode=WAL")
        return SqlCatalog(
            "lake",
            uri=f"sqlite:///{_CATALOG_DATABASE}?timeout=30",
            warehouse=warehouse,
            **{
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
                "s3.endpoint": self.stack.endpoint,
                "s3.region": self.stack.region,
                "s3.access-key-id": "test",
                "s3.secret-access-key": "test",
            },
        )


def _write_kinesis_signing_config_folder(folder: Path, stack: LocalStack) -> Path:
    """Write and return a folder for the class path with which the Kinesis connector's AWS SDK signs for LocalStack's region.

    The SDK takes the region from the host's name, and us-east-1 for an unknown one; LocalStack then looks for the
    stream there. Its own override file (``InternalConfig``, AWS SDK for Java 1.x) maps hosts to regions.
    """
    folder.mkdir()
    host = re.escape(urlparse(stack.endpoint).hostname or "localhost")
    mapping = {"hostRegexToRegionMappings": [{"hostNameRegex": host, "regionName": stack.region}]}
    (folder / "awssdk_config_override.json").write_text(json.dumps(mapping))
    return folder


def copy_then_move_event_logs(stack: LocalStack, job: LocalJob, url: str) -> None:
    """Copy a run's event logs to the place of the deployed job's logs, and move them to the history server's folder.

    Parameters
    ----------
    url
        The launch document's ``event_logs``.
    """
    bucket, prefix = split_s3_url(url)
    EVENT_LOGS.mkdir(parents=True, exist_ok=True)
    for path in sorted(job.event_logs.iterdir()):
        stack.client("s3").upload_file(str(path), bucket, f"{prefix.rstrip('/')}/{path.name}")
        path.rename(EVENT_LOGS / path.name)


def delete_local_catalog() -> None:
    """Delete the local catalog, as a new deployment starts without tables."""
    for path in _CATALOG_DATABASE.parent.glob(f"{_CATALOG_DATABASE.name}*"):
        path.unlink()


@dataclass
class LocalJob:
    """A run of a job; it writes its event logs into a folder of its own, and has the times of its start and end."""

    process: ChildProcess
    event_logs: Path
    began: float = field(default_factory=time.monotonic)
    ended: float | None = None

    @property
    def seconds(self) -> float:
        """Seconds that it ran, so far."""
        return (time.monotonic() if self.ended is None else self.ended) - self.began

    def kill(self) -> None:
        """Kill it (kill -9)."""
        self.process.kill()
        self.ended = time.monotonic()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the JSON lines that the core has printed so far (``docs/launch-document.md``)."""
        return start_spark_submit.read_driver_events(self.process)
