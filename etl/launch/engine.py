"""What the core asks of every engine: options of its Kinesis connector, and how that behaves."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .engine_kinds import ENGINES

if TYPE_CHECKING:
    from ..sources.kinesis.source import KinesisSource

KINESIS_IN_PYTHON = "millrace-kinesis"
"""Format of the sandbox's own reader (``millrace/sandbox/kinesis_reader``), which takes the options of Glue's connector and ``region``."""


@dataclass(frozen=True)
class Engine(ABC):
    """What a job runs on; a launch document has its name alone, of which :mod:`etl.launch.typed_json` makes the class."""

    KINDS = ENGINES
    ADDS_ARGUMENTS = False
    """Whether arguments of its own reach the entry script."""
    KINESIS_FORMAT = ""
    """Of its Kinesis connector, as Spark names it."""
    PASSES_OVER_CLOSED_SHARDS = False
    """Whether what is unread of a shard when it is found closed is never read."""
    SPLITS_AGGREGATES = False
    """Whether a batch may end inside an aggregate of Kinesis' producer library, whose records have no number."""
    BY_CONSUMER_ARN = False
    """Whether its connector wants a fan-out consumer's ARN in the place of its name."""

    kind: str

    @abstractmethod
    def kinesis_options(
        self, source: KinesisSource, endpoint: str | None, shards: Sequence[str] = ()
    ) -> dict[str, str]:
        """Options of its Kinesis connector.

        Parameters
        ----------
        source
            What to read, and how much of it in a batch.
        endpoint
            Another endpoint than the region's own.
        shards
            All of the stream, where the start is a moment.
        """

    def kinesis_format(self, spark: str) -> str:
        """Name its Kinesis connector, as Spark knows it.

        Parameters
        ----------
        spark
            Release that runs the job.
        """
        return self.KINESIS_FORMAT

    def credentials(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Options that give the connector its credentials; none where the job's own role is used."""
        return {}
