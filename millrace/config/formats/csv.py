"""CSV: one record in each payload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from millrace.config.document.problems import Finding
from millrace.config.formats.base import FormatConfig, FormatUse
from millrace.config.formats.ddl import DdlField
from millrace.etl.launch import formats as launch

# A letter or digit may be in the random value that the core adds to a record, and Spark takes a backslash for an escape.
_Delimiter = Annotated[str, StringConstraints(pattern=r"^[\t -/:-@\[\]-`{-~]$")]
_Quote = Annotated[str, StringConstraints(pattern=r"^[!-/:-@\[\]-`{-~]$")]


class CsvFormat(FormatConfig):
    """One record without a header, as in RFC 4180: a quote inside quotes is doubled."""

    kind: Literal["csv"]
    delimiter: _Delimiter = Field(default=",", description="The character between columns.", examples=[";"])
    quote: _Quote = Field(
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

    def check(self, use: FormatUse) -> Iterator[Finding]:
        """Check that its characters differ."""
        if self.delimiter == self.quote:
            yield Finding((*use.path, "format", "quote"), self.quote, "another character than the delimiter")

    def unfit_schema_parts(self, fields: Sequence[DdlField]) -> Iterator[str]:
        """Check that each column holds one value."""
        others = ("array", "binary", "map", "struct")
        for kind in sorted({each.kind.name.upper() for each in fields if each.kind.name in others}):
            yield f"columns hold one value each: CSV has no {kind}"
