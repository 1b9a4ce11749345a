"""Opens what a query reads, with what guards it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame, SparkSession

from ..checkpoints.checkpoint import Checkpoint
from ..launch.settings import JobSettings
from ..launch.source_kinds import Source, group_sources
from ..record.tables import Table
from ..sources.base import LegGuard, ReplayedLeg, SourceContext
from ..sources.source_union import SourceUnion, union


@dataclass(frozen=True)
class OpenedSources:
    """What a query reads: one leg for each line of its offset log, in the log's order.

    Attributes
    ----------
    rows
        Of all legs, in the envelope's shape.
    checkpoint
        The query's.
    guard
        Of all legs.
    reopen
        Opens all legs again, with limits, and secrets, of that moment.
    watch
        Of a leg that is not read whole; None for any other.
    """

    rows: DataFrame
    checkpoint: Checkpoint
    guard: SourceUnion
    reopen: Callable[[], DataFrame]
    watch: Callable[[], None] | None


def open_sources(
    spark: SparkSession,
    job: JobSettings,
    name: str,
    sources: Sequence[Source],
    table: Table,
    binds: Mapping[str, str],
    partitions: int | None,
) -> OpenedSources:
    """Open the sources of a query.

    Parameters
    ----------
    sources
        What it reads, each once.
    table
        Where streams are landed, which their guards look into.
    partitions
        Least number of tasks of a batch of a leg that can be split.

    Raises
    ------
    StartError
        As of :meth:`etl.launch.source_kinds.Source.open`.
    """
    whole = Checkpoint(f"{job.checkpoints}/{name}")
    replayed: list[ReplayedLeg] = []
    guards: list[LegGuard] = []
    openers: list[Callable[[], DataFrame]] = []
    watch: Callable[[], None] | None = None
    for place, sources_of_leg in enumerate(group_sources(sources)):
        # Of one log, and of one memory of it: an entry is read once for all legs.
        checkpoint = replace(whole, place=place)
        context = SourceContext(spark, job, name, binds, checkpoint, table, partitions)
        leg = sources_of_leg[0].open(sources_of_leg, context)
        if leg.guard is None:
            replayed.append(ReplayedLeg(sources_of_leg, checkpoint))
        else:
            guards.append(leg.guard)
        watch = watch or leg.watch
        openers.append(leg.open)

    def reopen() -> DataFrame:
        return union([opener() for opener in openers])

    return OpenedSources(reopen(), whole, SourceUnion(tuple(replayed), tuple(guards)), reopen, watch)
