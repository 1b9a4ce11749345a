"""CSV: one record in each payload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from millrace.config.formats.base import FormatConfig
from millrace.config.formats.ddl import DdlField
from millrace.etl.launch import formats as launch

_OneCharacter = Annotated[str, StringConstraints(pattern=r"^[ -~\t]$")]


class CsvFormat(FormatConfig):
    """One record without a header, as in RFC 4180: a quote inside quotes is doubled."""

    kind: Literal["csv"]
    delimiter: _OneCharacter = Field(
        default=",", description="The character between columns.", examples=[";"]
    )
    quote: _OneCharacter = Field(
        default='"',
        description="The character around a column that holds a delimiter, a quote or a line feed.",
        examples=["'"],
    )
    null: str = Field(
        default="", description="The text that means null; an empty column also means null.", examples=["NA"]
    )

    def launch_settings(self) -> launch.CsvFormat:
        """Return its keys."""
        return launch.CsvFormat(self.delimiter, self.quote, self.null)

    def unfit_schema_parts(self, fields: Sequence[DdlField]) -> Iterator[str]:
        """Check that each column holds one value."""
        others = ("array", "binary", "map", "struct")
        for kind in sorted({each.kind.name.upper() for each in fields if each.kind.name in others}):
            yield f"columns hold one value each: CSV has no {kind}"
