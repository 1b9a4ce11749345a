"""Protobuf: one message in each payload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Literal

from pydantic import Field

from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import Finding
from millrace.config.formats import ddl, protobuf_descriptors
from millrace.config.formats.base import FormatConfig, FormatDocumentation, FormatUse
from millrace.etl.launch import formats as launch

_ZEROS = ("", "0", "0.0", "false", "[]", "{}")
"""Texts that Spark makes of zero values; an enum has names of its own."""


class ProtobufFormat(FormatConfig):
    """One Protobuf message; `schema` is a descriptor file (protoc --include_imports --descriptor_set_out)."""

    reading = FormatDocumentation(
        "`.desc`, a descriptor file",
        "Python, by Arrow",
        "an empty payload, in which no field is set",
        "a field of another type",
    )
    suffix = ".desc"
    in_python = True
    decoding = 1 / 0.18

    kind: Literal["protobuf"]
    message: str = Field(description="Full name of the message, such as shop.Order.", examples=["shop.Order"])

    def launch_settings(self) -> launch.ProtobufFormat:
        """Return its keys."""
        return launch.ProtobufFormat(self.message)

    def check_schema(self, use: FormatUse) -> Iterator[Finding]:
        """Check that the descriptor file has the message."""
        try:
            messages = protobuf_descriptors.message_names(use.schema.read_bytes())
        except protobuf_descriptors.DescriptorError as error:
            yield use.wrong_schema_finding(f"a file that protoc wrote with --descriptor_set_out: {error}")
            return
        if self.message not in messages:
            yield Finding(
                (*use.path, "format", "message"),
                self.message,
                f"a message of {use.query.schema_}: {', '.join(messages) or 'it has none'}",
                did_you_mean_text(self.message, messages),
            )

    def any_field_set_condition(self, schema: FilePath) -> str:
        """Return a condition that is false if no field is set: those whose absence Protobuf does not distinguish have zero values."""
        data = schema.read_bytes()
        zeros = ", ".join(f"'{each}'" for each in (*_ZEROS, *protobuf_descriptors.enum_zero_names(data)))
        names = protobuf_descriptors.is_timestamp_by_field(data, self.message)
        return " OR ".join(f"coalesce(CAST(`{name}` AS STRING), '') NOT IN ({zeros})" for name in names)

    def fields(self, schema: FilePath) -> tuple[ddl.DdlField, ...]:
        """Return the fields of the message; their types only distinguish timestamps from others."""
        result = protobuf_descriptors.is_timestamp_by_field(schema.read_bytes(), self.message)
        return tuple(
            ddl.DdlField(
                name, ddl.DdlType("timestamp" if moment else "another type than google.protobuf.Timestamp")
            )
            for name, moment in result.items()
        )
