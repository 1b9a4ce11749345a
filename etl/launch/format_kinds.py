"""Registry of the payload formats that a launch document may name; each is imported when a query uses it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ..formats.base import Decoder

FORMATS = {
    "json": ".formats.json:JsonFormat",
    "text": ".formats.text:TextFormat",
    "csv": ".formats.csv:CsvFormat",
    "avro": ".formats.avro:AvroFormat",
    "protobuf": ".formats.protobuf:ProtobufFormat",
    "debezium": ".formats.changes.debezium:DebeziumFormat",
    "dms": ".formats.changes.dms:DmsFormat",
}
"""Class of each format's settings, by ``kind``: a frozen dataclass whose fields are the keys of the launch document."""


@dataclass(frozen=True)
class Format(ABC):
    """Settings of a payload format in a launch document; :mod:`etl.launch.typed_json` reads the class of its ``kind``."""

    KINDS = FORMATS
    NAMES_FIELDS = False
    """True if the bytes name their fields, so that single values can be cut out of them."""
    IN_LINES = True
    """True if a payload is one line of a text, so that files of them can be landed."""

    kind: str

    @abstractmethod
    def decoder(self, spark: SparkSession, schema: str, open_up_to: int | None = None) -> Decoder:
        """Make the decoder; every error in its schema shows here, before the first record.

        Parameters
        ----------
        schema
            Path of the query's schema file.
        open_up_to
            Most bytes, after decompression, of data that the format itself compresses; None decompresses none.

        Raises
        ------
        StartError
            The file is missing, or the format cannot use it.
        """
