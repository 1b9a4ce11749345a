"""JSON: one object in each payload."""

from __future__ import annotations

from typing import Literal

from millrace.config.formats.base import FormatConfig, FormatDocumentation


class JsonFormat(FormatConfig):
    """One JSON object in each payload."""

    reading = FormatDocumentation(
        "`.ddl`", "Spark's parser", "fields that are not in the schema", "anything except one object"
    )
    in_firehose = True
    payloads = "millrace.sandbox.payloads.json:payloads"

    kind: Literal["json"] = "json"
