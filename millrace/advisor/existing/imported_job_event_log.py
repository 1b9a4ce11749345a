"""Event log of an imported job: the log of its own run, and in it the query that reads the stream and the offsets at its end."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from millrace.advisor.existing.foreign_jobs import find_log_of_run
from millrace.advisor.existing.read_job_to_import import RunningJob
from millrace.advisor.existing.stream_choice import ImportedStreamSettings
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
    fitted = twin_of_query(history, query)
    if program.kind == "kinesis":
        return ImportLogFigures(fitted, None)
    refused = ""
    if len({each.id for each in queries}) > 1:
        refused = f"several of its queries read {program.name}, each from offsets of its own"
    elif program.pattern:
        refused = "a pattern of topics has offsets by topic"
    elif history.ended_at is not None:
        refused = f"it was not read to its end: {history.ended_at}"
    if refused:
        return ImportLogFigures(fitted, None, (f"no offsets are taken from the log: {refused}",))
    ended = datetime.fromtimestamp(query.batches[-1].ended_at, UTC).isoformat(timespec="seconds")
    return ImportLogFigures(
        fitted,
        _end_offsets_of_topic(query, program.name),
        (f"offsets of batch {query.batches[-1].id}, which ended at {ended}",),
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
    name = str(program.name).rpartition("/")[2]
    if program.kind == "kafka":
        topics = {key.rpartition(":")[0] for each in _sources_of_last_batch(query) for key in each.end or ()}
        return any(re.fullmatch(name, each) for each in topics) if program.pattern else name in topics
    whole = re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w.-])")
    return any(whole.search(each.description) for each in _sources_of_last_batch(query))


def _end_offsets_of_topic(query: Query, topic: str) -> dict[int, int]:
    return {
        int(key.rpartition(":")[2]): at
        for each in query.batches[-1].sources
        for key, at in (each.end or {}).items()
        if key.rpartition(":")[0] == topic
    }
