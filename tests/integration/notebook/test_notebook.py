"""A generated notebook's cells run as they are on local Spark, against a real Kafka broker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Producer

from millrace.sandbox.programs import jars, kafka_broker
from millrace.sandbox.programs.toolchain import program_variables

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]

LANDED = """
from pyspark.sql import SparkSession

SparkSession.builder.getOrCreate().sql("SELECT 'landed before' AS carrier").writeTo(
    "lake.flights_local.flights_landed"
).using("iceberg").create()
"""
"""What the job would have landed, for the cell of the query that derives from it."""


def test_the_cells_show_a_sample_of_the_real_topic(tmp_path: Path) -> None:
    with kafka_broker.running_broker(name="kafka-notebook") as broker:
        broker.create_topic("flights", 2)
        send(broker.bootstrap)
        file = tmp_path / "flights.ipynb"
        subprocess.run(
            [
                sys.executable, "-m", "millrace", "notebook", "--env", "local", "flights", "-o", file,
                "--bind", f"kafka.main.bootstrap={broker.bootstrap}", "--bind", "kafka.main.authentication=none",
            ],
            cwd=ROOT,
            check=True,
            timeout=60,
        )  # fmt: skip
        program = tmp_path / "cells.py"
        program.write_text(LANDED + without_magics(json.loads(file.read_text())))
        done = subprocess.run(
            [sys.executable, program],
            cwd=tmp_path,
            env={**program_variables(), "PYSPARK_SUBMIT_ARGS": submit_arguments(tmp_path / "lake")},
            capture_output=True,
            text=True,
            timeout=150,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-3000:]
    for number in range(10):
        assert str(4000 + number) in done.stdout
    assert "no record of ours" in done.stdout
    assert "|-- value: binary" in done.stdout
    assert "landed before" in done.stdout


def without_magics(notebook: dict[str, list[dict[str, object]]]) -> str:
    """Join the code cells; a cell magic takes its whole cell."""
    cells = []
    for cell in notebook["cells"]:
        text = "".join(cell["source"])  # type: ignore[arg-type]
        if cell["cell_type"] == "code" and not text.startswith("%%"):
            cells.append("\n".join(line for line in text.splitlines() if not line.startswith("%")))
    return "\n\n".join(cells)


def send(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        event = {"carrier": "UA", "flight": 4000 + number, "origin": "EWR", "dest": "IAH"}
        producer.produce("flights", json.dumps(event).encode())
    producer.produce("flights", b"no record of ours")
    assert producer.flush(30) == 0


def submit_arguments(warehouse: Path) -> str:
    libraries = ",".join(str(path) for path in [*jars.jar_files("kafka-client"), *jars.jar_files("sandbox")])
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": warehouse.as_uri(),
    }
    given = " ".join(f"--conf {key}={value}" for key, value in settings.items())
    return f"--master local[2] {given} --jars {libraries} pyspark-shell"
