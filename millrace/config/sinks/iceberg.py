"""Iceberg: a table of the environment's database."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from millrace.config.base import TableName
from millrace.config.sinks.base import SinkConfig, SinkContext
from millrace.etl.launch import sinks as launch


class IcebergSink(SinkConfig):
    """An Iceberg table, written once per record identity."""

    refuses = False
    in_catalog = True
    in_lake = True
    is_public = True

    kind: Literal["iceberg"]
    table: TableName = Field(
        description="Name of the table in the environment's database.", examples=["clicks"]
    )

    def manual_erasure_steps(self, where: str, context: SinkContext) -> None:
        """Return None: ``millrace erase`` reaches the table."""

    def launch_settings(self, context: SinkContext) -> launch.IcebergSinkSettings:
        """Return the table with its database."""
        return launch.IcebergSinkSettings(context.names.table(self.table))
