"""Check that topics and streams are still those that a query has read: their ids are stored beside the checkpoint.

Offsets and identities of records belong to a topic. A topic that was made again counts from the beginning under the same
name. Its records would be skipped up to the old topic's last offset, or be left out as duplicates of old ones. The
file beside the checkpoint (``docs/design/kafka.md#identity-of-topics``) has the ids of the topics and streams of the checkpoint's positions,
and of the topics whose records a table has under the name of a stream; the second survives a reset.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from ..checkpoints import manifest_changes
from ..launch import typed_json
from ..launch.settings import QuerySettings
from ..launch.sources import group_sources_into_legs
from ..record import hadoop_files
from ..record.batch_accounts import EventReporter
from ..record.errors import LossError, NoAnswerError, StartError
from ..record.job_run_context import JobRun

FORMAT = 1

Ids = Mapping[str, str]
"""Ids by the name of the object, as messages show it."""


@dataclass(frozen=True)
class KnownStream:
    """Ids that were found under the name of a stream, and the target of its records."""

    into: str
    ids: Mapping[str, str]


@dataclass(frozen=True)
class IdentityFile:
    """Content of the file beside a checkpoint.

    Attributes
    ----------
    checkpoint
        Ids of the objects to which the checkpoint's positions belong.
    streams
        By logical name: only of topics, as Kinesis never uses a sequence number of a stream again.
    """

    checkpoint: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, KnownStream] = field(default_factory=dict)


@dataclass(frozen=True)
class LegIdentity:
    """Ids that distinguish a leg from others of the same names, read in one request.

    Attributes
    ----------
    of
        The cluster, connection or region.
    ask
        Returns the ids, or raises :class:`etl.record.errors.NoAnswerError`.
    streams
        By logical name: target of the records and topic (None for all topics of a pattern); empty if a stream that was made
        again never repeats a record's identity.
    while_running
        True if the ids are checked again after the start.
    """

    of: str
    ask: Callable[[], Ids]
    streams: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    while_running: bool = True

    def known_streams_by_name(self, ids: Ids) -> Iterator[tuple[str, KnownStream]]:
        """Yield the ids of each stream: those that all of its records share, independent of the brokers' addresses."""
        for name, (into, topic) in self.streams.items():
            mine = ids if topic is None else {k: ids[k] for k in ("cluster", f"topic {topic}") if k in ids}
            yield name, KnownStream(into, mine)


@dataclass
class StreamIdentities:
    """Topics and streams of one query: the stored and the current ids.

    Parameters
    ----------
    legs
        Legs that it reads.
    load, save
        Read and write the file's text; None if there is no file.
    way_out
        Advice for a checkpoint whose positions belong to another object.
    report
        Gets events for adopted ids and for services that did not answer.
    begun
        True if the checkpoint was used.
    """

    name: str
    legs: tuple[LegIdentity, ...]
    load: Callable[[], str | None]
    save: Callable[[str], None]
    way_out: str
    report: EventReporter
    begun: bool
    _file: IdentityFile | None = field(default=None, init=False)
    _found: list[Ids] | None = field(default=None, init=False)

    def check_at_start(self) -> None:
        """Compare before anything is read; without stored ids, the first batch reads them.

        Raises
        ------
        StartError
            An object was made again, or the file cannot be read.
        """
        if self._stored_identity_file() is None:
            return
        try:
            identities = self._ask_current_ids()
        except NoAnswerError as error:
            # Spark reads from the same brokers, and a query that they do not answer is retried: so is this check, before anything
            # is written.
            self.report.emit("unchecked", query=self.name, error=str(error))
            return
        if wrong := self._describe_change(identities):
            raise StartError(wrong)
        self._found = identities

    def check_before_first_batch(self) -> None:
        """Compare before the first batch of a built query is written, and store new ids.

        Raises
        ------
        LossError
            An object was made again.
        NoAnswerError
            A service does not answer at present.
        """
        found, self._found = self._found, None
        self._raise_if_changed_else_store(self._ask_current_ids() if found is None else found)

    def __call__(self, before: Callable[[], None] | None = None) -> None:
        """Compare while the query runs, after another check; errors as in :meth:`check_before_first_batch`."""
        if before is not None:
            before()
        if self._file is not None:  # otherwise nothing was written yet
            self._raise_if_changed_else_store(self._ask_current_ids(running=True))

    def _raise_if_changed_else_store(self, current: list[Ids]) -> None:
        if wrong := self._describe_change(current):
            raise LossError(wrong)
        self._store_ids(current)

    def _stored_identity_file(self) -> IdentityFile | None:
        if self._file is None and (text := self.load()) is not None:
            try:
                self._file = typed_json.read_versioned(IdentityFile, text, "sources", FORMAT)
            except ValueError as error:
                raise StartError(
                    f"query {self.name}: the file {self.name}.sources.json beside the checkpoint cannot be "
                    f"read: {error}. Restore it, or delete it if no topic or stream of the query was deleted "
                    "and created again since its last run"
                ) from error
        return self._file

    def _ask_current_ids(self, *, running: bool = False) -> list[Ids]:
        return [leg.ask() if leg.while_running or not running else {} for leg in self.legs]

    def _describe_change(self, current: list[Ids]) -> str:
        """Return the changed object and the advice; empty if nothing has changed."""
        file = self._stored_identity_file() or IdentityFile()
        if self.begun and (changed := _describe_changes(file.checkpoint, self._ids_by_unique_name(current))):
            topics = any(leg.streams for leg in self.legs)
            out = f"{manifest_changes.ANOTHER_NAME}; then {self.way_out}" if topics else self.way_out
            return f"query {self.name}: {changed}: the checkpoint's positions belong to the old one; {out}"
        for name, now in self._known_streams(current):
            known = file.streams.get(name)
            if (
                known is not None
                and known.into == now.into
                and (changed := _describe_changes(known.ids, now.ids))
            ):
                there = f"{now.into} has records of the old one under the same name"
                return (
                    f"query {self.name}: stream {name}: {changed}: {there}; {manifest_changes.ANOTHER_NAME}"
                )
        return ""

    def _store_ids(self, current: list[Ids]) -> None:
        old = self._file or IdentityFile()
        streams = dict(old.streams)
        for name, now in self._known_streams(current):
            held = streams.get(name)
            before = held.ids if held is not None and held.into == now.into else {}
            streams[name] = KnownStream(now.into, {**before, **now.ids})
        before = old.checkpoint if self.begun else {}
        new = IdentityFile({**before, **self._ids_by_unique_name(current)}, streams)
        if new != old:
            self.save(typed_json.versioned_json(new, FORMAT))
        added = {what: known for what, known in new.checkpoint.items() if what not in before}
        if self.begun and added:
            self.report.emit("adopted_sources", query=self.name, ids=added)
        self._file, self.begun = new, True

    def _ids_by_unique_name(self, current: list[Ids]) -> Ids:
        """Return the ids by names that are unique among the legs."""
        legs = zip(self.legs, current, strict=True)
        return {f"{what} of {leg.of}": known for leg, ids in legs for what, known in ids.items()}

    def _known_streams(self, current: list[Ids]) -> Iterator[tuple[str, KnownStream]]:
        for leg, ids_of_leg in zip(self.legs, current, strict=True):
            yield from leg.known_streams_by_name(ids_of_leg)


def stream_identities(run: JobRun, query: QuerySettings, url: str, *, begun: bool) -> StreamIdentities | None:
    """Make the stream identities of a query; None for one that reads tables.

    Parameters
    ----------
    url
        URL of the file beside the checkpoint.
    begun
        True if the checkpoint was used.
    """
    spark, job = run.spark, run.job
    if not query.sources:
        return None
    legs: tuple[LegIdentity, ...] = tuple(
        typed_json.import_module_of(leg[0]).Reader(leg).leg_identity(run, query)
        for leg in group_sources_into_legs(query.sources)
    )

    def read_identity_file() -> str | None:
        try:
            return hadoop_files.read_text(spark, url)
        except FileNotFoundError:
            return None

    again = f"`millrace checkpoint reset {job.job} {query.name} --env {job.environment}` lets it begin with the new one"
    return StreamIdentities(
        query.name,
        legs,
        read_identity_file,
        partial(hadoop_files.write_text, spark, url),
        again,
        run.report,
        begun,
    )


def _describe_changes(before: Ids, now: Ids) -> str:
    """Describe the changed ids; empty if all common ids are equal."""
    return "; ".join(
        f"{what} was deleted and created again, or is another one of the same name: its id was {before[what]} and is "
        f"now {now[what]}"
        for what in sorted(before.keys() & now.keys())
        if before[what] != now[what]
    )
