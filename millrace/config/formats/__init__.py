"""Payload formats: ``format: json``, or a mapping for a format with keys. One module for each kind.

``docs/formats.md`` says what each accepts as a record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import BeforeValidator, Field

from millrace.config.base import kind_as_mapping, load_kinds
from millrace.config.formats.base import FormatConfig

KINDS: dict[str, type[FormatConfig]] = load_kinds(
    "millrace.formats",
    {
        "json": "millrace.config.formats.json:JsonFormat",
        "text": "millrace.config.formats.text:TextFormat",
        "csv": "millrace.config.formats.csv:CsvFormat",
        "avro": "millrace.config.formats.avro:AvroFormat",
        "protobuf": "millrace.config.formats.protobuf:ProtobufFormat",
        "debezium": "millrace.config.formats.debezium:DebeziumFormat",
        "dms": "millrace.config.formats.dms:DmsFormat",
    },
)
"""Class with the configuration of a format, by ``kind``."""

DEFAULT = KINDS["json"](kind="json")
"""Format of a query that names none."""

if TYPE_CHECKING:
    PayloadFormat = FormatConfig
else:
    _KINDS = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007 - made at run time
    # A name alone is a mapping of that kind.
    PayloadFormat = Annotated[
        _KINDS, BeforeValidator(kind_as_mapping, json_schema_input_type=Literal[tuple(KINDS)] | _KINDS)
    ]
