"""Event log of an imported job: the log of its own run, and in it the query that reads the stream and the offsets at its end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from millrace.advisor.existing.foreign_jobs import find_log_of_run
from millrace.advisor.existing.read_job_to_import import RunningJob
from millrace.advisor.existing.stream_candidates_of_program import ImportedStreamSettings
from millrace.advisor.forecasts.query_twin import QueryTwin, twin_of_query
from millrace.advisor.logs.application_history_model import BatchSource, History, Query
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import EventLog, find_event_logs
from millrace.config.document.problems import wrong_option_error


class ImportLogFigures(NamedTuple):
    """Figures of a log for the imported stream.

    Attributes
    ----------
    twin
        Model of the query that reads it; None where the log shows too little.
    offsets
        Kafka: end of its last batch, by partition; None where they are not to be had.
    notes
        What is not taken from the log, and why.
    """

    twin: QueryTwin | None
    offsets: Mapping[int, int] | None
    notes: tuple[str, ...] = ()


def read_log_figures(place: str, running: RunningJob) -> ImportLogFigures:
    """Read the log of a job's latest run.

    Raises
    ------
    ConfigurationError
        No log at the place belongs to the run, or :func:`import_figures_of_history` refuses it.
    """
    log = _log_of_latest_run(place, find_event_logs(place), running)
    return import_figures_of_history(read_history(log), log.name, running)


def import_figures_of_history(history: History, log: str, running: RunningJob) -> ImportLogFigures:
    """Return the figures of a log that was read.

    Raises
    ------
    ConfigurationError
        The log has no query that reads the stream.
    """
    program = running.program
    if program.name is None or program.kind is None:
        return ImportLogFigures(None, None, ("nothing is taken from the log before the stream is known",))
    if program.also:
        several = "nothing is taken from the log of several streams: give --rate and --partitions, or import each by its name"
        return ImportLogFigures(None, None, (several,))
    queries = [each for each in history.queries if each.batches and _reads_stream(each, program)]
    if not queries:
        described = {one.description for each in history.queries for one in _sources_of_last_batch(each)}
        allowed = f"a log with a batch that reads {program.name}; its batches read {', '.join(sorted(described)) or 'nothing'}"
        raise wrong_option_error("--logs", log, allowed)
    query = queries[-1]
    fitted = _twin_of_stream(history, query, program)
    if program.kind == "kinesis":
        return ImportLogFigures(fitted, None)
    refused = ""
    if len({each.id for each in queries}) > 1:
        refused = f"several of its queries read {program.name}, each from offsets of its own"
    elif program.pattern:
        refused = "a pattern of topics has offsets by topic"
    elif program.partitions:
        refused = f"it reads the partitions {', '.join(map(str, program.partitions))} of {program.name}"
    elif history.ended_at is not None:
        refused = f"it was not read to its end: {history.ended_at}"
    elif query.unread_after:
        refused = f"{query.unread_after:,} of its lines after batch {query.batches[-1].id} could not be read, and may be later batches"
    if refused:
        return ImportLogFigures(fitted, None, (f"no offsets are taken from the log: {refused}",))
    ended = datetime.fromtimestamp(query.batches[-1].ended_at, UTC).isoformat(timespec="seconds")
    half = "; the log ends in the middle, so a later batch may be missing" if history.cut_off else ""
    return ImportLogFigures(
        fitted,
        _end_offsets_of_topic(query, program),
        (f"offsets of batch {query.batches[-1].id}, which ended at {ended}{half}",),
    )


def _log_of_latest_run(place: str, logs: Sequence[EventLog], running: RunningJob) -> EventLog:
    """Return the log of the job's latest run; of a job without runs, the only log that is there."""
    if running.run:
        own = find_log_of_run(logs, running.run)
        if own is None:
            raise wrong_option_error(
                "--logs",
                place,
                f"the event log of run {running.run}, the latest of {running.where}; no log in this "
                "place belongs to that run",
            )
        return own
    if len(logs) > 1:
        raise wrong_option_error(
            "--logs",
            place,
            f"a place with one event log: {running.where} has no run, so it is unknown which of the "
            f"{len(logs)} logs belongs to it",
        )
    return logs[0]


def _sources_of_last_batch(query: Query) -> Sequence[BatchSource]:
    return query.batches[-1].sources if query.batches else ()


def _reads_stream(query: Query, program: ImportedStreamSettings) -> bool:
    """Return whether a query reads a stream of exactly this name."""
    return any(_part_of_stream(each, program) is not None for each in _sources_of_last_batch(query))


def _part_of_stream(source: BatchSource, program: ImportedStreamSettings) -> BatchSource | None:
    """Return a source with the positions of a stream alone, of those that it reads; None if it does not read the stream."""
    name = str(program.name).rpartition("/")[2]
    if program.kind == "kinesis":
        whole = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")
        return source if whole.search(source.description) else None
    own = re.compile(name if program.pattern else re.escape(name))

    def own_positions(all_of_them: Mapping[str, int] | None) -> Mapping[str, int] | None:
        if all_of_them is None:
            return None
        return {each: at for each, at in all_of_them.items() if own.fullmatch(each.rpartition(":")[0])}

    start, end, latest = map(own_positions, (source.start, source.end, source.latest))
    return replace(source, start=start, end=end, latest=latest) if end else None


def _twin_of_stream(history: History, query: Query, program: ImportedStreamSettings) -> QueryTwin | None:
    """Return the twin of a query with the arrivals of one of its streams; None where the log shows too few of its batches.

    The costs of a batch and of a record are those of the whole query. Spark divides a limit among topics by what waits in them.
    """
    batches = []
    for each in query.batches:
        sources = [part for one in each.sources if (part := _part_of_stream(one, program)) is not None]
        batches.append(replace(each, sources=tuple(sources), rows=sum(one.rows for one in sources)))
    twin = twin_of_query(history, query)
    if twin is None or all(
        one.sources == each.sources for one, each in zip(batches, query.batches, strict=True)
    ):
        return twin
    own = twin_of_query(history, replace(query, batches=tuple(batches)))
    if own is None:
        return None
    share = sum(each.records for each in batches) / sum(each.records for each in query.batches)
    ends = {key for one in batches[-1].sources for key in one.end or ()}
    return replace(
        twin,
        arrivals=own.arrivals,
        limit=None if twin.limit is None else twin.limit * share,
        partitions=len(ends) or twin.partitions,
    )


def _end_offsets_of_topic(query: Query, program: ImportedStreamSettings) -> dict[int, int]:
    return {
        int(key.rpartition(":")[2]): at
        for each in query.batches[-1].sources
        if (part := _part_of_stream(each, program)) is not None
        for key, at in (part.end or {}).items()
    }
