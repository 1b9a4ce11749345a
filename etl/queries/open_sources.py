"""Opening of a query's sources, with their guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from ..checkpoints.checkpoint import Checkpoint
from ..launch.settings import DirectSettings, JobSettings, LandSettings
from ..launch.sources import Source, group_sources
from ..record.commits import source_digest
from ..record.job_run import JobRun
from ..record.query import Reached
from ..record.tables import Table
from ..sources.base import LegGuard, ReplayedLeg, SourceContext, reader_of
from ..sources.leg_guards import LegGuards, union


@dataclass(frozen=True)
class OpenedSources:
    """Sources of a query after opening: one leg for each line of its offset log, in the log's order.

    Attributes
    ----------
    rows
        Rows of all legs, in the envelope's shape.
    checkpoint
        Checkpoint of the query.
    guards
        Guards of all legs.
    reopen
        Opens all legs again, with the limits and secrets of that time.
    watch
        Check of a leg of which only a part is read; None for any other.
    fix_end
        Fixes the end of a bounded run in all legs; None if one of them cannot tell.
    """

    rows: DataFrame
    checkpoint: Checkpoint
    guards: LegGuards
    reopen: Callable[[], DataFrame]
    watch: Callable[[], None] | None
    fix_end: Callable[[], Reached] | None


def sources_digest(job: JobSettings, sources: Sequence[Source]) -> str:
    """Return the short name by which commits of a query name its streams, topics and partitions."""
    ordered = (each for leg in group_sources(sources) for each in leg)
    return source_digest([(each.position_source(job), each.own_name, each.part) for each in ordered])


def open_sources(run: JobRun, query: LandSettings | DirectSettings, table: Table) -> OpenedSources:
    """Open the sources of a query.

    Parameters
    ----------
    table
        Table in which streams are landed; their guards read it.

    Raises
    ------
    StartError
        As in :meth:`etl.sources.base.SourceReader.open`.
    """
    digest = sources_digest(run.job, query.sources)
    whole = Checkpoint(f"{run.job.checkpoints}/{query.name}", source=digest)
    replayed: list[ReplayedLeg] = []
    guards: list[LegGuard] = []
    openers: list[Callable[[], DataFrame]] = []
    watch: Callable[[], None] | None = None
    fixers: list[Callable[[], Reached] | None] = []
    for place, sources_of_leg in enumerate(group_sources(query.sources)):
        # All legs share one log and one cache of it: an entry is read once.
        checkpoint = replace(whole, place=place)
        leg = reader_of(sources_of_leg).open(SourceContext(run, checkpoint, table, query.repartition))
        if leg.guard is None:
            replayed.append(ReplayedLeg(sources_of_leg, checkpoint))
        else:
            guards.append(leg.guard)
        watch = watch or leg.watch
        openers.append(leg.open)
        fixers.append(leg.fix_end)

    def reopen() -> DataFrame:
        return union([opener() for opener in openers])

    def fix_end() -> Reached:
        ends = [fixer() for fixer in known]
        return lambda batch: all(reached(batch) for reached in ends)

    known = [fixer for fixer in fixers if fixer is not None]
    return OpenedSources(
        reopen(),
        whole,
        LegGuards(tuple(replayed), tuple(guards)),
        reopen,
        watch,
        fix_end if len(known) == len(fixers) else None,
    )
