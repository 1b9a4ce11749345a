"""Payload formats in a launch document; :mod:`etl.formats` has a module for each kind, with its decoder."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

MOST_DIGITS = 38
"""Most digits of a decimal in Spark."""


AVRO_RECORDS = ("record", "error")
"""Types of Avro that are records: one that a protocol declares as an error is one, too (its specification, "Errors")."""


def decimals_avro_ignores(schema: Any) -> Iterator[str]:
    """Yield the decimals of an Avro schema that no column holds; Avro's own parser takes them for bytes."""
    if isinstance(schema, list):
        for each in schema:
            yield from decimals_avro_ignores(each)
    elif isinstance(schema, dict):
        precision, scale = schema.get("precision", 0), schema.get("scale", 0)
        if schema.get("logicalType") == "decimal" and schema.get("type") in ("bytes", "fixed"):
            fits = isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision
            if not (fits and 1 <= precision <= MOST_DIGITS):
                yield f"decimal({precision},{scale})"
        yield from decimals_avro_ignores([value for key, value in schema.items() if key != "default"])


def texts_spark_compares(name: str) -> set[str]:
    """Return the texts by which Spark compares a name with others: it is the same if one of them is.

    Spark compares in lower case, or as Java's ``equalsIgnoreCase``: letter by letter, the lower case of the upper case, each
    of one letter (its documentation). So ``ſ`` and ``s`` are one name, and ``ς`` and ``σ``.

    Examples
    --------
    >>> texts_spark_compares("ſIZE") & texts_spark_compares("size")
    {'size'}
    """
    upper = (each.upper() if len(each.upper()) == 1 else each for each in name)
    return {name.lower(), "".join(each.lower()[0] for each in upper)}


def names_that_clash(names: Sequence[str]) -> list[str]:
    """Return the names that Spark takes for another one of the list, sorted."""
    compared = Counter(text for name in names for text in texts_spark_compares(name))
    return sorted({name for name in names if any(compared[text] > 1 for text in texts_spark_compares(name))})


class Format:
    """Payload format; :mod:`etl.launch.typed_json` reads the class of its ``kind``."""

    KINDS: ClassVar[dict[str, type[Format]]] = {}
    MODULE = "..formats.{kind}"
    """Module with its ``open_decoder``: see :func:`etl.formats.base.open_decoder`."""

    kind: str

    @property
    def has_field_names(self) -> bool:
        """True if the bytes name their fields, so that single values can be cut out of them."""
        return False

    @property
    def is_payload_one_text_line(self) -> bool:
        """True if a payload is one line of a text, so that files of them can be landed."""
        return True


@dataclass(frozen=True)
class JsonFormat(Format):
    """One JSON object in each payload; the query's ``schema`` is DDL."""

    has_field_names = True
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

    is_payload_one_text_line = False
    framing: Literal["none", "confluent", "glue"]
    writers: str | None
    registry: str | None
    subject: str | None
    kind: Literal["avro"] = "avro"


@dataclass(frozen=True)
class ProtobufFormat(Format):
    """One Protobuf message; the query's ``schema`` is a descriptor file (``protoc --descriptor_set_out``)."""

    is_payload_one_text_line = False
    message: str
    kind: Literal["protobuf"] = "protobuf"


@dataclass(frozen=True)
class DebeziumFormat(Format):
    """One change event of Debezium in each payload; the query's ``schema`` is DDL of a row.

    Attributes
    ----------
    avro
        Framing and writers' schemas of events in Avro; None for JSON.
    decimals
        The connector's ``decimal.handling.mode``.
    flattened
        Whether ExtractNewRecordState has made a row of each event.
    """

    MODULE = "..formats.changes.{kind}"

    avro: AvroFormat | None
    decimals: Literal["precise", "string", "double"]
    flattened: bool
    kind: Literal["debezium"] = "debezium"

    @property
    def has_field_names(self) -> bool:
        """True for JSON."""
        return self.avro is None

    @property
    def is_payload_one_text_line(self) -> bool:
        """True for JSON."""
        return self.avro is None


@dataclass(frozen=True)
class DmsFormat(Format):
    """One change record of AWS DMS in each payload; the query's ``schema`` is DDL of a row."""

    MODULE = "..formats.changes.{kind}"
    has_field_names = True
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
