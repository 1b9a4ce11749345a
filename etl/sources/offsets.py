"""Which offsets of a topic a batch holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from etl.settings import KafkaSource
from etl.sources.kafka import by_shard


@dataclass(frozen=True)
class OffsetRange:
    """The offsets of a batch, by partition: from ``start`` up to, not including, ``end``."""

    start: Mapping[str, int]
    end: Mapping[str, int]

    @classmethod
    def of(cls, source: KafkaSource, start: Any, end: Any) -> OffsetRange | None:
        """From Spark's offsets; None where the checkpoint no longer knows them.

        Parameters
        ----------
        source
            What is read.
        start, end
            ``{topic: {partition: offset}}``; ``start`` is None for the first batch of a checkpoint.
        """
        last = by_shard(source, end)
        return None if last is None else cls(by_shard(source, start) or {}, last)

    @classmethod
    def parse(cls, text: str) -> OffsetRange:
        """Read what :meth:`text` wrote."""
        found = json.loads(text)
        return cls(found["start"], found["end"])

    def text(self) -> str:
        """For a commit's property."""
        return json.dumps({"start": self.start, "end": self.end}, sort_keys=True, separators=(",", ":"))

    def follows(self, before: OffsetRange) -> bool:
        """Whether it begins where the other ended; a partition that is new begins by itself."""
        return bool(self.start) and all(self.start.get(p) == offset for p, offset in before.end.items())
