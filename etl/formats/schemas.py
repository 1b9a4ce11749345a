"""Schema files: where they are read, and what DDL becomes."""

from __future__ import annotations

import pkgutil
from pathlib import PurePosixPath

from pyspark.errors import ArithmeticException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from ..record import hadoop_files
from ..record.errors import StartError
from .decoding.rows import check_names


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
            return hadoop_files.read_bytes(spark, path)
        package, *rest = PurePosixPath(path).parts
        data = pkgutil.get_data(package, "/".join(rest))
    except OSError as error:
        raise StartError(f"file {path}: {error}") from error
    if data is None:
        raise StartError(f"no such file in the archive: {path}")
    return data


def read_ddl(spark: SparkSession, path: str) -> StructType:
    """Read a schema file that is DDL.

    Raises
    ------
    StartError
        As :func:`read_schema` and :func:`parse_schema`.
    """
    return parse_schema(spark, read_schema(spark, path), path)


def parse_schema(spark: SparkSession, ddl: str, name: str) -> StructType:
    """Read a DDL schema, such as ``carrier STRING NOT NULL, dep_time INT``.

    Parameters
    ----------
    spark
        Whose parser reads it.
    name
        Where the text came from, for messages.

    Raises
    ------
    StartError
        Not DDL, no field at all, a name that begins with ``_`` (those are ours), or two names that differ in case
        only. The configuration refuses ``NOT NULL`` inside an array or a map, where it could not be kept.
    """
    try:
        schema = spark.createDataFrame([], ddl).schema
    except (ArithmeticException, ParseException) as error:  # the former for a decimal of more than 38 digits
        raise StartError(f"{name}: not a schema: {_first_line(error)}") from error
    return check_names(schema, name)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
