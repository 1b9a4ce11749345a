"""The payload formats that a launch document may name, each with its settings, imported when a query has it."""

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
}
"""By ``kind``, where its settings are: a frozen dataclass whose fields are the keys of the launch document."""


@dataclass(frozen=True)
class Format(ABC):
    """How a payload is written, as the launch document says it; :mod:`etl.launch.typed_json` reads the class of its ``kind``."""

    KINDS = FORMATS
    NAMES_FIELDS = False
    """Whether the bytes name the fields that they hold, so that values of some can be cut out of them."""
    IN_LINES = True
    """Whether a payload is a line of a text, so that files of them can be landed."""

    kind: str

    @abstractmethod
    def decoder(self, spark: SparkSession, schema: str, open_up_to: int | None = None) -> Decoder:
        """Make what decodes; every mistake in its schema shows here, before the first record.

        Parameters
        ----------
        schema
            Path of the query's schema file.
        open_up_to
            Most bytes of what the format itself compresses, when open; None opens nothing.

        Raises
        ------
        StartError
            The file is missing, or not what the format needs.
        """
