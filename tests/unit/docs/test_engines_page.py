"""The table of versions in ``docs/engines.md`` is the one that the code reads."""

from __future__ import annotations

import json
from pathlib import Path

from millrace.config.engines import KINDS
from millrace.config.engines.versions import VERSIONS, EngineVersion, jar_set_name

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "engines.md"
HEAD = (
    "| engine | `version` | Spark | Scala | Python | Java | Iceberg | tested with | jars that a job brings if it needs them | Kafka libraries |\n"
    "|---|---|---|---|---|---|---|---|---|---|\n"
)
CARRIED = ("avro", "kafka-client", "postgresql")
"""Sets of jars that formats, sinks and sources may need; an engine ships some of them."""


def sets(version: EngineVersion) -> list[str]:
    """Those that travel to a version, by their names in the lock."""
    return [
        jar_set_name(each, version.spark_line) for each in CARRIED if each not in KINDS[version.engine].ships
    ]


def rows() -> str:
    """The table's rows, in the order of the code."""
    return "".join(
        f"| {KINDS[each.engine].title} | `{each.name}` | {each.spark} | {each.spark_line.scala} | {each.python} | {each.java} | "
        f"{each.iceberg} | Spark {each.spark_line.spark}, Iceberg {each.spark_line.libraries['iceberg']} | "
        f"{', '.join(f'`{name}`' for name in sets(each))} | "
        f"kafka-clients {each.spark_line.libraries['kafka_clients']}, commons-pool2 {each.spark_line.libraries['commons_pool']} |\n"
        for each in VERSIONS
    )


def test_the_table_is_that_of_the_versions() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert HEAD + rows() in text, f"write this between the marks:\n{HEAD}{rows()}"


def test_every_set_that_travels_is_pinned_by_digest() -> None:
    locked = json.loads((ROOT / "toolchain" / "jars.lock.json").read_text(encoding="utf-8"))
    for version in VERSIONS:
        for name in sets(version):
            assert locked[name], name
            assert all(len(jar["sha256"]) == 64 for jar in locked[name]), name
