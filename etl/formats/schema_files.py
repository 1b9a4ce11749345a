"""Schema files: search, reading and DDL parsing."""

from __future__ import annotations

import json
import pkgutil
from pathlib import PurePosixPath
from typing import Any

from pyspark.errors import ArithmeticException, ParseException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType, _parse_datatype_string

from ..record import hadoop_files
from ..record.errors import StartError
from .decoding.decoder_output_and_checks import schema_with_checked_names


def read_text_schema_file(spark: SparkSession, path: str) -> str:
    """Read a schema file that is text, see :func:`read_job_file`.

    Raises
    ------
    StartError
        The file does not exist, or is not UTF-8.
    """
    try:
        return read_job_file(spark, path).decode()
    except UnicodeDecodeError as error:
        raise StartError(f"schema {path} is not UTF-8 text (byte {error.start})") from error


def read_job_file(spark: SparkSession, path: str) -> bytes:
    """Read a file of the job, such as a schema: from the archive, beside the code, or from a URL.

    Parameters
    ----------
    spark
        Session whose file systems read a URL or an absolute path.
    path
        Such as ``pipelines/flights/schemas/flight.ddl``.

    Raises
    ------
    StartError
        The file does not exist.
    """
    try:
        if "://" in path or path.startswith("/"):
            return hadoop_files.read_bytes(spark, path)
        package, *rest = PurePosixPath(path).parts
        data = pkgutil.get_data(package, "/".join(rest))
    except OSError as error:
        raise StartError(f"file {path}: {error}") from error
    if data is None:
        raise StartError(
            f"file {path} is not in the job's code archive; check the path in the environment file and "
            "deploy again"
        )
    return data


def read_ddl_schema(spark: SparkSession, path: str) -> StructType:
    """Read a schema file of DDL.

    Raises
    ------
    StartError
        As in :func:`read_text_schema_file` and :func:`parse_ddl_schema`.
    """
    return parse_ddl_schema(spark, read_text_schema_file(spark, path), path)


def parse_ddl_schema(spark: SparkSession, ddl: str, name: str) -> StructType:
    """Parse a DDL schema, such as ``carrier STRING NOT NULL, dep_time INT``.

    Parameters
    ----------
    spark
        Session whose parser reads it.
    name
        Origin of the text, for messages.

    Raises
    ------
    StartError
        The text is not DDL, or has no field, a name that begins with ``_`` (reserved), or two names that differ in case
        only. The configuration refuses ``NOT NULL`` inside an array or a map, where it could not be enforced.
    """
    try:
        jvm: Any = spark._jvm
        types = jvm.org.apache.spark.sql.types.DataType.fromJson(_parse_datatype_string(ddl).json())
        # A DataFrame has no column of CHAR or VARCHAR: they are texts.
        text = jvm.org.apache.spark.sql.catalyst.util.CharVarcharUtils.replaceCharVarcharWithStringInSchema(
            types
        )
        schema = StructType.fromJson(json.loads(text.json()))
    except (
        ArithmeticException,
        ParseException,
    ) as error:  # ArithmeticException: a decimal of more than 38 digits
        raise StartError(
            f"{name}: this is not a schema of Spark (name and type of each column): {_first_line(error)}"
        ) from error
    return schema_with_checked_names(schema, name)


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__
