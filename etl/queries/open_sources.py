"""Opening of a query's sources, with their guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from ..checkpoints.checkpoint import Checkpoint
from ..commits.commit_batch_once import source_digest
from ..launch.settings import DirectSettings, JobSettings, LandSettings
from ..launch.sources import Source, group_sources_into_legs
from ..record.job_run_context import JobRun
from ..record.ready_query import IsEndReached
from ..record.tables import Table
from ..sources.base import Leg, ReplayedLeg, SourceContext, reader_of
from ..sources.source_union import LegGuards, union_of_legs


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
    watch
        Check of a leg of which only a part is read; None for any other.
    determine_end
        Fixes the end of a bounded run in all legs; None if one of them cannot tell.
    """

    rows: DataFrame
    checkpoint: Checkpoint
    guards: LegGuards
    watch: Callable[[], None] | None
    determine_end: Callable[[], IsEndReached] | None


def sources_digest(job: JobSettings, sources: Sequence[Source]) -> str:
    """Return the short name by which commits of a query name its streams, topics and partitions."""
    ordered = (each for leg in group_sources_into_legs(sources) for each in leg)
    return source_digest(
        [
            (each.stream_or_cluster_of_positions(job), each.physical_name, each.assigned_partitions)
            for each in ordered
        ]
    )


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
    legs: list[tuple[ReplayedLeg, Leg]] = []
    for place, sources_of_leg in enumerate(group_sources_into_legs(query.sources)):
        # All legs share one log and one cache of it: an entry is read once.
        log = ReplayedLeg(sources_of_leg, replace(whole, place=place))
        context = SourceContext(run, log.checkpoint, table, query.repartition)
        legs.append((log, reader_of(sources_of_leg).open(context)))
    opened = [leg for _, leg in legs]
    guards = LegGuards(
        tuple(log for log, leg in legs if leg.guard is None),
        tuple(leg.guard for leg in opened if leg.guard is not None),
    )
    watch = next((leg.watch for leg in opened if leg.watch is not None), None)
    fixers = [leg.determine_end for leg in opened if leg.determine_end is not None]

    def checker_of_all_bounded_run_ends() -> IsEndReached:
        ends = [fixer() for fixer in fixers]
        return lambda batch: all(reached(batch) for reached in ends)

    fixed = checker_of_all_bounded_run_ends if len(fixers) == len(opened) else None
    return OpenedSources(union_of_legs([leg.open() for leg in opened]), whole, guards, watch, fixed)
