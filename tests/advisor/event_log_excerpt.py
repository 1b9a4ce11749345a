"""Cut a real event log to the size of a test, packed with zstd: ``python -m tests.advisor.event_log_excerpt LOG FILE``.

Every event stays; settings, plans and stack traces of the machine that wrote it are cut.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import zstandard

from millrace.advisor.logs.event_logs import LogLines, find_event_logs

KEPT = (
    *("spark.master", "spark.app.id", "spark.app.name", "spark.sql.shuffle.partitions"),
    *("spark.sql.execution.id", "spark.jobGroup.id", "sql.streaming.queryId", "streaming.sql.batchId"),
)
CUT = {"physicalPlanDescription", "details", "Details", "Stack Trace", "Full Stack Trace", "sparkPlanInfo"}


def excerpt(event: Any) -> Any:
    """Cut what no finding needs."""
    if isinstance(event, Mapping):
        return {key: _cut(key, value) for key, value in event.items()}
    return [excerpt(each) for each in event] if isinstance(event, list) else event


def _cut(key: str, value: Any) -> Any:
    if key in CUT:
        return {} if isinstance(value, Mapping) else [] if isinstance(value, list) else ""
    if key in {"Spark Properties", "Properties"} and isinstance(value, Mapping):
        return {name: value[name] for name in KEPT if name in value}
    if key in {
        "Hadoop Properties",
        "System Properties",
        "Metrics Properties",
        "Classpath Entries",
        "JVM Information",
    }:
        return {}
    if key in {"Accumulables", "accumUpdates", "sqlPlanMetrics"}:
        return value[:1]
    if key == "Name" and isinstance(value, str):
        return value[:80]
    return excerpt(value)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="tests.advisor.event_log_excerpt", description=__doc__)
    parser.add_argument("log")
    parser.add_argument("file", type=Path)
    parser.add_argument("--lines", type=int, default=None, help="so many lines, then the log is cut off")
    options = parser.parse_args(arguments)
    lines = list(LogLines(find_event_logs(options.log)[0]))[: options.lines]
    text = b"".join(
        json.dumps(excerpt(json.loads(each)), separators=(",", ":")).encode() + b"\n" for each in lines
    )
    options.file.write_bytes(zstandard.ZstdCompressor(level=19).compress(text))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
