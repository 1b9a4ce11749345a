"""Base of sinks that are streams of the environment."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from pydantic import Field

from millrace.config.document.explain_validation_errors import findings_of_unknown_name
from millrace.config.document.problems import Finding
from millrace.config.sinks.base import Column, SinkConfig, SinkUse
from millrace.config.sources.kafka import KafkaTopic
from millrace.config.sources.kinesis import KinesisStream
from millrace.config.units import Size


class StreamSink(SinkConfig):
    """A stream of this environment.

    Attributes
    ----------
    stream_kind, label
        Class of the stream, and its name in words.
    """

    stream_kind: ClassVar[type[KafkaTopic] | type[KinesisStream]]
    label: ClassVar[str]

    key: Column | None = Field(
        default=None,
        description="Column with the message's key (Kinesis: partition key); left out, the key is the identity.",
        examples=["customer"],
    )
    max_record_size: Size = Field(  # type: ignore[assignment]  # pydantic parses the default (validate_default)
        default="1000KiB",
        description="Largest message; a larger one becomes a dead letter.",
        examples=["500KiB"],
    )

    @property
    def stream_name(self) -> str:
        """Its stream's name in the file."""
        return str(getattr(self, self.named_by))

    def check(self, use: SinkUse) -> Iterator[Finding]:
        """Check that the stream exists, is of the right kind, and is not one that the query reads."""
        streams, name, path = (
            use.environment.streams,
            self.stream_name,
            (*use.path, self.named_by),
        )
        stream = streams.get(name)
        if isinstance(stream, self.stream_kind):
            yield from self.check_stream(stream, use)
        known = [each for each, other in streams.items() if isinstance(other, self.stream_kind)]
        yield from findings_of_unknown_name(path, name, known, f"a {self.label} of this environment")
        if name in use.read:
            yield Finding(
                path, name, "another stream than the one that the query reads: it would feed itself"
            )

    @abstractmethod
    def check_stream(self, stream: Any, use: SinkUse) -> Iterator[Finding]:
        """Check that the stream, which is of the right kind, can be written and takes records of the largest size."""

    def check_largest_row_fits(
        self, most: int, why: str, use: SinkUse, hint: str | None = None
    ) -> Iterator[Finding]:
        """Check that the stream takes the largest row; otherwise such a row would fail its batch at every attempt."""
        if self.max_record_size > most:
            yield Finding(
                (*use.path, "max_record_size"),
                f"{int(self.max_record_size)}B",
                f"at most {most // 1024}KiB, {why}",
                hint,
            )
