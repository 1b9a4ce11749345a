"""Files by URL, through the JVM's Hadoop file systems: every engine has them set up, with its own credentials."""

from __future__ import annotations

from dataclasses import dataclass
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
    try:
        path, files = _at(spark, url)
        stream = files.open(path)
        try:
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
        finally:
            stream.close()
    except Py4JJavaError as error:
        raise _as_python(url, error) from error


def write_text(spark: SparkSession, url: str, text: str) -> None:
    """Write a small file as UTF-8, over one that is there: whoever reads it finds the old one or the new one.

    Object stores keep that by themselves, which write a file when it is closed; a local disk by a name that is changed.

    Raises
    ------
    OSError
        It could not be written; one that was there is as it was.
    """
    try:
        path, files = _at(spark, url)
        if files.getScheme() == "file":
            _replace(Path(str(path.toUri().getPath())), text)
            return
        stream = files.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
    except Py4JJavaError as error:
        raise _as_python(url, error) from error


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
    try:
        path, files = _at(spark, url)
        files.delete(path, True)
    except Py4JJavaError as error:
        raise _as_python(url, error) from error


def names(spark: SparkSession, url: str) -> list[str]:
    """List what is in a folder, by name; nothing where there is no such folder.

    Raises
    ------
    OSError
        It could not be read.
    """
    return sorted(str(status.getPath().getName()) for status in _statuses(spark, url))


@dataclass(frozen=True)
class Entry:
    """What is in a folder: a file with its size in bytes, or a folder, which has none."""

    name: str
    size: int | None


def entries(spark: SparkSession, url: str) -> list[Entry]:
    """List what is in a folder with sizes, by name, in one call of the file system; nothing where there is no such folder.

    Raises
    ------
    OSError
        It could not be read.
    """
    found = (
        Entry(str(status.getPath().getName()), None if status.isDirectory() else int(status.getLen()))
        for status in _statuses(spark, url)
    )
    return sorted(found, key=lambda entry: entry.name)


def _statuses(spark: SparkSession, url: str) -> list[Any]:
    try:
        path, files = _at(spark, url)
        return list(files.listStatus(path))
    except Py4JJavaError as error:
        converted = _as_python(url, error)
        if isinstance(converted, FileNotFoundError):
            return []
        raise converted from error


def read_part(spark: SparkSession, url: str, begin: int, count: int) -> bytes:
    """Read some bytes of a file, all of which are there.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    OSError
        It could not be read, or ends before.
    """
    jvm: Any = spark._jvm
    try:
        path, files = _at(spark, url)
        stream = files.open(path)
        try:
            stream.seek(begin)
            return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream, count))
        finally:
            stream.close()
    except Py4JJavaError as error:
        raise _as_python(url, error) from error


def modified(spark: SparkSession, url: str) -> datetime:
    """When a file was written last, in UTC.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    OSError
        It could not be read.
    """
    try:
        path, files = _at(spark, url)
        return datetime.fromtimestamp(files.getFileStatus(path).getModificationTime() / 1000, tz=UTC)
    except Py4JJavaError as error:
        raise _as_python(url, error) from error


def _at(spark: SparkSession, url: str) -> tuple[Any, Any]:
    """A URL as the JVM's path, and the file system that it lies in."""
    jvm: Any = spark._jvm
    path = jvm.org.apache.hadoop.fs.Path(url)
    return path, path.getFileSystem(spark._jsc.hadoopConfiguration())


def _as_python(url: str, error: Py4JJavaError) -> OSError:
    name = error.java_exception.getClass().getName()
    if name.endswith("FileNotFoundException"):
        return FileNotFoundError(f"no such file: {url}")
    return OSError(f"{url}: {error.java_exception.toString()}")


_SPOILED = ("ChecksumException", "not UTF-8")


def spoiled(error: OSError) -> bool:
    """Whether a file was read, and is not what was written."""
    return any(word in str(error) for word in _SPOILED)
