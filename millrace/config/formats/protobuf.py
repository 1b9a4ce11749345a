"""Protobuf: one message in each payload."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Literal

from pydantic import Field

from millrace.config.document.explain_validation_errors import did_you_mean_text
from millrace.config.document.problems import Finding
from millrace.config.formats import ddl
from millrace.config.formats.base import FormatConfig, FormatUse
from millrace.etl.launch import formats as launch
from millrace.etl.launch.protobuf.descriptor_file import (
    REPEATED,
    TIMESTAMP,
    int_of_field,
    messages_and_enums,
    text_of_field,
)
from millrace.etl.launch.protobuf.wire_format import WireError

_ZEROS = ("", "0", "0.0", "false", "[]", "{}")
"""Texts that Spark makes of zero values; an enum has names of its own."""


class ProtobufFormat(FormatConfig):
    """One Protobuf message; `schema` is a descriptor file (protoc --include_imports --descriptor_set_out)."""

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
            messages, _ = _fields_by_message_and_enum_zeros(use.schema)
        except WireError as error:
            yield use.wrong_schema_finding(f"a file that protoc wrote with --descriptor_set_out: {error}")
            return
        if self.message not in messages:
            yield Finding(
                (*use.path, "format", "message"),
                self.message,
                f"a message of {use.query.schema_}: {', '.join(messages) or 'it has none'}",
                did_you_mean_text(self.message, list(messages)),
            )

    def any_field_set_condition(self, schema: FilePath) -> str:
        """Return a condition that is false if no field is set: those whose absence Protobuf does not distinguish have zero values."""
        messages, enum_zeros = _fields_by_message_and_enum_zeros(schema)
        zeros = ", ".join(f"'{each}'" for each in (*_ZEROS, *sorted(enum_zeros)))
        return " OR ".join(
            f"coalesce(CAST(`{name}` AS STRING), '') NOT IN ({zeros})" for name in messages[self.message]
        )

    def fields(self, schema: FilePath) -> tuple[ddl.DdlField, ...]:
        """Return the fields of the message; their types only distinguish timestamps from others."""
        messages, _ = _fields_by_message_and_enum_zeros(schema)
        return tuple(
            ddl.DdlField(
                name, ddl.DdlType("timestamp" if moment else "another type than google.protobuf.Timestamp")
            )
            for name, moment in messages[self.message].items()
        )


def _fields_by_message_and_enum_zeros(schema: FilePath) -> tuple[dict[str, dict[str, bool]], set[str]]:
    """Read a descriptor file completely.

    Returns
    -------
    tuple
        Fields of each message, in the file's order, each with whether it is a single ``google.protobuf.Timestamp``; names of the
        value 0 in all enums.

    Raises
    ------
    WireError
        The file is no descriptor file.
    """
    messages, enum_zeros = dict[str, dict[str, bool]](), set[str]()
    for name, each in messages_and_enums(schema.read_bytes()):
        if each.enum:
            enum_zeros |= {value for number, value in each.enum_values if number == 0}
        elif not each.entry:
            messages[name] = {
                text_of_field(field, 1): text_of_field(field, 6).lstrip(".") == TIMESTAMP
                and int_of_field(field, 4) != REPEATED
                for field in each.fields
            }
    return messages, enum_zeros
