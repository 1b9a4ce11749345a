"""AWS DMS: one record of a change in each payload."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from millrace.config.formats.change_format_base import ChangeFormat
from millrace.etl.launch import formats as launch


class DmsFormat(ChangeFormat):
    """One record of AWS DMS, as its targets Kinesis and Kafka get it; `schema` describes a row of the table."""

    kind: Literal["dms"]
    payload: Literal["json"] = Field(
        default="json",
        description="Serialization of the records: DMS's message formats json and json-unformatted.",
        examples=["json"],
    )

    def launch_settings(self) -> launch.DmsFormat:
        """Return its keys."""
        return launch.DmsFormat(self.payload)
