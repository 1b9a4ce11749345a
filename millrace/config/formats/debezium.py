"""Debezium: one change event in each payload."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from pydantic import Field

from millrace.config.formats import ddl
from millrace.config.formats.base import FormatDocumentation
from millrace.config.formats.changes import ChangeFormat
from millrace.etl.launch import formats as launch


class DebeziumFormat(ChangeFormat):
    """One change event of Debezium; `schema` describes a row of the table."""

    reading = FormatDocumentation(
        "`.ddl` of a row",
        "Spark's parser",
        "heartbeats, transactions, schema changes and tombstones, which are no rows",
        "an object that is no event, a value that the database did not log",
    )

    kind: Literal["debezium"]
    payload: Literal["json"] = Field(
        default="json",
        description="Serialization of the events, with or without Connect's schema wrapper.",
        examples=["json"],
    )
    decimals: Literal["precise", "string", "double"] = Field(
        default="precise",
        description="The connector's decimal.handling.mode; with precise, the scale of a DECIMAL is that of the source's column.",
        examples=["string"],
    )
    flattened: bool = Field(
        default=False,
        description="True if ExtractNewRecordState has flattened the events: a payload is a row, with fields such as __op, "
        "__deleted and __source_lsn.",
        examples=[True],
    )

    def settings(self) -> launch.DebeziumFormat:
        """Return its keys."""
        return launch.DebeziumFormat(self.payload, self.decimals, self.flattened)

    def advise(self, fields: Sequence[ddl.Field]) -> Iterator[str]:
        """Tell of times whose numbers have no unit."""
        plain = [
            f.name
            for f in fields
            if f.kind.name == "timestamp" and not f.comment.lower().startswith("epoch ")
        ]
        if plain:
            yield (
                f"{', '.join(plain)}: Debezium writes a time with a zone as text, and any other as a number, which is a dead "
                "letter here; for those declare the unit: TIMESTAMP COMMENT 'epoch microseconds' (PostgreSQL) or "
                "'epoch milliseconds' (MySQL's DATETIME)"
            )
