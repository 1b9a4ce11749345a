"""How a payload is written: ``format: json``, or a mapping where the format has options."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, StringConstraints

from millrace.config.base import Model, of_kind

_OneCharacter = Annotated[str, StringConstraints(pattern=r"^[ -~\t]$")]


class JsonFormat(Model):
    """One JSON object in each payload."""

    kind: Literal["json"] = "json"


class TextFormat(Model):
    """UTF-8; the schema has one STRING field."""

    kind: Literal["text"]


class CsvFormat(Model):
    """One record without a header, as RFC 4180 writes it: a quote inside quotes is doubled."""

    kind: Literal["csv"]
    delimiter: _OneCharacter = ","
    quote: _OneCharacter = '"'
    null: str = Field(default="", description="The text that stands for null; an empty column does too.")


class AvroFormat(Model):
    """One Avro datum; `schema` is the reader's, an .avsc file."""

    kind: Literal["avro"]
    framing: Literal["none", "confluent", "glue"] = Field(
        default="none", description="The header that a registry's serializer puts before the datum."
    )
    writers: str | None = Field(
        default=None,
        description="Folder below pipelines/ with each writer's schema by its id, such as 17.avsc.",
    )
    registry: Annotated[str, StringConstraints(pattern=r"^https?://\S+$")] | None = Field(
        default=None, description="URL of a Confluent registry, read when the job starts."
    )
    subject: str | None = Field(default=None, description="Of the registry, such as orders-value.")


class ProtobufFormat(Model):
    """One Protobuf message; `schema` is a descriptor file (protoc --include_imports --descriptor_set_out)."""

    kind: Literal["protobuf"]
    message: str = Field(description="Full name of the message, such as shop.Order.")


_Kinds = Annotated[
    JsonFormat | TextFormat | CsvFormat | AvroFormat | ProtobufFormat, Field(discriminator="kind")
]


PayloadFormat = Annotated[
    JsonFormat | TextFormat | CsvFormat | AvroFormat | ProtobufFormat,
    Field(discriminator="kind"),
    BeforeValidator(
        of_kind, json_schema_input_type=Literal["json", "text", "csv", "avro", "protobuf"] | _Kinds
    ),
]
"""A name alone is a mapping of that kind."""

SCHEMA_SUFFIX = {"json": ".ddl", "text": ".ddl", "csv": ".ddl", "avro": ".avsc", "protobuf": ".desc"}
"""What kind of schema file each format takes."""
