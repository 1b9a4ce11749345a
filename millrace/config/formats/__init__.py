"""How a payload is written: ``format: json``, or a mapping where the format has keys. One module for each kind.

What each takes for a record is said in ``docs/formats.md``.
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
"""By ``kind``, what may be asked for of it."""

KINDS: dict[str, type[FormatConfig]] = {
    kind: EntryPoint(kind, loader, GROUP).load() for kind, loader in FORMATS.items()
}

DEFAULT = KINDS["json"](kind="json")
"""Where a query says nothing."""

if TYPE_CHECKING:
    PayloadFormat = FormatConfig
else:
    _KINDS = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007 - made at run time
    # A name alone is a mapping of that kind.
    PayloadFormat = Annotated[
        _KINDS, BeforeValidator(of_kind, json_schema_input_type=Literal[tuple(KINDS)] | _KINDS)
    ]
