"""Versions of engines and the Spark lines that they run: one table for configuration, jars, sandbox, tests and documents.

No other place defines the Spark, Scala, Python, Java, Iceberg or jars of a version. A new version is a row
of :data:`VERSIONS`; a new line is a row of :data:`LINES`, then ``make lock``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date


@dataclass(frozen=True)
class SparkLine:
    """A Spark line: the releases that share one set of jars.

    Attributes
    ----------
    name
        Such as ``4.1``.
    spark
        Release that tests and the sandbox run, and release of Spark's own jars.
    scala
        Version that those jars are built for.
    libraries
        Versions of other jars, by placeholder in ``toolchain/jars/*.xml``.
    """

    name: str
    spark: str
    scala: str
    libraries: Mapping[str, str]

    @property
    def is_default_line(self) -> bool:
        """True if ``pyproject.toml`` pins the line, so that it needs no separate Python environment."""
        return self.name == DEFAULT


DEFAULT = "3.5"
"""Line that `make setup` installs, and default line of tests."""

# Versions of libraries: Spark's own pom.xml of the release (kafka.version, commons-pool2.version, hadoop.version,
# aws.java.sdk.v2.version); Iceberg as the engines have it. 4.0.2 of the token provider was not in the registry that the lock
# was made with; its classes have not changed since 4.0.0.
LINES = {
    each.name: each
    for each in (
        SparkLine(
            "3.5", spark="3.5.7", scala="2.12",
            libraries={
                "iceberg": "1.10.0", "kafka_clients": "3.4.1", "commons_pool": "2.11.1", "token_provider": "3.5.7",
                "hadoop": "3.3.4",
            },
        ),
        SparkLine(
            "4.0", spark="4.0.2", scala="2.13",
            libraries={
                "iceberg": "1.10.1", "kafka_clients": "3.9.1", "commons_pool": "2.12.0", "token_provider": "4.0.0",
                "hadoop": "3.4.1", "aws_sdk": "2.25.53",
            },
        ),
        SparkLine(
            "4.1", spark="4.1.1", scala="2.13",
            libraries={
                "iceberg": "1.11.0", "kafka_clients": "3.9.1", "commons_pool": "2.12.1", "token_provider": "4.1.1",
                "hadoop": "3.4.2", "aws_sdk": "2.29.52",
            },
        ),
    )
}  # fmt: skip
"""Spark lines by name, oldest first."""

BY_LINE = frozenset({"avro", "kafka-client", "sandbox"})
"""Jar sets that differ by line; the others hold no Scala and fit all lines."""


@dataclass(frozen=True)
class EngineVersion:
    """Contents of a version of an engine, according to its vendor's documents.

    Attributes
    ----------
    engine
        Kind, as in the environment file.
    """

    engine: str
    name: str
    spark: str
    python: str
    java: str
    iceberg: str

    @property
    def spark_line(self) -> SparkLine:
        """Spark line that it runs."""
        return LINES[".".join(self.spark.split(".")[:2])]


VERSIONS = (
    # AWS Glue developer guide, "AWS Glue versions" and "Migrating to AWS Glue version 6.0".
    EngineVersion("glue", "5.1", spark="3.5.6", python="3.11", java="17", iceberg="1.10"),
    EngineVersion("glue", "6.0", spark="4.1.1", python="3.13", java="17", iceberg="1.11"),
    # EMR release guide and EMR Serverless user guide, read in November 2026. Python is the one that the launch document names. Spark and
    # Iceberg of 7.14.0 (2026-09-08) are those of AWS's announcement of 2026-09-22 (3.5.8-amzn-0, 1.10.1-amzn-1).
    EngineVersion("emr", "emr-7.13.0", spark="3.5.6", python="3.11", java="17", iceberg="1.10.0"),
    EngineVersion("emr", "emr-7.14.0", spark="3.5.8", python="3.11", java="17", iceberg="1.10.1"),
    EngineVersion("emr", "emr-spark-8.0.0", spark="4.0.2", python="3.11", java="17", iceberg="1.10.1"),
    # 2026-09-08, supported to 2029-09 (LTS).
    EngineVersion("emr", "emr-spark-8.1.0", spark="4.1.1", python="3.11", java="17", iceberg="1.11.0"),
    EngineVersion("emr", "emr-spark-8.2.0", spark="4.1.3", python="3.11", java="17", iceberg="1.11.0"),
)
"""All versions whose contents are known; a later one of the same series is taken to have those of the newest here."""

AS_OF = date(2026, 11, 27)
"""Date on which the table was last compared with AWS' documents."""

_SERIES = re.compile(r"(emr-(?:spark-)?(?=\d+\.\d+\.\d+$)|(?=\d+\.\d+$))(.*)")


def spark_version_by_engine_version(engine: str) -> dict[str, str]:
    """Return the Spark version of each version of an engine."""
    return {each.name: each.spark for each in VERSIONS if each.engine == engine}


def version_row(name: str) -> EngineVersion:
    """Return the row of a version; for one that is newer than the table, the row of the newest before it in its series.

    Raises
    ------
    KeyError
        It is older than all known ones of its series, or no version has such a name.
    """
    series, number = _series_and_number(name)
    earlier = [
        each
        for each in VERSIONS
        if _series_and_number(each.name)[0] == series and _series_and_number(each.name)[1] <= number
    ]
    if not earlier:
        raise KeyError(name)
    return max(earlier, key=lambda each: _series_and_number(each.name)[1])


def _series_and_number(name: str) -> tuple[str, tuple[int, ...]]:
    if (match := _SERIES.fullmatch(name)) is None:
        raise KeyError(name)
    return match[1], tuple(int(part) for part in match[2].split("."))


def check_engine_version(engine: str, name: object) -> object:
    """Check an engine's key ``version``: a version of the table, or a later one of such a form; return it.

    Raises
    ------
    ValueError
        It is neither.
    """
    with suppress(KeyError):
        # YAML reads 5.1 as a number.
        if isinstance(name, str) and version_row(name).engine == engine:
            return name
    raise ValueError(f"one of {', '.join(spark_version_by_engine_version(engine))}, or a later one")


def spark_line_of(spark: str) -> SparkLine:
    """Return the line of a Spark release, such as ``4.1.1``.

    Raises
    ------
    KeyError
        There is no such line.
    """
    return LINES[".".join(spark.split(".")[:2])]


def jar_set_name(name: str, line: SparkLine) -> str:
    """Return the name of a set of jars as in the lock, such as ``kafka-client-4.1``; the default line has no suffix."""
    return f"{name}-{line.name}" if name in BY_LINE and not line.is_default_line else name
