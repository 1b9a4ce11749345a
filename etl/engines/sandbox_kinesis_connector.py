"""The sandbox: Qubole's Kinesis connector, of Glue's family; on Spark 4, which it does not support, the sandbox's own reader."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from ..launch.engine_interface_and_registry import KINESIS_IN_PYTHON
from ..launch.sources import KinesisSource
from .glue_kinesis_connector import EngineWithGlueConnector


class Sandbox(EngineWithGlueConnector):
    """A developer's computer."""

    def kinesis_options(
        self, source: KinesisSource, endpoint: str | None, shards: Sequence[str] = ()
    ) -> dict[str, str]:
        """Return the options of Glue's connector without fan-out and roles: this connector and its servers support neither."""
        return super().kinesis_options(
            dataclasses.replace(source, consumer=None, role=None), endpoint, shards
        )

    def kinesis_format(self, spark: str) -> str:
        """Return the connector's format on Spark 3, else that of the sandbox's own reader."""
        return self.KINESIS_FORMAT if spark.startswith("3.") else KINESIS_IN_PYTHON

    def kinesis_credential_options(self, environment: Mapping[str, str]) -> dict[str, str]:
        """Return the keys for a local Kinesis, which has no roles.

        Parameters
        ----------
        environment
            With ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, which ``millrace sandbox`` sets.
        """
        return {
            "awsAccessKeyId": environment["AWS_ACCESS_KEY_ID"],
            "awsSecretKey": environment["AWS_SECRET_ACCESS_KEY"],
        }
