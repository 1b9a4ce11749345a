"""Base of the formats of change events: the schema file describes a row, and a column more holds the change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path as FilePath

from millrace.config.formats import ddl
from millrace.config.formats.base import FormatConfig
from millrace.config.formats.json import JsonFormat

CHANGE = ddl.DdlField(
    "_change",
    ddl.DdlType(
        "struct",
        fields=(
            *(
                ddl.DdlField(name, ddl.DdlType("string"))
                for name in ("operation", "table", "lane", "position", "transaction")
            ),
            ddl.DdlField("at", ddl.DdlType("timestamp")),
            ddl.DdlField("before", ddl.DdlType("struct")),
        ),
    ),
)
"""The column of ``etl.formats.changes.decoder``."""


class ChangeFormat(FormatConfig):
    """Change events of a database, in JSON."""

    deletes = True

    def fields(self, schema: FilePath) -> tuple[ddl.DdlField, ...]:
        """Return the fields of a row, and the change."""
        return (*ddl.parse_ddl(schema.read_text(encoding="utf-8")), CHANGE)

    def unfit_schema_parts(self, fields: Sequence[ddl.DdlField]) -> Iterable[str]:
        """Yield what JSON cannot hold."""
        return JsonFormat().unfit_schema_parts(fields)
