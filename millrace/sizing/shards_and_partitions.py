"""Number of shards and partitions, from traffic, cores and pinned values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from millrace.config.document.problems import Finding
from millrace.config.model import Environment, Stream
from millrace.sizing.plan_model import Figure, FigureInput, Inputs, pinned_figure
from millrace.sizing.prices_and_limits import limit_input, limit_per_second, service_limits
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.demand_inputs import spare_inputs, traffic_inputs
from millrace.sizing.queries.partition_tasks import SourcePartitions
from millrace.sizing.queries.sizing_formulas import (
    choose_core_spread,
    fewest_partitions_for_busy_cores,
    whole_cores,
)
from millrace.sizing.readable_numbers import count, rate_text

MIB = 1024**2

_DIGITS = 9
"""Decimal places of a number of partitions before it becomes a whole one: 100,000 * 1.1 / 1,000 is 110.00000000000001 in floats."""


@dataclass(frozen=True)
class PartitionDemand:
    """The fewest partitions that one limit requires, as a real number, and that limit in words."""

    partitions: float
    why: str
    strictly: bool = False
    """True if a whole number of partitions needs one more: a reader at exactly its limit never catches up."""

    @property
    def fewest(self) -> int:
        """The fewest partitions as a whole number."""
        number = round(self.partitions, _DIGITS)
        return math.floor(number) + 1 if self.strictly else math.ceil(number)


def partition_demands_at_peak(
    stream: Stream, readers: int, catch_up_rate: float = 0.0, stretch: float = 1.0
) -> tuple[PartitionDemand, ...]:
    """Return the demands of a stream's traffic at its peak.

    Parameters
    ----------
    stream
        Has the limits of one partition; all readers without fan-out share its output.
    readers
        Queries that read it without fan-out.
    catch_up_rate
        Rate of all these readers together during catch-up, as a multiple of the peak; a reader with fan-out has a shard's
        output for itself and counts alone.
    stretch
        Factor of the reading rate between the fixed costs of batches over the average rate.
    """
    traffic = stream.traffic
    records = traffic.peak_records_per_second
    size = records * traffic.record_size
    part = stream.parts.removesuffix("s")
    times = max(float(readers), catch_up_rate)
    found = []
    for limit in stream.limits:
        each = limit_per_second(limit)
        if limit.of == "records in":
            counted = stream.traffic_as_service_counts
            puts = counted.records_per_second * traffic.peak_factor
            found.append(
                PartitionDemand(
                    puts / each,
                    f"{rate_text(puts)} {'records' if counted == traffic else 'aggregates'}/s in at peak, {each:,g} a {part}",
                )
            )
        elif limit.of == "bytes in":
            found.append(
                PartitionDemand(size / each, f"{size / MIB:,.1f} MiB/s in at peak, {each / MIB:g} a {part}")
            )
        elif times * stretch > 1:
            read = size * times * stretch
            when = "at peak" if times == readers else "while catching up"
            to = count(max(1, readers), "reader")
            between = " between batches' fixed costs" if stretch > 1 else ""
            why = f"{read / MIB:,.1f} MiB/s out {when} to {to}{between}, {each / MIB:g} a {part}"
            found.append(PartitionDemand(read / each, why, strictly=True))
    return tuple(found)


@dataclass(frozen=True)
class StreamWithReaders:
    """A stream with the queries that read it themselves.

    Attributes
    ----------
    name, stream
        The stream, and its name in the environment.
    readers
        Demands of these queries.
    spare
        Partitions beyond those that the traffic needs, as a share of them.
    main_job
        Job whose reader decides on the cores, if it reads this stream; else that of the reader with the most work.
    large_workers
        Whether workers with the most memory hold what a partition gets between two bounded runs, so that fewer partitions do.
    """

    name: str
    stream: Stream
    readers: Sequence[QueryDemand]
    spare: float = 0.0
    main_job: str = ""
    large_workers: bool = False

    @cached_property
    def main_reader(self) -> QueryDemand:
        """Reader with whose cores the partitions are chosen."""
        return max(
            self.readers,
            key=lambda demand: (
                demand.job == self.main_job,
                demand.least_cores,
                demand.needed,
                demand.work.sla,
            ),
        )

    def inputs(self) -> Inputs:
        """Return what its partitions are computed from."""
        size, path = int(self.stream.traffic.record_size), ("streams", self.name, "traffic", "record_size")
        return (
            *traffic_inputs(self.name, self.stream),
            FigureInput(f"{self.name} record size", f"{size:,} B", path=path),
            *spare_inputs(self.spare),
            *map(limit_input, self.stream.limits),
            *map(service_limits().as_input, self.stream.elastic_limit_names or ()),
            *(f"{demand.number_key_prefix}.cores" for demand in self.readers),
        )

    @property
    def is_left_to_plan(self) -> bool:
        """True if the plan chooses the partitions together with the cores that read them."""
        return (
            bool(self.readers)
            and self.stream.given_partitions is None
            and self.stream.elastic_limit_names is None
        )

    @cached_property
    def _largest_demands(self) -> tuple[PartitionDemand, PartitionDemand]:
        return self._largest_demand(one_wave=False), self._largest_demand(one_wave=True)

    def largest_demand(self, *, one_wave: bool) -> PartitionDemand:
        """Return what needs the most partitions.

        Parameters
        ----------
        one_wave
            Whether a reader reads all partitions at once, so that none is read during its fixed cost.
        """
        return self._largest_demands[one_wave]

    def _largest_demand(self, *, one_wave: bool) -> PartitionDemand:
        shared = [max(demand.again, demand.burst) for demand in self.readers if not demand.fan_out]
        # Readers of a shard share its output in equal parts, whichever of them catches up.
        again = max(
            [
                len(shared) * max(shared, default=0.0),
                *(max(demand.again, demand.burst) for demand in self.readers if demand.fan_out),
            ]
        )
        stretch = max(
            (
                demand.work.overhead_factor
                for demand in self.readers
                if demand.work.alone and (one_wave or len(demand.streams) > 1)
            ),
            default=1.0,
        )
        asked = partition_demands_at_peak(self.stream, len(shared), again, stretch)
        held = max((demand.held_by[self.large_workers] for demand in self.readers), default=0.0)
        asked += tuple(
            PartitionDemand(
                demand.partitions_to_read_at_a_time,
                f"{demand.query} reads in {demand.work.longest_batch_seconds:g} s what arrives in {demand.work.most_arrival_seconds:g} s",
                strictly=True,
            )
            for demand in self.readers
            if demand.work.most_arrival_seconds > demand.work.longest_batch_seconds
        )
        if self.stream.elastic_limit_names is not None:  # AWS opens them for what arrives, whoever reads it
            asked = tuple(each for each in asked if not each.strictly)
        # A stated number may be smaller; one that is not is read as if the plan had chosen it.
        elif held and (one_wave or self.is_left_to_plan):
            asked += (PartitionDemand(held, "a task holds what a partition gets between two runs"),)
        return max(asked, key=lambda demand: (demand.fewest, demand.partitions))

    def fewest_with_spare(self, *, one_wave: bool) -> int:
        """Return the fewest partitions, with the spare ones."""
        binding = self.largest_demand(one_wave=one_wave)
        spare = math.ceil(round(binding.partitions * (1 + self.spare), _DIGITS))
        return max(1, spare if self.spare else binding.fewest)

    @cached_property
    def partitions_for_traffic(self) -> float:
        """The partitions that the traffic needs, as a real number; as a whole one where readers at exactly it never catch up."""
        binding = self.largest_demand(one_wave=True)
        if self.stream.elastic_limit_names is None:
            return max(
                1.0, float(binding.fewest) if binding.strictly else binding.partitions * (1 + self.spare)
            )
        first, headroom = (service_limits()[name] for name in self.stream.elastic_limit_names)
        return max(first, binding.partitions * headroom)

    @cached_property
    def on_large_workers(self) -> StreamWithReaders:
        """The same stream with :attr:`large_workers`."""
        return replace(self, large_workers=True)

    @cached_property
    def fewest_partitions_by_cores(self) -> Mapping[int, int]:
        """The fewest partitions by number of the main reader's cores, fewer partitions with more cores.

        More partitions than the fewest can save the cores that are idle in the last wave. Of two numbers of partitions with
        which the traffic is read, the plan takes the cheaper one together with its cores.
        """
        least = self.main_reader.least_cores
        most = fewest_partitions_for_busy_cores(
            whole_cores(least), least, self.fewest_with_spare(one_wave=True)
        )
        found: dict[int, int] = {}
        for number in range(self.fewest_with_spare(one_wave=False), most + 1):
            cores = self.main_reader_cores_for_partitions(number)
            if cores is not None and cores < min(found, default=math.inf):
                found[cores] = number
        return found

    def main_reader_cores_for_partitions(self, number: int) -> int | None:
        """Return the cores of the main reader with so many partitions; None if they hand over too little to a reader."""
        overhead, found = service_limits()["spark.repartition.overhead"], 0
        for demand in self.readers:
            if demand.partitions_to_read_at_a_time >= number:
                return None
            spread = choose_core_spread(
                SourcePartitions.of_equal(number),
                demand.needed,
                overhead,
                read_at_once=demand.partitions_to_read_at_a_time,
            )
            if spread.waves == 1 and demand.partitions_to_read_in_one_wave >= number:
                return None
            if demand is self.main_reader:
                found = spread.cores
        return found


def partitions_figure_and_finding(
    reading: StreamWithReaders, cores: int | None, chosen: int = 0
) -> tuple[Figure[int], Finding | None]:
    """Size a stream.

    Parameters
    ----------
    cores
        Cores of the reader with the most work if its job's cores are pinned.
    chosen
        Partitions that the search has chosen, where their number is free.

    Returns
    -------
    tuple
        Partitions that readers find, and a finding if a pinned number is below the need of the traffic.
    """
    stream, unit = reading.stream, reading.stream.parts
    binding = reading.largest_demand(one_wave=stream.elastic_limit_names is not None)
    fewest = max(1, binding.fewest)
    assumed = stream.traffic.basis == "assumed"
    given, path = stream.given_partitions, ("streams", reading.name, unit)
    if given is not None:
        one = reading.largest_demand(one_wave=True)
        # More shards than are read in one wave may take several waves, but a few more than a wave's hand over too little.
        numbers = range(fewest, one.fewest) if binding.strictly else ()
        if numbers and not any(map(reading.main_reader_cores_for_partitions, numbers)):
            fewest, binding = one.fewest, one
        whose = "the existing stream has them" if stream.belongs_to_others else "pinned"
        figure = pinned_figure(given, unit, f"{whose}; the traffic needs {fewest}: {binding.why}", path)
        if stream.refuses_fewer and given < fewest:
            return figure, Finding(path, str(given), f"at least {fewest}: {binding.why}")
        return figure, None
    if stream.elastic_limit_names is not None:
        first, headroom = (service_limits()[name] for name in stream.elastic_limit_names)
        opened = max(int(first), math.ceil(round(binding.partitions * headroom, _DIGITS)))
        why = f"AWS opens {first:g} at first, later about {headroom:g} times what {binding.why} needs"
        return Figure(opened, unit, why, assumed=True, inputs=reading.inputs), None
    if reading.spare:
        binding = replace(binding, why=f"{binding.why}, {reading.spare:.0%} to spare")
    if not reading.readers:
        number = reading.fewest_with_spare(one_wave=False)
        return Figure(
            number, unit, f"{binding.why}; no job reads it", assumed=assumed, inputs=reading.inputs
        ), None
    main = reading.main_reader
    assumed = assumed or main.assumed
    if chosen < fewest:
        reading = reading.on_large_workers
        binding = reading.largest_demand(one_wave=False)
    if cores is not None:
        shards, own = (
            fewest_partitions_for_busy_cores(
                cores, main.least_cores, reading.fewest_with_spare(one_wave=True)
            ),
            cores,
        )
    else:
        shards, own = chosen, reading.main_reader_cores_for_partitions(chosen) or 1
    if shards <= own:
        one = reading.largest_demand(one_wave=True)
        binding = one if one.partitions > binding.partitions and not reading.spare else binding
    waves = count(math.ceil(shards / own), "wave")
    take = "takes" if own == 1 else "take"
    why = f"{binding.why}; {count(own, 'core')} of {main.query} {take} them in {waves}"
    if shards == own:
        why = f"one for each core of {main.query}: {binding.why}"
    return Figure(
        shards,
        unit,
        why,
        assumed=assumed,
        formula="the cheapest with the cores that read them, at least what the traffic needs",
        inputs=reading.inputs,
    ), None


def partitions_never_below_existing(environment: Environment, name: str, planned: Figure[int]) -> Figure[int]:
    """Return the partitions of a topic that exists where the plan has fewer: a topic never loses one."""
    deployed = environment.deployed_sizes.partitions.get(name, 0)
    if planned.origin == "pinned" or planned.value >= deployed:
        return planned
    why = f"as deployed, as a topic never loses a partition; {planned.value} would do: {planned.why}"
    return replace(planned, value=deployed, why=why)
