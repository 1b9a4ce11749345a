"""The sandbox: Qubole's Kinesis connector, of the same family as Glue's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from etl.engines import glue
from etl.engines.glue import KINESIS_FORMAT, PASSES_OVER_CLOSED_SHARDS, SPLITS_AGGREGATES
from etl.errors import StartError
from etl.settings import KinesisSource

__all__ = [
    "KINESIS_FORMAT",
    "PASSES_OVER_CLOSED_SHARDS",
    "SPLITS_AGGREGATES",
    "credentials",
    "kinesis_options",
]


def kinesis_options(
    source: KinesisSource, endpoint: str | None, shards: Sequence[str] = ()
) -> dict[str, str]:
    """Options of Glue's connector, without fan-out and roles: this one and its servers know neither.

    Parameters
    ----------
    source
        What to read, and how much of it in a batch.
    endpoint
        The local server.
    shards
        All of the stream, where the start is a moment.
    """
    return glue.kinesis_options(dataclasses.replace(source, consumer=None, role=None), endpoint, shards)


def credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """The keys that a local Kinesis takes; it has no roles.

    Parameters
    ----------
    environment
        With ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``.

    Raises
    ------
    StartError
        One of them is not set.
    """
    missing = [k for k in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY") if not environment.get(k)]
    if missing:
        raise StartError(f"the sandbox reads Kinesis with {' and '.join(missing)}: not set")
    return {
        "awsAccessKeyId": environment["AWS_ACCESS_KEY_ID"],
        "awsSecretKey": environment["AWS_SECRET_ACCESS_KEY"],
    }
