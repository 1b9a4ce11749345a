"""Histories of keys in random order of arrival at the sink, and what a plain computation says is the last of each key."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from tests.spark.source_batches import ENVELOPE, EPOCH

FIELDS = f"{ENVELOPE.removesuffix(', payload BINARY')}, k STRING, n INT, _deleted BOOLEAN"


@dataclass
class History:
    """Records of some keys, as a ledger has them: in the order in which they were sent.

    A third of the keys move to another partition half way, as with an added partition; a third are of a stream whose numbers
    gain a digit; the others stay in their partition, and their times say nothing.
    """

    seed: int
    keys: int = 9
    rounds: int = 8
    last: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.choose = random.Random(self.seed)
        self.records: list[dict[str, Any]] = []
        offsets = {"0": 900, "1": 10, "2": 0}
        for n in range(self.rounds * self.keys):
            key, step = n % self.keys, n // self.keys
            name, at = f"k{key}", EPOCH + timedelta(seconds=n)
            deletes = self.choose.random() < 0.2
            record: dict[str, Any] = {"k": name, "n": n, "_deleted": deletes, "_arrived_at": at}
            if key % 3 == 0:
                shard = "0" if step < self.rounds // 2 else str(1 + key % 2)
                record |= self._kafka(offsets, shard)
            elif key % 3 == 1:
                record |= {
                    "_id": f"s/{9_970 + n}",
                    "_source": "s",
                    "_shard": None,
                    "_position": str(9_970 + n),
                }
            else:
                record |= self._kafka(offsets, "0")
                record["_arrived_at"] = EPOCH + timedelta(seconds=self.choose.randrange(1000))
            record |= {"_key": bytearray(name.encode())}
            self.records.append(record)
            self.last[name] = None if deletes else n

    @staticmethod
    def _kafka(offsets: dict[str, int], shard: str) -> dict[str, Any]:
        offsets[shard] += 1
        return {
            "_id": f"t/{shard}/{offsets[shard]}", "_source": "t", "_shard": shard,
            "_position": str(offsets[shard]).zfill(20),
        }  # fmt: skip

    def batches(self, count: int) -> list[list[dict[str, Any]]]:
        """All records in random batches, and some of them once more."""
        mixed = self.choose.sample(self.records, len(self.records))
        mixed += self.choose.sample(self.records, len(self.records) // 4)
        size = -(-len(mixed) // count)
        return [mixed[first : first + size] for first in range(0, len(mixed), size)]


def frame_of(spark: SparkSession, records: list[dict[str, Any]]) -> DataFrame:
    """Good records with a key, a number, and whether they delete."""
    schema = spark.createDataFrame([], FIELDS).schema
    rows = [tuple(record.get(name) for name in schema.fieldNames()) for record in records]
    return spark.createDataFrame(spark.sparkContext.parallelize(rows, 2), schema)
