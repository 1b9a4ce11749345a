"""Payload formats in a launch document, and the jars that they take."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infra.errors import InfrastructureError
from millrace.config.formats import AvroFormat, JsonFormat, PayloadFormat, TextFormat
from millrace.config.model import Job
from millrace.config.queries import SourceQuery

_AVRO_JARS = Path(".millrace/jars/avro")


def format_settings(asked: PayloadFormat) -> str | dict[str, Any]:
    """Write a format as ``etl.settings`` reads it: a name alone where it has no options."""
    return asked.kind if isinstance(asked, JsonFormat | TextFormat) else asked.model_dump()


def format_jars(job: Job, root: Path) -> tuple[Path, ...]:
    """Return the jars that a job's formats take and no engine has on its class path, sorted by name.

    Raises
    ------
    InfrastructureError
        They have not been resolved.
    """
    asked = [p.format for q in job.queries.values() if isinstance(q, SourceQuery) for p in q.payloads]
    if not any(isinstance(each, AvroFormat) for each in asked):
        return ()
    jars = tuple(sorted((root / _AVRO_JARS).glob("*.jar")))
    if not jars:
        raise InfrastructureError(f"no jars in {_AVRO_JARS}, which a job with Avro needs: run `make jars`")
    return jars
