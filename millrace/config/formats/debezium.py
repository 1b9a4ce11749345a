"""Debezium: one change event in each payload."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from pydantic import Field

from millrace.config.document.problems import Finding, findings_for_refused_keys
from millrace.config.formats import ddl
from millrace.config.formats.avro import JARS, WriterSchemaSource
from millrace.config.formats.base import FormatUse
from millrace.config.formats.change_format_base import ChangeFormat
from millrace.etl.launch import formats as launch


class DebeziumFormat(WriterSchemaSource, ChangeFormat):
    """One change event of Debezium; `schema` describes a row of the table."""

    kind: Literal["debezium"]
    payload: Literal["json", "avro"] = Field(
        default="json",
        description="Serialization of the events: json with or without Connect's schema wrapper, or avro with a registry's header.",
        examples=["json"],
    )
    framing: Literal["confluent", "glue"] = Field(
        default="confluent",
        description="With payload avro, the header that the registry's converter puts before the event.",
        examples=["glue"],
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

    @property
    def jars(self) -> Mapping[str, str]:
        """Return Spark's Avro, if it is needed."""
        return JARS if self.payload == "avro" else {}

    def check(self, use: FormatUse) -> Iterator[Finding]:
        """Check that the keys of Avro are consistent."""
        path = (*use.path, "format")
        if self.payload == "avro":
            yield from self.check_writer_schema_source(path, self.framing, use.root)
            return
        keys = ("writers", "registry", "subject", *({"framing"} & self.model_fields_set))
        yield from findings_for_refused_keys(path, self, keys, "only with payload: avro")

    def launch_settings(self) -> launch.DebeziumFormat:
        """Return its keys."""
        avro = launch.AvroFormat(self.framing, self.writers, self.registry, self.subject)
        return launch.DebeziumFormat(avro if self.payload == "avro" else None, self.decimals, self.flattened)

    def schema_advice(self, fields: Sequence[ddl.DdlField]) -> Iterator[str]:
        """Tell of times whose numbers have no unit."""
        if plain := [
            f.name
            for f in fields
            if f.kind.name == "timestamp" and not f.comment.lower().startswith("epoch ")
        ]:
            yield (
                f"{', '.join(plain)}: Debezium writes a time with a zone as text, and any other as a number, which is a dead "
                "letter here; for those declare the unit: TIMESTAMP COMMENT 'epoch microseconds' (PostgreSQL) or "
                "'epoch milliseconds' (MySQL's DATETIME)"
            )
