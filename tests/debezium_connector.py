"""Debezium's connectors for PostgreSQL and MySQL in a real Kafka Connect (standalone) on 127.0.0.1."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millrace.sandbox.programs import jars
from millrace.sandbox.programs.child_processes import ChildProcess, free_port
from millrace.sandbox.programs.toolchain import java_home, program_variables
from tests import mysql
from tests.postgres import DATABASE, PASSWORD, USER, Postgres

PREFIX = "shop"
"""Of topics: those of a table are ``PREFIX.SCHEMA.TABLE``."""

SIGNALS = "public.signals"
"""Table whose rows order an incremental snapshot."""

_POSTGRES = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.user": USER,
    "database.password": PASSWORD,
    "database.dbname": DATABASE,
    "plugin.name": "pgoutput",
    "signal.data.collection": SIGNALS,
}

_WORKER = """\
bootstrap.servers={bootstrap}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
value.converter.schemas.enable={wrapped}
offset.storage.file.filename={home}/offsets
offset.flush.interval.ms=1000
listeners=http://127.0.0.1:{port}
plugin.discovery=service_load
"""


@dataclass
class Connector:
    """A connector; ``kill`` and ``start`` as often as a test likes: it repeats what it had not noted."""

    home: Path
    bootstrap: str
    database: Postgres | mysql.MySql
    settings: dict[str, str] = field(default_factory=dict)
    wrapped: bool = False
    process: ChildProcess | None = None

    def start(self) -> None:
        """Start it; it continues behind its last noted position."""
        self.home.mkdir(parents=True, exist_ok=True)
        worker, connector = self.home / "worker.properties", self.home / "connector.json"
        port, wrapped = free_port(), str(self.wrapped).lower()
        worker.write_text(
            _WORKER.format(bootstrap=self.bootstrap, home=self.home, port=port, wrapped=wrapped)
        )
        settings = {
            "database.hostname": "127.0.0.1",
            "database.port": str(self.database.port),
            "topic.prefix": PREFIX,
            "skipped.operations": "none",
            # Of signals and changes of schemas too: a worker waits forever for a topic that is not there.
            "topic.creation.default.replication.factor": "1",
            "topic.creation.default.partitions": "3",
            **(_POSTGRES if isinstance(self.database, Postgres) else self._mysql()),
            **self.settings,
        }
        connector.write_text(json.dumps({"name": PREFIX, "config": settings}))
        jars.fetch_missing_jars_and_count(["debezium"])
        path = ":".join(map(str, jars.jar_files("debezium")))
        java: list[str | Path] = [java_home() / "bin" / "java", "-Xmx384m", "-XX:+UseSerialGC", "-cp", path]
        self.process = ChildProcess.start(
            "connect",
            [*java, "org.apache.kafka.connect.cli.ConnectStandalone", worker, connector],
            environment=program_variables(),
            log=self.home / "connect.log",
        )

    def _mysql(self) -> Mapping[str, str]:
        history = "schema.history.internal"
        return {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "database.user": mysql.USER,
            "database.password": mysql.PASSWORD,
            "database.server.id": "4711",
            "database.ssl.mode": "disabled",
            "signal.data.collection": f"{mysql.DATABASE}.signals",
            f"{history}.kafka.bootstrap.servers": self.bootstrap,
            f"{history}.kafka.topic": "schema-history",
        }

    def kill(self) -> None:
        """End it in the middle of what it does."""
        assert self.process is not None
        self.process.kill()
        self.process = None


@contextmanager
def running(connector: Connector) -> Iterator[Connector]:
    """Start a connector, and end it."""
    connector.start()
    try:
        yield connector
    finally:
        if connector.process is not None:
            connector.kill()
