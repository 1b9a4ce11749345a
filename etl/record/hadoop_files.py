"""Files by URL, through the JVM's Hadoop file systems: every engine has them set up, with its own credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
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
    with _at(spark, url) as (path, files):
        stream = files.open(path)
        try:
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()


def write_text(spark: SparkSession, url: str, text: str) -> None:
    """Write a small file as UTF-8, over one that is there: whoever reads it finds the old one or the new one.

    Object stores keep that by themselves, which write a file when it is closed; a local disk by a name that is changed.

    Raises
    ------
    OSError
        It could not be written; one that was there is as it was.
    """
    with _at(spark, url) as (path, files):
        if files.getScheme() == "file":
            _replace(Path(str(path.toUri().getPath())), text)
            return
        stream = files.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()


def _replace(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.half")
    half.write_text(text, encoding="utf-8", newline="")
    # Hadoop's checksum of the old one would condemn the new one; without any nothing is compared.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    half.replace(path)


def delete(spark: SparkSession, url: str) -> None:
    """Delete a folder with all that is in it; one that is not there is fine.

    Raises
    ------
    OSError
        It could not be deleted.
    """
    with _at(spark, url) as (path, files):
        files.delete(path, True)


def names(spark: SparkSession, url: str) -> list[str]:
    """List what is in a folder, by name; nothing where there is no such folder.

    Raises
    ------
    OSError
        It could not be read.
    """
    try:
        with _at(spark, url) as (path, files):
            return sorted(str(status.getPath().getName()) for status in files.listStatus(path))
    except FileNotFoundError:
        return []


def modified(spark: SparkSession, url: str) -> datetime:
    """When a file was written last, in UTC.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    OSError
        It could not be read.
    """
    with _at(spark, url) as (path, files):
        return datetime.fromtimestamp(files.getFileStatus(path).getModificationTime() / 1000, tz=UTC)


@contextmanager
def _at(spark: SparkSession, url: str) -> Iterator[tuple[Any, Any]]:
    """A URL as the JVM's path, and the file system that it lies in, whose errors become Python's."""
    jvm: Any = spark._jvm
    try:
        path = jvm.org.apache.hadoop.fs.Path(url)
        yield path, path.getFileSystem(spark._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName().endswith("FileNotFoundException"):
            raise FileNotFoundError(f"no such file: {url}") from error
        raise OSError(f"{url}: {error.java_exception.toString()}") from error


_SPOILED = ("ChecksumException", "not UTF-8")


def is_corrupt(error: OSError) -> bool:
    """Whether a file was read, and is not what was written."""
    return any(word in str(error) for word in _SPOILED)
