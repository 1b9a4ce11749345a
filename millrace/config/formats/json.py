"""JSON: one object in each payload."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

from millrace.config.formats.base import FormatConfig
from millrace.config.formats.ddl import DdlField
from millrace.etl.launch import formats as launch


class JsonFormat(FormatConfig):
    """One JSON object in each payload."""

    in_firehose = True

    kind: Literal["json"] = "json"

    def launch_settings(self) -> launch.JsonFormat:
        """Return its keys."""
        return launch.JsonFormat()

    def unfit_schema_parts(self, fields: Sequence[DdlField]) -> Iterable[str]:
        """Yield maps whose keys are no text: Spark's parser reads no others."""
        for kind in (kind for each in fields for kind in each.kind.with_types_inside()):
            if kind.name == "map" and kind.parts[0].name != "string":
                yield f"a map's keys are {kind.parts[0].name.upper()}, but names in JSON are texts: write STRING"

    def schema_advice(self, fields: Sequence[DdlField]) -> Iterable[str]:
        """Tell of a schema that takes every object."""
        if all(each.nullable for each in fields):
            yield (
                "no field is NOT NULL, so an object with none of them, such as an error message, is a good record of nulls, "
                "which the data rule any_field counts; write NOT NULL, and it is a dead letter"
            )
