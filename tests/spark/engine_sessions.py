"""Sessions with the Spark settings that a job finds on its engine."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pyspark.sql import SparkSession

from millrace.etl.queries import required_spark_settings
from millrace.sandbox.programs.run_launch_document_locally import engine_default_settings

ADAPTIVE = "spark.sql.adaptive.enabled"
BROADCAST = "spark.sql.autoBroadcastJoinThreshold"
PARTITIONS = "spark.sql.shuffle.partitions"


ODD = {
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.storeAssignmentPolicy": "LEGACY",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
}
"""Settings that change the meaning of SQL, as a company may have them for all of its sessions."""


@dataclass(frozen=True)
class Profile:
    """An engine with workers of a size, and what a user sets beside.

    Attributes
    ----------
    engine, version
        As a launch document has them.
    more
        Settings that come after the engine's.
    """

    engine: str
    version: str
    more: Mapping[str, str]

    def __str__(self) -> str:
        return " ".join(
            [self.version, *(f"{name.rpartition('.')[2]}={value}" for name, value in self.more.items())]
        )

    def settings(self) -> dict[str, str]:
        """All that a batch of this engine sees."""
        workers = {"type": "G.1X", "max": 3, "vcpu": 4}
        result = engine_default_settings(
            {"engine": self.engine, "engine_version": self.version, "workers": workers}
        )
        # Inside a micro-batch Spark turns it off, before 4.1 and where there is state.
        result[ADAPTIVE] = result.pop("spark.sql.adaptive.streaming.stateless.enabled", "false")
        return {**result, **self.more, **required_spark_settings.RUNTIME}

    def session(self, spark: SparkSession) -> SparkSession:
        """A session of its own with what can be set while Spark runs; its catalogs are the other one's."""
        made = spark.newSession()
        for name, value in self.settings().items():
            if made.conf.isModifiable(name):
                made.conf.set(name, value)
        return made


def profiles() -> tuple[Profile, ...]:
    """Every engine as it is, with the number of tasks that our templates set, and with joins that are never broadcast."""
    engines = (("glue", "5.1"), ("glue", "6.0"), ("emr", "emr-7.13.0"), ("emr", "emr-spark-8.0.0"))
    ours = {PARTITIONS: "2"}
    result = [Profile(*engine, more) for engine in engines for more in (ours, ours | {BROADCAST: "-1"})]
    # What a job finds whose launch document says nothing: many tasks for few rows, and joins of either kind.
    return (
        *result,
        Profile("emr", "emr-7.13.0", {}),
        Profile("emr", "emr-7.13.0", {BROADCAST: "-1"}),
        Profile("emr", "emr-7.13.0", ODD),
    )


def profile_named(name: str) -> Profile:
    """One of :func:`profiles`, by what its tests are called.

    Raises
    ------
    LookupError
        There is none of that name; the error lists them.
    """
    result = {str(each): each for each in profiles()}
    if name not in result:
        raise LookupError(f"no profile {name!r}: {'; '.join(result)}")
    return result[name]
