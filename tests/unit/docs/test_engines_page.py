"""The table of versions in ``docs/engines.md`` is the one that the code reads."""

from __future__ import annotations

from pathlib import Path

from millrace.config.engines import KINDS
from millrace.config.engines.versions import VERSIONS

PAGE = Path(__file__).parents[3] / "docs" / "engines.md"
HEAD = (
    "| engine | `version` | Spark | Scala | Python | Java | Iceberg | tried here with | jars of the line |\n"
    "|---|---|---|---|---|---|---|---|---|\n"
)


def rows() -> str:
    """The table's rows, in the order of the code."""
    return "".join(
        f"| {KINDS[each.engine].title} | `{each.name}` | {each.spark} | {each.line.scala} | {each.python} | {each.java} | "
        f"{each.iceberg or 'not said'} | Spark {each.line.spark}, Iceberg {each.line.iceberg} | "
        f"kafka-clients {each.line.libraries['kafka_clients']}, commons-pool2 {each.line.libraries['commons_pool']} |\n"
        for each in VERSIONS
    )


def test_the_table_is_that_of_the_versions() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert HEAD + rows() in text, f"write this between the marks:\n{HEAD}{rows()}"
