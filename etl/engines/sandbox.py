"""The sandbox: Qubole's Kinesis connector, of the same family as Glue's."""

from __future__ import annotations

from collections.abc import Mapping

from etl.engines.glue import KINESIS_FORMAT, kinesis_options
from etl.errors import StartError

__all__ = ["KINESIS_FORMAT", "credentials", "kinesis_options"]


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
