"""What differs between Glue, EMR Serverless and the sandbox: one module each, the same two functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, cast

from etl.engines import emr, glue, sandbox
from etl.settings import Engine, KinesisSource


class EngineModule(Protocol):
    """What each engine's module offers."""

    KINESIS_FORMAT: str

    PASSES_OVER_CLOSED_SHARDS: bool
    """Whether what is unread of a shard when it is found closed is never read."""

    SPLITS_AGGREGATES: bool
    """Whether a batch may end inside an aggregate of Kinesis' producer library, whose records have no number."""

    def kinesis_options(
        self, source: KinesisSource, endpoint: str | None, shards: Sequence[str] = ()
    ) -> dict[str, str]:
        """Options of the engine's Kinesis connector; ``shards`` are needed where the start is a moment."""

    def credentials(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Options that give the connector its credentials."""


def module(engine: Engine) -> EngineModule:
    """The module of an engine."""
    return cast(EngineModule, {"glue": glue, "emr": emr, "sandbox": sandbox}[engine])
