"""Shards and partitions: what the traffic needs, what the cores like, what is pinned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from millrace.config.model import KafkaTopic, KinesisStream, Stream
from millrace.config.problems import Finding
from millrace.sizing.capacity import partitions_for, whole_cores
from millrace.sizing.hops import Hop
from millrace.sizing.model import Figure
from millrace.sizing.tables import limits
from millrace.sizing.words import count

MIB = 1024**2


@dataclass(frozen=True)
class Demand:
    """The fewest partitions that one limit asks for, as a real number, and that limit in words."""

    partitions: float
    why: str


def demands(stream: Stream, readers: int) -> tuple[Demand, ...]:
    """Return what the traffic at its peak asks of a stream.

    Parameters
    ----------
    stream
        Kinesis: 1,000 records/s and 1 MiB/s in, 2 MiB/s out shared by all readers
        without fan-out, for each shard. Kafka: bytes in for each partition.
    readers
        Queries that read it.
    """
    traffic, known = stream.traffic, limits()
    records = traffic.records_per_second * traffic.peak_factor
    size = records * traffic.record_size
    if isinstance(stream, KafkaTopic):
        each = known["kafka.partition.bytes_in_per_second"]
        return (Demand(size / each, f"{size / MIB:,.1f} MiB/s in at peak, {each / MIB:g} a partition"),)
    found = [
        Demand(
            records / known["kinesis.shard.records_in_per_second"],
            f"{records:,.0f} records/s in at peak, 1,000 a shard",
        ),
        Demand(
            size / known["kinesis.shard.bytes_in_per_second"],
            f"{size / MIB:,.1f} MiB/s in at peak, 1 a shard",
        ),
    ]
    if readers > 1:
        read = size * readers
        found.append(
            Demand(
                read / known["kinesis.shard.bytes_out_per_second"],
                f"{read / MIB:,.1f} MiB/s out at peak to {readers} readers, 2 a shard",
            )
        )
    return tuple(found)


def partitions(
    name: str, stream: Stream, readers: Sequence[Hop], cores: int | None
) -> tuple[Figure[int], Finding | None]:
    """Size a stream.

    Parameters
    ----------
    name
        In the environment.
    stream
        The stream.
    readers
        The land queries that read it.
    cores
        Of the reader with the most work where its job's cores are pinned.

    Returns
    -------
    tuple
        What readers find, and a finding where a pinned number is below what the traffic needs.
    """
    kinesis = isinstance(stream, KinesisStream)
    unit = "shards" if kinesis else "partitions"
    binding = max(demands(stream, len(readers)), key=lambda demand: demand.partitions)
    fewest = max(1, math.ceil(binding.partitions))
    assumed = stream.traffic.basis == "assumed"
    pinned = stream.shards if isinstance(stream, KinesisStream) else stream.partitions
    if pinned is not None:
        whose = "the existing stream has them" if stream.existing else "pinned"
        figure = Figure(pinned, unit, f"{whose}; the traffic needs {fewest}: {binding.why}", "pinned")
        if kinesis and pinned < fewest:
            key = "shards"
            return figure, Finding(("streams", name, key), str(pinned), f"at least {fewest}: {binding.why}")
        return figure, None
    if isinstance(stream, KinesisStream) and stream.mode == "on-demand":
        known = limits()
        first, headroom = known["kinesis.on_demand.first_shards"], known["kinesis.on_demand.headroom"]
        opened = max(int(first), math.ceil(binding.partitions * headroom))
        why = f"AWS opens {first:g} at first, later about {headroom:g} times what {binding.why} needs"
        return Figure(opened, unit, why, assumed=True), None
    if not readers:
        return Figure(fewest, unit, f"{binding.why}; no job reads it", assumed=assumed), None
    main = max(readers, key=lambda hop: hop.needed)
    own = cores or whole_cores(main.needed)
    shards = partitions_for(own, main.needed, fewest)
    assumed = assumed or main.assumed
    if shards == own:
        return Figure(
            shards, unit, f"one for each core of {main.query}: {binding.why}", assumed=assumed
        ), None
    waves = count(math.ceil(shards / own), "wave")
    take = "takes" if own == 1 else "take"
    why = f"{binding.why}; {count(own, 'core')} of {main.query} {take} them in {waves}"
    return Figure(shards, unit, why, assumed=assumed), None
