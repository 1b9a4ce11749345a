"""From a query's format to its decoder."""

from __future__ import annotations

import dataclasses
import importlib.util
import pkgutil
from pathlib import PurePosixPath

from pyspark.sql import SparkSession

from etl import hadoop
from etl.decode import JsonDecoder, parse_schema
from etl.decoder import Decoder
from etl.decompress import Opening
from etl.errors import StartError
from etl.formats import avro, protobuf
from etl.formats.deletes import Deleting
from etl.formats.delimited import CsvDecoder
from etl.formats.text import TextDecoder
from etl.redact import Redacting
from etl.settings import (
    AvroFormat,
    CsvFormat,
    DirectRouteSettings,
    DirectSettings,
    Format,
    KafkaSource,
    LandSettings,
    ProtobufFormat,
    RouteSettings,
)


def read_schema(spark: SparkSession, path: str) -> str:
    """Read a schema file that is text, as :func:`read_file` does.

    Raises
    ------
    StartError
        No such file, or it is not UTF-8.
    """
    try:
        return read_file(spark, path).decode()
    except UnicodeDecodeError as error:
        raise StartError(f"schema {path}: not UTF-8: byte {error.start}") from error


def read_file(spark: SparkSession, path: str) -> bytes:
    """Read a file that travels with the job, such as a schema: beside the code in the archive, or at a URL.

    Parameters
    ----------
    spark
        Whose file systems read a URL or an absolute path.
    path
        Such as ``pipelines/flights/schemas/flight.ddl``.

    Raises
    ------
    StartError
        No such file.
    """
    try:
        if "://" in path or path.startswith("/"):
            return hadoop.read_bytes(spark, path)
        package, *rest = PurePosixPath(path).parts
        if ".." in rest or not rest or importlib.util.find_spec(package) is None:
            raise FileNotFoundError(f"no such file in the archive: {path}")
        data = pkgutil.get_data(package, "/".join(rest))
    except OSError as error:
        raise StartError(f"file {path}: {error}") from error
    if data is None:
        raise StartError(f"file {path}: package {package} holds no files")
    return data


def decoder(spark: SparkSession, settings: Format, path: str) -> Decoder:
    """Make a decoder; every mistake in its schema shows here, before the first record.

    Parameters
    ----------
    spark
        The job's session.
    settings
        The query's format.
    path
        Its schema file: DDL, for Avro the reader's schema, for Protobuf a descriptor file.

    Raises
    ------
    StartError
        The file is missing, or not what the format needs.
    """
    if isinstance(settings, ProtobufFormat):
        return protobuf.decoder(read_file(spark, path), settings.message, path)
    text = read_schema(spark, path)
    if isinstance(settings, AvroFormat):
        return avro.decoder(spark, settings, text, path)
    schema = parse_schema(spark, text, path)
    if isinstance(settings, CsvFormat):
        return CsvDecoder(schema, settings)
    return JsonDecoder(schema) if settings == "json" else TextDecoder(schema)


def of_query(
    spark: SparkSession, query: LandSettings | RouteSettings | DirectSettings | DirectRouteSettings
) -> Decoder:
    """Make the decoder of a query, with whatever else it does to a payload.

    Parameters
    ----------
    spark
        The job's session.
    query
        Its settings, or those of one of its routes.

    Raises
    ------
    StartError
        As :func:`decoder`, and for a redacted field that is not there.
    """
    made = decoder(spark, query.format, query.schema)
    if query.decompress_up_to is not None:
        if isinstance(made, avro.AvroDecoder):
            made = dataclasses.replace(made, open_up_to=query.decompress_up_to)
        made = Opening(made, query.decompress_up_to)
    source = getattr(query, "source", None)
    if isinstance(source, KafkaSource) and source.reading and source.reading.null_payload == "delete":
        made = Deleting(made)
    return Redacting(made, query.redact, readable=query.format == "json") if query.redact else made
