"""Keeps beside a checkpoint which topics and streams a query read, and refuses others of the same names.

Offsets, and the identities of records, are of a topic; a topic that was made again counts from the beginning under the same
name. Its records would be skipped up to where the old one was, or taken for the old ones and left out as duplicates. The
file beside the checkpoint (``docs/adr/0209-origins.md``) says of which topics and streams the checkpoint's positions are,
and of which topics the records are that a table has under the name of a stream; the second outlives a reset.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from ..checkpoints import manifest
from ..launch import typed_json
from ..launch.settings import JobSettings, QuerySettings
from ..launch.source_kinds import group_sources
from ..record import hadoop_files
from ..record.batch_accounts import Reporter
from ..record.errors import LossError, NoAnswerError, StartError

FORMAT = 1

Ids = Mapping[str, str]
"""What an id is of, as messages name it, to the id."""


@dataclass(frozen=True)
class KnownStream:
    """What was found under the name of a stream, and where its records went."""

    into: str
    ids: Mapping[str, str]


@dataclass(frozen=True)
class IdentityFile:
    """What the file beside a checkpoint says.

    Attributes
    ----------
    checkpoint
        Ids of what the checkpoint's positions are of.
    streams
        By logical name: of topics alone, as Kinesis counts no record of a stream twice.
    """

    checkpoint: Mapping[str, str] = field(default_factory=dict)
    streams: Mapping[str, KnownStream] = field(default_factory=dict)

    def text(self) -> str:
        """Write it as JSON."""
        streams = {name: {"into": held.into, "ids": dict(held.ids)} for name, held in self.streams.items()}
        return json.dumps(
            {"version": FORMAT, "checkpoint": dict(self.checkpoint), "streams": streams},
            indent=1,
            sort_keys=True,
        )

    @classmethod
    def parse(cls, text: str) -> IdentityFile:
        """Read it.

        Raises
        ------
        ValueError
            Not such a file, or one of a later format.
        """
        kept: IdentityFile = typed_json.read_versioned(cls, text, "sources", FORMAT)
        return kept


@dataclass(frozen=True)
class Identity:
    """What tells a leg from others of the same names, asked in one go.

    Attributes
    ----------
    of
        The cluster, connection or region.
    ask
        Gives the ids, or raises :class:`etl.record.errors.NoAnswerError`.
    streams
        By logical name, where the records go and the topic, None for all of a pattern; empty where a stream that was made
        again counts no record twice.
    while_running
        Whether it is asked again after the start.
    """

    of: str
    ask: Callable[[], Ids]
    streams: Mapping[str, tuple[str, str | None]] = field(default_factory=dict)
    while_running: bool = True

    def complete(self, found: Ids) -> Ids:
        """The ids by names that are no other leg's."""
        return {f"{what} of {self.of}": known for what, known in found.items()}

    def by_stream(self, found: Ids) -> Iterator[tuple[str, KnownStream]]:
        """The ids that count for each stream: those that all of its records have in common, wherever the brokers are."""
        for name, (into, topic) in self.streams.items():
            mine = (
                found if topic is None else {k: found[k] for k in ("cluster", f"topic {topic}") if k in found}
            )
            yield name, KnownStream(into, mine)


@dataclass
class StreamIdentities:
    """The topics and streams of one query, as they were and as they are.

    Parameters
    ----------
    legs
        What it reads.
    load, save
        The file's text: None where there is no file.
    way_out
        Of a checkpoint whose positions are of something else.
    report
        Where is told what was adopted, and who did not answer.
    begun
        Whether the checkpoint has begun.
    """

    name: str
    legs: tuple[Identity, ...]
    load: Callable[[], str | None]
    save: Callable[[str], None]
    way_out: str
    report: Reporter
    begun: bool
    _kept: IdentityFile | None = field(default=None, init=False)
    _found: list[Ids] | None = field(default=None, init=False)

    def check_at_start(self) -> None:
        """Compare before anything is read; what has nothing to be compared with is asked with the first batch.

        Raises
        ------
        StartError
            Something was made again, or the file cannot be read.
        """
        if self._known() is None:
            return
        try:
            found = self._ask()
        except NoAnswerError as error:
            # Spark asks the same brokers, and a query that they do not answer is tried again: so is this, before it
            # writes anything.
            self.report.emit("unchecked", query=self.name, error=str(error))
            return
        if wrong := self._wrong(found):
            raise StartError(wrong)
        self._found = found

    def check_before_first_batch(self) -> None:
        """Compare before a run's first batch is written, and keep what is new.

        Raises
        ------
        LossError
            Something was made again.
        NoAnswerError
            Nobody knows now.
        """
        self._compare(self._ask() if self._found is None else self._found)

    def __call__(self) -> None:
        """Compare while the query runs; errors as of :meth:`check_before_first_batch`."""
        if self._kept is not None:  # otherwise nothing was written yet
            self._compare(self._ask(running=True))

    def _compare(self, found: list[Ids]) -> None:
        if wrong := self._wrong(found):
            raise LossError(wrong)
        self._adopt(found)

    def _known(self) -> IdentityFile | None:
        if self._kept is None and (text := self.load()) is not None:
            try:
                self._kept = IdentityFile.parse(text)
            except ValueError as error:
                raise StartError(
                    f"query {self.name}: the file {self.name}.sources.json beside the checkpoint cannot be read: "
                    f"{error}; restore it, or delete it if no topic or stream of the query was deleted and created "
                    "again since its last run"
                ) from error
        return self._kept

    def _ask(self, *, running: bool = False) -> list[Ids]:
        return [leg.ask() if leg.while_running or not running else {} for leg in self.legs]

    def _wrong(self, found: list[Ids]) -> str:
        """What was made again, and what to do about it; nothing where nothing was."""
        kept = self._known() or IdentityFile()
        if self.begun and (changed := _changes(kept.checkpoint, self._whole(found))):
            topics = any(leg.streams for leg in self.legs)
            out = f"{manifest.ANOTHER_NAME}; then {self.way_out}" if topics else self.way_out
            return f"query {self.name}: {changed}: the checkpoint's positions belong to the old one; {out}"
        for name, now in self._streams(found):
            held = kept.streams.get(name)
            if held is not None and held.into == now.into and (changed := _changes(held.ids, now.ids)):
                there = f"{now.into} has records of the old one under the same name"
                return f"query {self.name}: stream {name}: {changed}: {there}; {manifest.ANOTHER_NAME}"
        return ""

    def _adopt(self, found: list[Ids]) -> None:
        old = self._kept or IdentityFile()
        streams = dict(old.streams)
        for name, now in self._streams(found):
            held = streams.get(name)
            before = held.ids if held is not None and held.into == now.into else {}
            streams[name] = KnownStream(now.into, {**before, **now.ids})
        before = old.checkpoint if self.begun else {}
        new = IdentityFile({**before, **self._whole(found)}, streams)
        if new != old:
            self.save(new.text())
        added = {what: known for what, known in new.checkpoint.items() if what not in before}
        if self.begun and added:
            self.report.emit("adopted_sources", query=self.name, ids=added)
        self._kept, self.begun = new, True

    def _whole(self, found: list[Ids]) -> Ids:
        legs = zip(self.legs, found, strict=True)
        return {what: known for leg, ids_of_leg in legs for what, known in leg.complete(ids_of_leg).items()}

    def _streams(self, found: list[Ids]) -> Iterator[tuple[str, KnownStream]]:
        for leg, ids_of_leg in zip(self.legs, found, strict=True):
            yield from leg.by_stream(ids_of_leg)


def of(
    spark: SparkSession,
    job: JobSettings,
    query: QuerySettings,
    binds: Mapping[str, str],
    url: str,
    report: Reporter,
    *,
    begun: bool,
) -> StreamIdentities | None:
    """Make the origins of a query; None for one that reads tables.

    Parameters
    ----------
    url
        Of the file beside the checkpoint.
    report
        Where is told what was adopted, and who did not answer.
    begun
        Whether the checkpoint has begun.
    """
    if not query.sources:
        return None
    legs = tuple(leg[0].identity(leg, spark, job, query, binds) for leg in group_sources(query.sources))

    def load() -> str | None:
        try:
            return hadoop_files.read_text(spark, url)
        except FileNotFoundError:
            return None

    def save(text: str) -> None:
        hadoop_files.write_text(spark, url, text)

    again = f"`millrace checkpoint reset {job.job} {query.name} --env {job.environment}` lets it begin with the new one"
    return StreamIdentities(query.name, legs, load, save, again, report, begun)


def _changes(before: Ids, now: Ids) -> str:
    """What has another id, in words; nothing where all that both know is the same."""
    return "; ".join(
        f"{what} was deleted and created again, or is another one of the same name: its id was {before[what]} and is "
        f"now {now[what]}"
        for what in sorted(before.keys() & now.keys())
        if before[what] != now[what]
    )


def run_in_order(*checks: Callable[[], None]) -> None:
    """Look at several things, one after the other."""
    for check in checks:
        check()
