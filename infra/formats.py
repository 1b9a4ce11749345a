"""Payload formats in a launch document, and the jars that they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.jars import locked_jars
from millrace.config.formats import AvroFormat, JsonFormat, PayloadFormat, TextFormat
from millrace.config.model import Job
from millrace.config.queries import SourceQuery


def format_settings(asked: PayloadFormat) -> str | dict[str, Any]:
    """Write a format as ``etl.settings`` reads it: a name alone where it has no options."""
    return asked.kind if isinstance(asked, JsonFormat | TextFormat) else asked.model_dump()


def format_jars(job: Job, root: Path) -> tuple[Path, ...]:
    """Return the jars that a job's formats take and no engine has on its class path, sorted by name.

    Raises
    ------
    InfrastructureError
        They have not been resolved, or are not those of the lock.
    """
    asked = [p.format for q in job.queries.values() if isinstance(q, SourceQuery) for p in q.payloads]
    if not any(isinstance(each, AvroFormat) for each in asked):
        return ()
    return locked_jars(root, "avro", "a job with Avro needs")
