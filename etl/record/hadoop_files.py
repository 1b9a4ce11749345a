"""Files by URL, through the JVM's Hadoop file systems, which every engine configures with its own credentials."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


class DamagedFileError(OSError, ValueError):
    """Error of a file that was read, but is not what was written."""


def read_text(spark: SparkSession, url: str) -> str:
    """Read a small file as UTF-8.

    Parameters
    ----------
    spark, url
        As in :func:`read_bytes`.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    DamagedFileError
        It is not UTF-8, or has another checksum.
    OSError
        It cannot be read.
    """
    data = read_bytes(spark, url)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{url} is not UTF-8 text (byte {error.start})") from error


def read_bytes(spark: SparkSession, url: str) -> bytes:
    """Read a small file.

    Parameters
    ----------
    spark
        Session whose Hadoop configuration is used.
    url
        ``s3://…``, ``s3a://…``, ``file:///…`` or a path.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    OSError
        It cannot be read.
    """
    jvm: Any = spark._jvm
    with _file_system_with_python_errors(spark, url) as (path, files), closing(files.open(path)) as stream:
        return bytes(jvm.org.apache.commons.io.IOUtils.toByteArray(stream))


def write_text(spark: SparkSession, url: str, text: str) -> None:
    """Write or replace a small file as UTF-8; a reader finds the old file or the new one.

    Object stores guarantee this, because they write a file when it is closed; on a local disk a rename does.

    Raises
    ------
    OSError
        It cannot be written; an old file is unchanged.
    """
    with _file_system_with_python_errors(spark, url) as (path, files):
        if files.getScheme() == "file":
            _write_and_rename(Path(str(path.toUri().getPath())), text)
            return
        with closing(files.create(path, True)) as stream:
            stream.write(bytearray(text.encode()))


def _write_and_rename(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.half")
    half.write_text(text, encoding="utf-8", newline="")
    # Hadoop would compare the new file with the old checksum; without a checksum it compares nothing.
    path.with_name(f".{path.name}.crc").unlink(missing_ok=True)
    half.replace(path)


def delete_if_exists(spark: SparkSession, url: str) -> None:
    """Delete a folder with its content; a missing one is no error.

    Raises
    ------
    OSError
        It cannot be deleted.
    """
    with _file_system_with_python_errors(spark, url) as (path, files):
        files.delete(path, True)


def list_names(spark: SparkSession, url: str) -> list[str]:
    """List the names in a folder, sorted; empty if the folder does not exist.

    Raises
    ------
    OSError
        It cannot be read.
    """
    try:
        with _file_system_with_python_errors(spark, url) as (path, files):
            return sorted(str(status.getPath().getName()) for status in files.listStatus(path))
    except FileNotFoundError:
        return []


def modified_at(spark: SparkSession, url: str) -> datetime:
    """Return the time of a file's last write, in UTC.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    OSError
        It cannot be read.
    """
    with _file_system_with_python_errors(spark, url) as (path, files):
        return datetime.fromtimestamp(files.getFileStatus(path).getModificationTime() / 1000, tz=UTC)


@contextmanager
def _file_system_with_python_errors(spark: SparkSession, url: str) -> Iterator[tuple[Any, Any]]:
    """Yield a URL as the JVM's path, and its file system, whose errors become Python's."""
    jvm: Any = spark._jvm
    try:
        path = jvm.org.apache.hadoop.fs.Path(url)
        yield path, path.getFileSystem(spark._jsc.hadoopConfiguration())
    except Py4JJavaError as error:
        if error.java_exception.getClass().getName().endswith("FileNotFoundException"):
            raise FileNotFoundError(f"no such file: {url}") from error
        text = str(error.java_exception.toString())
        raise (DamagedFileError if "ChecksumException" in text else OSError)(f"{url}: {text}") from error
