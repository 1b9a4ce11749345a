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


def demands(stream: Stream, readers: int, again: float = 0.0) -> tuple[Demand, ...]:
    """Return what the traffic at its peak asks of a stream.

    Parameters
    ----------
    stream
        Kinesis: 1,000 records/s and 1 MiB/s in, 2 MiB/s out shared by all readers
        without fan-out, for each shard. Kafka: bytes in for each partition.
    readers
        Queries that read it without fan-out.
    again
        Times the peak that these read together while they catch up; what one with fan-out reads, which has a shard's
        output for itself, counts alone.
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
    times = max(float(readers), again)
    if times > 1:
        read = size * times
        when = "at peak" if times == readers else "while catching up"
        found.append(
            Demand(
                read / known["kinesis.shard.bytes_out_per_second"],
                f"{read / MIB:,.1f} MiB/s out {when} to {count(max(1, readers), 'reader')}, 2 a shard",
            )
        )
    return tuple(found)


CHANGES_A_DAY = 10
"""UpdateShardCount calls on one stream in 24 hours (Kinesis API reference)."""


def shard_steps(now: int, wanted: int) -> tuple[int, ...]:
    """Return the shard counts to pass through, as Kinesis at most doubles or halves in one change.

    Parameters
    ----------
    now
        Open shards of the deployed stream.
    wanted
        Shards of the plan.

    Returns
    -------
    tuple of int
        Ends with ``wanted``; empty where nothing changes.

    Examples
    --------
    >>> shard_steps(3, 20), shard_steps(20, 3), shard_steps(4, 8), shard_steps(8, 8)
    ((6, 12, 20), (10, 5, 3), (8,), ())
    """
    steps: list[int] = []
    while now != wanted:
        now = min(2 * now, wanted) if wanted > now else max(math.ceil(now / 2), wanted)
        steps.append(now)
    return tuple(steps)


def refused_change(name: str, stream: KinesisStream, wanted: Figure[int]) -> Finding | None:
    """Return a finding where Kinesis would refuse to go from the present shards to the plan's."""
    now = stream.shards_now
    if now is None or stream.mode == "on-demand":
        return None
    steps = shard_steps(now, wanted.value)
    if len(steps) < 2:
        return None
    path = "; ".join(
        f"shards: {after} with shards_now: {before}"
        for before, after in zip((now, *steps), steps, strict=False)
    )
    more = f", {CHANGES_A_DAY} changes a day" if len(steps) > CHANGES_A_DAY else ""
    return Finding(
        ("streams", name, "shards" if stream.shards is not None else "shards_now"),
        f"{now} shards now, {wanted.value} planned",
        f"{math.ceil(now / 2)} to {2 * now} shards in one change{more}",
        f"deploy one after the other: {path}",
    )


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
    shared = [hop.again for hop in readers if not hop.fan_out]
    again = max([sum(shared), *(hop.again for hop in readers if hop.fan_out)])
    binding = max(demands(stream, len(shared), again), key=lambda demand: demand.partitions)
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
