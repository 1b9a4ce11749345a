"""Payload formats in a launch document; :mod:`etl.formats` has a module for each kind, with its decoder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal


class Format:
    """Payload format; :mod:`etl.launch.typed_json` reads the class of its ``kind``."""

    KINDS: ClassVar[dict[str, type[Format]]] = {}
    MODULE = "..formats.{kind}"
    """Module with its ``open_decoder``: see :func:`etl.formats.base.open_decoder`."""
    NAMES_FIELDS = False
    """True if the bytes name their fields, so that single values can be cut out of them."""
    IN_LINES = True
    """True if a payload is one line of a text, so that files of them can be landed."""

    kind: str


@dataclass(frozen=True)
class JsonFormat(Format):
    """One JSON object in each payload; the query's ``schema`` is DDL."""

    NAMES_FIELDS = True

    kind: Literal["json"] = "json"


@dataclass(frozen=True)
class TextFormat(Format):
    """A payload is a value; the query's ``schema`` is DDL with one ``STRING`` field."""

    kind: Literal["text"] = "text"


@dataclass(frozen=True)
class CsvFormat(Format):
    """Columns between delimiters; ``quote`` is doubled inside quotes, ``null`` is the text for null."""

    delimiter: str
    quote: str
    null: str
    kind: Literal["csv"] = "csv"


@dataclass(frozen=True)
class AvroFormat(Format):
    """One Avro datum; the query's ``schema`` is the reader's, an ``.avsc`` file.

    Attributes
    ----------
    framing
        Header before the datum: none, or that of a registry's serializer.
    writers
        Folder below ``pipelines/`` with a writer's schema per id; None where ``registry`` has them, or there
        is only the query's ``schema``.
    registry
        URL of a Confluent registry, whose versions of ``subject`` are read at start.
    """

    IN_LINES = False

    framing: Literal["none", "confluent", "glue"]
    writers: str | None
    registry: str | None
    subject: str | None
    kind: Literal["avro"] = "avro"


@dataclass(frozen=True)
class ProtobufFormat(Format):
    """One Protobuf message; the query's ``schema`` is a descriptor file (``protoc --descriptor_set_out``)."""

    IN_LINES = False

    message: str
    kind: Literal["protobuf"] = "protobuf"


@dataclass(frozen=True)
class DebeziumFormat(Format):
    """One change event of Debezium in each payload; the query's ``schema`` is DDL of a row.

    Attributes
    ----------
    payload
        Serialization of the events.
    decimals
        The connector's ``decimal.handling.mode``.
    flattened
        Whether ExtractNewRecordState has made a row of each event.
    """

    MODULE = "..formats.changes.{kind}"
    NAMES_FIELDS = True

    payload: Literal["json"]
    decimals: Literal["precise", "string", "double"]
    flattened: bool
    kind: Literal["debezium"] = "debezium"


@dataclass(frozen=True)
class DmsFormat(Format):
    """One change record of AWS DMS in each payload; the query's ``schema`` is DDL of a row."""

    MODULE = "..formats.changes.{kind}"
    NAMES_FIELDS = True

    payload: Literal["json"]
    kind: Literal["dms"] = "dms"


Format.KINDS.update(
    json=JsonFormat,
    text=TextFormat,
    csv=CsvFormat,
    avro=AvroFormat,
    protobuf=ProtobufFormat,
    debezium=DebeziumFormat,
    dms=DmsFormat,
)
