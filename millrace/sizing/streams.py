"""Number of shards and partitions, from traffic, cores and pinned values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from millrace.config.model import Environment, Stream
from millrace.config.problems import Finding
from millrace.sizing.capacity import choose_cores, partitions_for, whole_cores
from millrace.sizing.demand import QueryDemand
from millrace.sizing.model import Figure
from millrace.sizing.prices_and_limits import a_second, limits
from millrace.sizing.text_format import count

MIB = 1024**2


@dataclass(frozen=True)
class Demand:
    """The fewest partitions that one limit requires, as a real number, and that limit in words."""

    partitions: float
    why: str
    strictly: bool = False
    """True if a whole number of partitions needs one more: a reader at exactly its limit never catches up."""

    @property
    def fewest(self) -> int:
        """The fewest partitions as a whole number."""
        return math.floor(self.partitions) + 1 if self.strictly else math.ceil(self.partitions)


def demands(stream: Stream, readers: int, again: float = 0.0, stretch: float = 1.0) -> tuple[Demand, ...]:
    """Return the demands of a stream's traffic at its peak.

    Parameters
    ----------
    stream
        Has the limits of one partition; all readers without fan-out share its output.
    readers
        Queries that read it without fan-out.
    again
        Rate of all these readers together during catch-up, as a multiple of the peak; a reader with fan-out has a shard's
        output for itself and counts alone.
    stretch
        Factor of the reading rate between the fixed costs of batches over the average rate.
    """
    traffic = stream.traffic
    records = traffic.records_per_second * traffic.peak_factor
    size = records * traffic.record_size
    part = stream.parts.removesuffix("s")
    times = max(float(readers), again)
    found = []
    for limit in stream.limits:
        each = a_second(limit)
        if limit.of == "records in":
            found.append(Demand(records / each, f"{records:,.0f} records/s in at peak, {each:,g} a {part}"))
        elif limit.of == "bytes in":
            found.append(Demand(size / each, f"{size / MIB:,.1f} MiB/s in at peak, {each / MIB:g} a {part}"))
        elif times * stretch > 1:
            read = size * times * stretch
            when = "at peak" if times == readers else "while catching up"
            to = count(max(1, readers), "reader")
            between = " between batches' fixed costs" if stretch > 1 else ""
            why = f"{read / MIB:,.1f} MiB/s out {when} to {to}{between}, {each / MIB:g} a {part}"
            found.append(Demand(read / each, why, strictly=True))
    return tuple(found)


def partitions(
    name: str, stream: Stream, readers: Sequence[QueryDemand], cores: int | None, spare: float = 0.0
) -> tuple[Figure[int], Finding | None]:
    """Size a stream.

    Parameters
    ----------
    name
        In the environment.
    readers
        The demands of queries that read it.
    cores
        Cores of the reader with the most work if its job's cores are pinned.
    spare
        Partitions beyond those that the traffic needs, as a share of them.

    Returns
    -------
    tuple
        Partitions that readers find, and a finding if a pinned number is below the need of the traffic.
    """
    unit = stream.parts
    shared = [query_demand.again for query_demand in readers if not query_demand.fan_out]
    # Readers of a shard share its output in equal parts, whichever of them catches up.
    again = max(
        [
            len(shared) * max(shared, default=0.0),
            *(query_demand.again for query_demand in readers if query_demand.fan_out),
        ]
    )
    stretch = max(
        (query_demand.work.overhead_factor for query_demand in readers if query_demand.work.alone),
        default=1.0,
    )
    asked = demands(stream, len(shared), again, stretch)
    binding = max(asked, key=lambda demand: (demand.fewest, demand.partitions))
    fewest = max(1, binding.fewest)
    assumed = stream.traffic.basis == "assumed"
    pinned = stream.given_partitions
    if pinned is not None:
        whose = "the existing stream has them" if stream.belongs_to_others else "pinned"
        figure = Figure(pinned, unit, f"{whose}; the traffic needs {fewest}: {binding.why}", "pinned")
        if stream.refuses_fewer and pinned < fewest:
            return figure, Finding(("streams", name, unit), str(pinned), f"at least {fewest}: {binding.why}")
        return figure, None
    if stream.elastic_limits is not None:
        first, headroom = (limits()[name] for name in stream.elastic_limits)
        opened = max(int(first), math.ceil(binding.partitions * headroom))
        why = f"AWS opens {first:g} at first, later about {headroom:g} times what {binding.why} needs"
        return Figure(opened, unit, why, assumed=True), None
    if spare:
        fewest = math.ceil(binding.partitions * (1 + spare))
        binding = replace(binding, why=f"{binding.why}, {spare:.0%} to spare")
    if not readers:
        return Figure(fewest, unit, f"{binding.why}; no job reads it", assumed=assumed), None
    main = max(readers, key=lambda query_demand: query_demand.least_cores)
    shards, own = _with_cores(main, fewest, cores, paid=stream.refuses_fewer)
    assumed = assumed or main.assumed
    if shards == own:
        return Figure(
            shards, unit, f"one for each core of {main.query}: {binding.why}", assumed=assumed
        ), None
    waves = count(math.ceil(shards / own), "wave")
    take = "takes" if own == 1 else "take"
    why = f"{binding.why}; {count(own, 'core')} of {main.query} {take} them in {waves}"
    return Figure(shards, unit, why, assumed=assumed), None


def keep_partitions(environment: Environment, name: str, planned: Figure[int]) -> Figure[int]:
    """Return the partitions of a topic that exists where the plan has fewer: a topic never loses one."""
    deployed = environment.deployed.partitions.get(name, 0)
    if planned.origin == "pinned" or planned.value >= deployed:
        return planned
    why = f"as deployed, as a topic never loses a partition; {planned.value} would do: {planned.why}"
    return replace(planned, value=deployed, why=why)


_CORE = {True: 4.0, False: 1e6}
"""Partitions for the price of one core of the cheapest workers: of a stream that is paid by the shard, and of a topic."""


def _with_cores(main: QueryDemand, fewest: int, cores: int | None, *, paid: bool) -> tuple[int, int]:
    """Return partitions, and cores of the reader with the most work, that are the cheapest together.

    More partitions than the fewest can save the cores that are idle in the last wave.

    Parameters
    ----------
    main
        Demand of that reader.
    cores
        Its cores, if pinned.
    paid
        Whether each partition costs money.
    """
    most = partitions_for(cores or whole_cores(main.least_cores), main.least_cores, fewest)
    if cores is not None:
        return most, cores
    overhead = limits()["spark.repartition.overhead"]
    candidates = (
        (count, choose_cores(count, main.needed, overhead, read_at_once=main.read_at_once).cores)
        for count in range(fewest, most + 1)
        if count > main.read_at_once
    )
    return min(candidates, key=lambda each: (each[0] + _CORE[paid] * each[1], each[0]))
