"""The sandbox: Qubole's Kinesis connector, of the same family as Glue's."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from ..record.errors import StartError
from .glue import GlueFamily

if TYPE_CHECKING:
    from ..sources.kinesis.source import KinesisSource


@dataclass(frozen=True)
class Sandbox(GlueFamily):
    """A computer of a developer."""

    kind: Literal["sandbox"] = "sandbox"

    def kinesis_options(
        self, source: KinesisSource, endpoint: str | None, shards: Sequence[str] = ()
    ) -> dict[str, str]:
        """Options of Glue's connector, without fan-out and roles: this one and its servers know neither."""
        return super().kinesis_options(
            dataclasses.replace(source, consumer=None, role=None), endpoint, shards
        )

    def credentials(self, environment: Mapping[str, str]) -> dict[str, str]:
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
