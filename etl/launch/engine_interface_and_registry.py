"""Engines: options of each one's Kinesis connector, its behaviour, and the registry by the names of launch documents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from . import typed_json
from .errors import SettingsError

if TYPE_CHECKING:
    from .sources import KinesisSource

KINESIS_IN_PYTHON = "millrace-kinesis"
"""Format of the sandbox's reader (``millrace/sandbox/kinesis_reader``), with the options of Glue's connector and ``region``."""


class Engine(ABC):
    """Engine of a job; a launch document has only its name, which :func:`engine_of` takes."""

    ADDS_ARGUMENTS = False
    """True if the engine adds its own arguments to those of the entry script."""
    KINESIS_FORMAT = ""
    """Format of its Kinesis connector, as Spark names it."""
    PASSES_OVER_CLOSED_SHARDS = False
    """True if the connector never reads the rest of a shard that it finds closed."""
    SPLITS_AGGREGATES = False
    """True if a batch may end inside an aggregate of Kinesis' producer library, whose records have no number."""
    BY_CONSUMER_ARN = False
    """True if the connector takes a fan-out consumer's ARN instead of its name."""

    @abstractmethod
    def kinesis_options(
        self, source: KinesisSource, endpoint: str | None, shards: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return the options of its Kinesis connector.

        Parameters
        ----------
        source
            Stream to read, and the limits of a batch.
        endpoint
            Endpoint other than the region's own.
        shards
            All shards of the stream, where the start is a time.
        """

    def kinesis_format(self, spark: str) -> str:
        """Return the format of its Kinesis connector.

        Parameters
        ----------
        spark
            Version of Spark that runs the job.
        """
        return self.KINESIS_FORMAT

    def kinesis_credential_options(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the connector's options for credentials; none if it uses the job's role."""
        return {}


ENGINES = {
    "glue": ".engines.glue_kinesis_connector:Glue",
    "emr": ".engines.emr_kinesis_connector:Emr",
    "sandbox": ".engines.sandbox_kinesis_connector:Sandbox",
}
"""Class of each engine, by its kind in launch documents; imported when a job runs on it."""


def engine_class_path(kind: str) -> str:
    """Return the loader of an engine.

    Raises
    ------
    SettingsError
        The kind is unknown.
    """
    if kind not in ENGINES:
        raise SettingsError(f"settings.engine: {kind!r} is not one of {', '.join(map(repr, ENGINES))}")
    return ENGINES[kind]


def engine_of(kind: str) -> Engine:
    """Return the engine of a kind; errors as in :func:`engine_class_path`."""
    engine: Engine = typed_json.import_object(engine_class_path(kind))()
    return engine
