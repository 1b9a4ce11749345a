"""Text: each payload is one value."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path as FilePath
from typing import Literal

from millrace.config.formats.base import FormatConfig
from millrace.config.formats.ddl import DdlField
from millrace.etl.launch import formats as launch


class TextFormat(FormatConfig):
    """UTF-8; the schema has one STRING field."""

    kind: Literal["text"]

    def any_field_set_condition(self, schema: FilePath) -> None:
        """Return None: a payload is the value of the only field."""

    def launch_settings(self) -> launch.TextFormat:
        """Return its keys."""
        return launch.TextFormat()

    def unfit_schema_parts(self, fields: Sequence[DdlField]) -> Iterator[str]:
        """Check that there is one field, of type STRING."""
        if [each.kind.name for each in fields] != ["string"]:
            yield "format text has one STRING field"
