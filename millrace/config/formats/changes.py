"""Base of the formats of change events: the schema file describes a row, and a column more holds the change."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath

from millrace.config.formats import ddl
from millrace.config.formats.json import JsonFormat

_CHANGE = ddl.Field(
    "_change",
    ddl.Kind(
        "struct",
        fields=(
            *(ddl.Field(name, ddl.Kind("string")) for name in ("operation", "table", "lane", "position", "transaction")),
            ddl.Field("at", ddl.Kind("timestamp")),
            ddl.Field("before", ddl.Kind("struct")),
        ),
    ),
)
"""The column of ``etl.formats.decoding.changes``."""


class ChangeFormat(JsonFormat):
    """Change events of a database, in JSON."""

    in_firehose = False
    payloads = "millrace.sandbox.payloads.changes:payloads"
    deletes = True

    def fields(self, schema: FilePath) -> tuple[ddl.Field, ...]:
        """Return the fields of a row, and the change."""
        return (*ddl.parse(schema.read_text(encoding="utf-8")), _CHANGE)

    def advise(self, fields: Sequence[ddl.Field]) -> tuple[str, ...]:
        """Tell nothing: an object that is no event is a dead letter."""
        return ()
