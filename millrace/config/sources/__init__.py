"""Sources of queries; one module for each kind of stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from millrace.config.base import load_kinds
from millrace.config.sources.base import StreamConfig

KINDS: dict[str, type[StreamConfig]] = load_kinds(
    "millrace.sources",
    {
        "kinesis": "millrace.config.sources.kinesis:KinesisStream",
        "kafka": "millrace.config.sources.kafka:KafkaTopic",
    },
)
"""Class with the configuration of a stream, by ``kind``."""

if TYPE_CHECKING:
    Stream = StreamConfig
else:
    Stream = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007 - made at run time
