"""Which offsets of Kafka topics a batch holds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

MOST_PARTITIONS = 200
"""Of a range that is written into a commit: the table's metadata keeps it for each of thousands of commits."""


@dataclass(frozen=True)
class OffsetRange:
    """The offsets of a batch, by partition: from ``start`` up to, not including, ``end``.

    A partition that only ``end`` names is new, and begins by itself.
    """

    start: Mapping[str, int]
    end: Mapping[str, int]

    def of(self, prefix: str) -> OffsetRange:
        """Of those partitions only whose names begin like this."""
        return OffsetRange(
            *({p: at for p, at in ends.items() if p.startswith(prefix)} for ends in (self.start, self.end))
        )

    def without(self, prefix: str) -> OffsetRange:
        """The same with shorter names of partitions."""
        return OffsetRange(
            *({p.removeprefix(prefix): at for p, at in ends.items()} for ends in (self.start, self.end))
        )

    def text(self) -> str | None:
        """For a commit's property; None where there are too many partitions for that."""
        if len(self.end) > MOST_PARTITIONS:
            return None
        return json.dumps({"start": self.start, "end": self.end}, sort_keys=True, separators=(",", ":"))
