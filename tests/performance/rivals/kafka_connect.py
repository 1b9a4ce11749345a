"""Iceberg's sink in Kafka Connect (standalone)."""

from __future__ import annotations

from string import Template

from millrace.sandbox.programs import jars
from millrace.sandbox.programs.child_processes import ChildProcess, free_port
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from millrace.sandbox.programs.toolchain import java_home
from tests.performance.rivals import downloads
from tests.performance.rivals.rival_interface import JOBS, Place, Rival, environment

ARTIFACTS = (
    *(
        f"org.apache.iceberg:{name}:1.12.0"
        for name in ("iceberg-kafka-connect", "iceberg-parquet", "iceberg-orc")
    ),
    "org.slf4j:slf4j-simple:2.0.17",
)
CONTROL = "control-iceberg"


class Connect(Rival):
    """Iceberg's connector, two tasks."""

    name, versions, job = "Kafka Connect", "Connect 4.3.0, Iceberg 1.12.0", "connect.properties"

    def fetch(self) -> None:
        """Fetch the connector, and Connect itself, which tests of change data use too."""
        downloads.jar_files("connect", ARTIFACTS, dependencies=True)
        jars.fetch_missing_jars_and_count(["debezium"])

    def start(self, place: Place) -> ChildProcess:
        """Start a worker with the connector."""
        values = {
            **place.told(), "port": free_port(), "milliseconds": f"{1000 * place.seconds:.0f}",
            "control": f"{CONTROL}-{place.table}",
        }  # fmt: skip
        worker, connector = place.home / "worker.properties", place.home / "connector.properties"
        parts = Template((JOBS / self.job).read_text()).substitute(values).split("# ----\n")
        worker.write_text(parts[0])
        connector.write_text(parts[1])
        library = downloads.jar_files("connect", ARTIFACTS, dependencies=True)
        connect = [
            path for path in jars.jar_files("debezium") if not path.name.startswith(("debezium", "slf4j"))
        ]
        given = {path.name for path in library}
        path = ":".join(
            map(
                str,
                [
                    *library,
                    *(p for p in connect if p.name not in given),
                    *downloads.hadoop(),
                    *downloads.sqlite(),
                ],
            )
        )
        return ChildProcess.start(
            "rival-connect",
            [java_home() / "bin" / "java", "-Xmx2g", "-cp", path,
             "org.apache.kafka.connect.cli.ConnectStandalone", worker, connector],
            environment=environment(),
            log=place.home / "connect.log",
            cwd=place.home,
        )  # fmt: skip


def create_control_topic(broker: KafkaBroker, table: str) -> None:
    """Create the topic by which the sink's tasks agree on a commit; with one broker nothing else would."""
    broker.create_topic(f"{CONTROL}-{table}", 1)
