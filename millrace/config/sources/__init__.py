"""Sources of queries; one module for each kind of stream."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from millrace.config.sources.base import StreamConfig

GROUP = "millrace.sources"
"""Entry points by which an installed distribution adds kinds."""

SOURCES = {
    "kinesis": "millrace.config.sources.kinesis:KinesisStream",
    "kafka": "millrace.config.sources.kafka:KafkaTopic",
} | {each.name: each.value for each in entry_points(group=GROUP)}
"""Class with the configuration of a stream, by ``kind``."""

KINDS: dict[str, type[StreamConfig]] = {
    kind: EntryPoint(kind, loader, GROUP).load() for kind, loader in SOURCES.items()
}

if TYPE_CHECKING:
    Stream = StreamConfig
else:
    Stream = Annotated[Union[tuple(KINDS.values())], Field(discriminator="kind")]  # noqa: UP007 - made at run time
