"""Base of the formats of change events: the schema file describes a row, and a column more holds the change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path as FilePath

from millrace.config.formats import ddl
from millrace.config.formats.base import FormatConfig
from millrace.config.formats.json import JsonFormat

CHANGE = ddl.Field(
    "_change",
    ddl.DdlType(
        "struct",
        fields=(
            *(
                ddl.Field(name, ddl.DdlType("string"))
                for name in ("operation", "table", "lane", "position", "transaction")
            ),
            ddl.Field("at", ddl.DdlType("timestamp")),
            ddl.Field("before", ddl.DdlType("struct")),
        ),
    ),
)
"""The column of ``etl.formats.changes.decoder``."""


class ChangeFormat(FormatConfig):
    """Change events of a database, in JSON."""

    deletes = True

    def fields(self, schema: FilePath) -> tuple[ddl.Field, ...]:
        """Return the fields of a row, and the change."""
        return (*ddl.parse_ddl(schema.read_text(encoding="utf-8")), CHANGE)

    def unfit_parts(self, fields: Sequence[ddl.Field]) -> Iterable[str]:
        """Yield what JSON cannot hold."""
        return JsonFormat().unfit_parts(fields)
