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
from millrace.etl.launch.protobuf import descriptor_file
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
        """Check that the descriptor file has the message, and that a table can have its columns."""
        try:
            kinds = descriptor_file.messages_and_enums(use.schema.read_bytes())
            names = [name for name, each in kinds if not each.enum and not each.entry]
            if self.message not in names:
                yield Finding(
                    (*use.path, "format", "message"),
                    self.message,
                    f"a message of {use.query.schema_}: {', '.join(names) or 'it has none'}",
                    did_you_mean_text(self.message, names),
                )
            elif wrong := "; ".join(ddl.column_name_problems(self.fields(use.schema))):
                yield use.wrong_schema_finding(f"a file with a message that a table can have; {wrong}")
        except WireError as error:
            yield use.wrong_schema_finding(f"a file that protoc wrote with --descriptor_set_out: {error}")

    def any_field_set_condition(self, schema: FilePath) -> str:
        """Return a condition that is false if no field is set: those whose absence Protobuf does not distinguish have zero values."""
        fields = descriptor_file.find_message(schema.read_bytes(), self.message).fields
        enum_zeros = {each.names[0] for each in fields if each.names and 0 in each.names}
        texts = ", ".join(f"'{each}'" for each in (*_ZEROS, *sorted(enum_zeros)))
        return " OR ".join(f"coalesce(CAST(`{each.name}` AS STRING), '') NOT IN ({texts})" for each in fields)

    def fields(self, schema: FilePath) -> tuple[ddl.DdlField, ...]:
        """Return the fields of the message; their types only distinguish messages and timestamps from others."""
        return _ddl_fields(descriptor_file.find_message(schema.read_bytes(), self.message))


def _ddl_fields(message: descriptor_file.Message) -> tuple[ddl.DdlField, ...]:
    return tuple(ddl.DdlField(each.name, _ddl_type(each)) for each in message.fields)


def _ddl_type(field: descriptor_file.Field) -> ddl.DdlType:
    if field.message is not None and (field.repeated or not field.message.is_timestamp):
        return ddl.DdlType("struct", fields=_ddl_fields(field.message))
    return ddl.DdlType("timestamp" if field.message else "another type than google.protobuf.Timestamp")
