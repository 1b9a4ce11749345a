"""Payload formats: ``format: json``, or a mapping for a format with keys. One module for each kind.

``docs/formats.md`` says what each accepts as a record.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Literal, Union

from pydantic import BeforeValidator, Field

from millrace.config.base import of_kind
from millrace.config.formats.base import FormatConfig

GROUP = "millrace.formats"
"""Entry points by which an installed distribution adds kinds."""

FORMATS = {
    "json": "millrace.config.formats.json:JsonFormat",
    "text": "millrace.config.formats.text:TextFormat",
    "csv": "millrace.config.formats.csv:CsvFormat",
    "avro": "millrace.config.formats.avro:AvroFormat",
    "protobuf": "millrace.config.formats.protobuf:ProtobufFormat",
} | {each.name: each.value for each in entry_points(group=GROUP)}
"""Class with the configuration of a format, by ``kind``."""

KINDS: dict[str, type[FormatConfig]] = {
    kind: EntryPoint(kind, loader, GROUP).load() for kind, loader in FORMATS.items()
}

DEFAULT = KINDS["json"](kind="json")
"""Format of a query that names none."""

if TYPE_CHECKING:
    PayloadFormat = FormatConfig
else:
    _KINDS = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007 - made at run time
    # A name alone is a mapping of that kind.
    PayloadFormat = Annotated[
        _KINDS, BeforeValidator(of_kind, json_schema_input_type=Literal[tuple(KINDS)] | _KINDS)
    ]
