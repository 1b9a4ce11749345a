"""Files by URL, through the JVM's Hadoop file systems: every engine has them set up, with its own credentials."""

from __future__ import annotations

from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession


def read_text(spark: SparkSession, url: str) -> str:
    """Read a small file as UTF-8.

    Parameters
    ----------
    spark, url
        As for :func:`read_bytes`.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    OSError
        It could not be read, or is not UTF-8.
    """
    data = read_bytes(spark, url)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise OSError(f"{url}: not UTF-8: byte {error.start}") from error


def read_bytes(spark: SparkSession, url: str) -> bytes:
    """Read a small file.

    Parameters
    ----------
    spark
        Whose Hadoop configuration is used.
    url
        ``s3://…``, ``s3a://…``, ``file:///…`` or a path.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    OSError
        It could not be read.
    """
    jvm: Any = spark._jvm
    try:
        path = jvm.org.apache.hadoop.fs.Path(url)
        files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        stream = files.open(path)
        try:
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
    except Py4JJavaError as error:
        name = error.java_exception.getClass().getName()
        if name.endswith("FileNotFoundException"):
            raise FileNotFoundError(f"no such file: {url}") from error
        raise OSError(f"{url}: {error.java_exception.toString()}") from error
