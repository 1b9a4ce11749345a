"""How far a batch of a Kinesis query has read, by shard, as its connector keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

AFTER, ENDED = "AFTER_SEQUENCE_NUMBER", "SHARD_END"


@dataclass(frozen=True)
class Positions:
    """Where each shard goes on, as an entry of Spark's offset log has it.

    The connectors whose source is open write it alike. An entry of another shape has no shards here: then
    nothing is checked by it, and ``known`` says so.

    Attributes
    ----------
    shards
        Every shard of the entry.
    read
        Shard to the sequence number of the last record that was read from it.
    ended
        Shards that were read to their end.
    """

    shards: frozenset[str]
    read: Mapping[str, str]
    ended: frozenset[str]
    known: bool = True

    @classmethod
    def of(cls, offset: Any) -> Positions:
        """Read an entry, decoded from JSON; None gives no shard.

        Parameters
        ----------
        offset
            ``{"metadata": {...}, "shardId-…": {"iteratorType": …, "iteratorPosition": …}}``.
        """
        if offset is None:
            return cls(frozenset(), {}, frozenset())
        shards = {k: v for k, v in offset.items() if k != "metadata"} if isinstance(offset, dict) else {}
        shaped = [
            isinstance(v, dict) and {"iteratorType", "iteratorPosition"} <= v.keys() for v in shards.values()
        ]
        if not shaped or not all(shaped):
            return cls(frozenset(), {}, frozenset(), known=False)
        return cls(
            frozenset(shards),
            {k: v["iteratorPosition"] for k, v in shards.items() if v["iteratorType"] == AFTER},
            frozenset(k for k, v in shards.items() if v["iteratorType"] == ENDED),
        )

    @property
    def reading(self) -> frozenset[str]:
        """Shards that the batch reads."""
        return self.shards - self.ended

    def moved_since(self, earlier: Positions) -> Mapping[str, str]:
        """Shards that were read further since, with the last record of each."""
        return {k: v for k, v in self.read.items() if earlier.read.get(k) != v}
