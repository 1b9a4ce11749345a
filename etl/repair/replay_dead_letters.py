"""Replay: dead letters of a landing table are decoded again, without another read of the source."""

from __future__ import annotations

import base64
import binascii
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..commits.commit_beside_streams import NoErasureSinceSnapshot, write_beside_streams
from ..commits.duplicate_look_up_bounds import DuplicateLookUp
from ..formats.base import Decoder
from ..formats.decoding.decoder_output_and_checks import TOMBSTONE
from ..launch.entry_script_arguments import ReplayRequest
from ..queries.direct import ReplayedToSinks, columns_of_refused_record
from ..record import batch_accounts, envelope, hadoop_files
from ..record.batch_accounts import EventReporter, ReplayAccounts
from ..record.errors import AccountsError, StartError
from ..record.tables import Table
from ..sinks.base import STAGE
from ..sinks.iceberg import IcebergSink

MARK = "#replay"
"""Separator between a record's identity and the number of its replay; no source writes it, so identities never collide."""

FAMILY = ("_source", "_root")
"""Columns that a record shares with its replays only: two clusters may have topics of one name."""

_NUMBERED = r"(\d*)$"

_OF_FAMILY = ("_done", "_root", "_first_hash", "_last", "_last_stage", "_payload", "_withheld")
"""Columns beside a family's next row: whether one is good; identity and hash of the first; bytes and stage of the last; the payload
that was decoded; and whether redaction left no bytes of it, which would be decoded as a null payload, the delete of a key."""


def read_corrected_payloads(spark: SparkSession, url: str, mark: str = MARK) -> Mapping[str, bytes]:
    """Read corrected payloads: JSON lines with ``id`` and one of ``payload`` and ``payload_base64``.

    Parameters
    ----------
    url
        URL of a file that fits into the driver's memory.
    mark
        Separator between a record's identity and the number of its replay.

    Returns
    -------
    Mapping
        Payload by identity, as the file has it.

    Raises
    ------
    StartError
        A line is invalid or names a record a second time; the message has the line.
    """
    try:
        text = hadoop_files.read_text(spark, url)
    except OSError as error:
        raise StartError(f"--corrected: {error}") from error
    payloads: dict[str, bytes] = {}
    roots: set[str] = set()
    # Not splitlines(), which also splits at characters that JSON allows inside a text.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            identity, payload = _parse_corrected_line(json.loads(line))
        except ValueError as error:
            raise StartError(f"--corrected {url}: line {number}: {error}") from error
        if original_identity(identity, mark) in roots:
            raise StartError(
                f"--corrected {url}: line {number}: identity {identity} occurs a second time; keep one "
                "of the lines"
            )
        roots.add(original_identity(identity, mark))
        payloads[identity] = payload
    if not payloads:
        raise StartError(f"--corrected {url}: the file has no lines")
    return payloads


def _parse_corrected_line(line: Any) -> tuple[str, bytes]:
    allowed = "a line must be an object with id and either payload or payload_base64, all of them strings"
    if not isinstance(line, dict) or not all(isinstance(v, str) for v in line.values()):
        raise ValueError(allowed)
    if set(line) == {"id", "payload"}:
        try:
            return line["id"], line["payload"].encode()
        except UnicodeEncodeError as error:
            raise ValueError(
                f"payload cannot be encoded as UTF-8, because it has half of a surrogate pair: {error.reason}"
            ) from error
    if set(line) == {"id", "payload_base64"}:
        try:
            return line["id"], base64.b64decode(line["payload_base64"], validate=True)
        except binascii.Error as error:
            raise ValueError(f"payload_base64: {error}") from error
    raise ValueError(f"the line has the keys {', '.join(sorted(line))}; {allowed}")


def original_identity(identity: str, mark: str = MARK) -> str:
    """Return the identity that the source gave, from that of a record or of one of its replays."""
    return re.sub(mark + _NUMBERED, "", identity)


@dataclass(frozen=True)
class LetterSelection:
    """Requested dead letters.

    Attributes
    ----------
    payloads
        Corrected payload, or None, by the identity that the source gave.
    written
        Identities as requested, by the same key.
    unknown
        Requested identities that are not in the file of corrected payloads.
    """

    payloads: Mapping[str, bytes | None]
    written: Mapping[str, Sequence[str]]
    unknown: tuple[str, ...]

    @classmethod
    def from_request(
        cls, ids: Sequence[str], corrected: Mapping[str, bytes] | None, mark: str = MARK
    ) -> LetterSelection:
        """Make it from the request; with both arguments, only the named lines of the file are used."""
        lines = None if corrected is None else {original_identity(i, mark): p for i, p in corrected.items()}
        written: dict[str, list[str]] = {}
        for identity in ids or corrected or ():
            written.setdefault(original_identity(identity, mark), []).append(identity)
        lacking = set() if lines is None else written.keys() - lines.keys()
        unknown = tuple(i for root in lacking for i in written.pop(root))
        return cls({root: (lines or {}).get(root) for root in written}, written, unknown)

    def as_dataframe(self, spark: SparkSession) -> DataFrame:
        """Return a DataFrame with ``_root`` and ``_corrected``."""
        rows = [(root, None if p is None else bytearray(p)) for root, p in self.payloads.items()]
        return spark.createDataFrame(rows, "_root STRING, _corrected BINARY")


@dataclass(frozen=True)
class LetterReplay(ABC):
    """Base class of a single replay of one table's letters.

    Attributes
    ----------
    BETWEEN
        Separator between a record's identity and the number of its replay.
    NOTHING
        Accounts of a replay without letters.
    query
        Query whose letters they are.
    table
        Table of the letters.
    """

    BETWEEN = MARK
    NOTHING = ReplayAccounts(0, 0, 0, 0, 0)

    query: str
    table: Table
    report: EventReporter

    def __call__(self, spark: SparkSession, request: ReplayRequest) -> int:
        """Run the replay and report it.

        Parameters
        ----------
        request
            Letters and payloads. With both ``ids`` and ``corrected``, only the named lines of the file
            are used.

        Returns
        -------
        int
            Exit status: 1 if an identity has no dead letter (or is not in the file).

        Raises
        ------
        StartError
            The corrected payloads cannot be read; nothing was written.
        """
        begun, selection = batch_accounts.utc_now(), None
        if request.ids or request.corrected:
            corrected = (
                read_corrected_payloads(spark, request.corrected, self.BETWEEN) if request.corrected else None
            )
            selection = LetterSelection.from_request(request.ids, corrected, self.BETWEEN)

        def replay_attempt(fence: NoErasureSinceSnapshot) -> tuple[ReplayAccounts, list[str]]:
            # The stream appends meanwhile: every action reads this snapshot.
            rows = self.table.current_rows(spark)
            if rows is None or (selection is not None and not selection.payloads):
                return self.NOTHING, [*(selection.payloads if selection else ())]
            return self.replay_and_list_missing(rows, selection, fence)

        balance, missing = write_beside_streams(spark, self.table, NoErasureSinceSnapshot, replay_attempt)
        unknown: list[str] = []
        if selection is not None:
            unknown = [*selection.unknown, *(i for root in missing for i in selection.written[root])]
        self.report.emit(
            "replayed",
            query=self.query,
            table=str(self.table),
            **balance.event_fields(),
            unknown_ids=sorted(unknown),
            **batch_accounts.batch_time_fields(begun, batch_accounts.utc_now()),
        )
        return int(bool(unknown))

    @abstractmethod
    def replay_and_list_missing(
        self, rows: DataFrame, selection: LetterSelection | None, fence: NoErasureSinceSnapshot
    ) -> tuple[ReplayAccounts, list[str]]:
        """Replay letters of a table; return the accounts, and the requested identities without a letter."""


@dataclass(frozen=True)
class DeadLetterReplayer(LetterReplay):
    """Replay that decodes dead letters of one land or direct query again and appends the results to the same table.

    A record and its replays are a *family*: ``ID``, ``ID#replay``, ``ID#replay2`` and so on. The
    last of them is decoded, and the result is the next of them. A family with a good row is not tried
    again, and a record that is bad again lands only if its bytes differ from those of the last, or if it was
    decoded and a sink refuses it. It may run while the job lands into the table: both append, their identities never collide, and
    Iceberg retries a commit on top of the other's. Two replays of a table at the same time are not protected from each other.

    Parameters
    ----------
    query
        Name of the query.
    source
        The logical name of its stream, or those of all its streams.
    table
        Its table of dead letters, which exists.
    decoder
        Decoder with the current schema.
    onward
        Writes the good rows, before they land, to the sinks of a direct query, whose table of dead letters has no readers. They
        have identity and hash of their record, of which a sink may have rows: not refused, of a killed replay, of a later read.
    """

    source: str | tuple[str, ...]
    decoder: Decoder
    onward: Callable[[DataFrame], ReplayedToSinks] | None = None

    def replay_and_list_missing(
        self, rows: DataFrame, selection: LetterSelection | None, fence: NoErasureSinceSnapshot
    ) -> tuple[ReplayAccounts, list[str]]:
        """See :meth:`LetterReplay.replay_and_list_missing`."""
        rows = rows.where(self._own_streams_condition())
        erased = F.col("_stage").eqNullSafe(envelope.ERASED)
        letters = with_root_and_attempt(rows.where(F.col("_error").isNotNull() & ~erased))
        selected, missing = None, list[str]()
        if selection is not None:
            selected = selection.as_dataframe(rows.sparkSession)
            missing = [r["_root"] for r in selected.join(letters, "_root", "left_anti").collect()]
            letters = letters.join(selected, "_root", "left_semi")
            refuse_ambiguous_corrections(letters, selection)
        [span] = letters.select(
            F.expr("min(unix_micros(_arrived_at))").alias("first"),
            F.expr("max(unix_micros(_arrived_at))").alias("last"),
        ).collect()
        if span["first"] is None:
            return self.NOTHING, missing
        # A replay has its record's arrival time, so a family is between the letters' first and last.
        first, last = (F.expr(f"timestamp_micros({span[end]})") for end in ("first", "last"))
        within = self._own_streams_condition() & F.col("_arrived_at").between(first, last)
        return self._append_new_rows(
            self._decode_next_attempts(letters, rows.where(within), selected), within, fence
        ), missing

    def _own_streams_condition(self) -> Column:
        """Return the condition for rows of the query's streams: other queries may land into the same table."""
        return F.col("_source").isin([self.source] if isinstance(self.source, str) else [*self.source])

    def _append_new_rows(
        self, tries: DataFrame, within: Column, fence: NoErasureSinceSnapshot
    ) -> ReplayAccounts:
        """Send the good rows onward, count all, and append those that are new."""
        done, lost = F.col("_done"), F.col("_withheld")
        good = F.col("_error").isNull() & ~lost
        refused_now = F.col("_stage").eqNullSafe(STAGE) & ~F.col("_last_stage").eqNullSafe(STAGE)
        lands = ~done & ~lost & (good | ~F.col("_bytes").eqNullSafe(F.col("_last")) | refused_now)
        counts = {"letters": F.lit(True), "good": ~done & good, "bad": ~done & ~good}
        counts |= {"already": done, "landed": lands}
        decoded, duplicates = tries.cache(), None
        try:
            sent = tries.where(~done & good)
            if self.onward is not None and not sent.isEmpty():
                as_records = {"_id": F.col("_root"), "_hash": F.col("_first_hash")}
                answer = self.onward(sent.withColumns(as_records).drop(*_OF_FAMILY))
                duplicates = answer.duplicates
                if answer.refused:
                    tries = self._with_refused_records(tries, answer.refused)
            [figures] = tries.select(*(F.count(F.when(c, 1)).alias(n) for n, c in counts.items())).collect()
            balance = ReplayAccounts(**figures.asDict(), duplicates=duplicates)
            if balance.landed:
                rows = tries.where(lands).drop(*_OF_FAMILY)
                written = IcebergSink(self.table).append(rows, DuplicateLookUp(within), fence=fence).written
                if written != balance.landed:
                    raise AccountsError(
                        f"the record counts of the replay do not match table {self.table}: it counted "
                        f"{balance}, but {written} of its rows are new in the table. Another replay may have "
                        "run at the same time, so replay again"
                    )
            return balance
        finally:
            decoded.unpersist()

    def _with_refused_records(self, tries: DataFrame, refused: Mapping[tuple[str, str], str]) -> DataFrame:
        """Return the rows; those of which a sink refused one are dead letters again."""
        named = [(*identity, reason) for identity, reason in refused.items()]
        why = tries.sparkSession.createDataFrame(named, "_source STRING, _root STRING, _why STRING")
        told = tries.join(F.broadcast(why), [*FAMILY], "left")
        shape = StructType([f for f in tries.schema.fields if f.name not in _OF_FAMILY])
        as_letters = columns_of_refused_record(shape, self.decoder, F.col("_payload"), F.col("_why"))
        return told.select(
            *(
                F.when(F.col("_why").isNotNull(), letter).otherwise(F.col(f"`{f.name}`")).alias(f.name)
                for f, letter in zip(shape.fields, as_letters, strict=True)
            ),
            *_OF_FAMILY,
        )

    def _decode_next_attempts(
        self, letters: DataFrame, rows: DataFrame, selected: DataFrame | None
    ) -> DataFrame:
        """Return the next row of each family, decoded, with the columns of :data:`_OF_FAMILY`."""
        settled = F.col("_error").isNull() | F.col("_stage").eqNullSafe(envelope.ERASED)
        replays = with_root_and_attempt(rows.where(F.col("_id").contains(MARK) & settled))
        done = replays.select(*FAMILY, F.lit(True).alias("_done")).dropDuplicates([*FAMILY])
        row = F.struct("_attempt", *envelope.COLUMNS, "_bytes", "_stage", "_error")
        ends = F.max_by(row, "_attempt").alias("last"), F.min_by("_hash", "_attempt").alias("_first_hash")
        last = letters.groupBy(*FAMILY).agg(*ends).select("_root", "_first_hash", "last.*")
        families = last.join(done, [*FAMILY], "left")
        payload = F.col("_bytes")
        if selected is not None:
            families = families.join(selected, "_root")
            payload = F.coalesce("_corrected", "_bytes")
        return self.decoder.decode(
            families.select(
                next_identity_column(F.col("_root"), F.col("_attempt")).alias("_id"),
                *envelope.COLUMNS[1:],
                F.xxhash64(payload).alias("_hash"),
                F.current_timestamp().alias("_landed_at"),
                F.coalesce("_done", F.lit(False)).alias("_done"),
                "_root",
                "_first_hash",
                F.col("_bytes").alias("_last"),
                F.col("_stage").alias("_last_stage"),
                payload.alias("_payload"),
                (payload.isNull() & (F.col("_error") != TOMBSTONE)).alias("_withheld"),
                payload.alias("payload"),
            )
        )


def refuse_ambiguous_corrections(letters: DataFrame, selection: LetterSelection) -> None:
    """Refuse a corrected payload whose identity has letters of several streams.

    Parameters
    ----------
    letters
        Requested letters, from :func:`with_root_and_attempt`.

    Raises
    ------
    StartError
        The message names the first such identity.
    """
    roots = [root for root, payload in selection.payloads.items() if payload is not None]
    if not roots:
        return
    sources = F.sort_array(F.collect_set("_source")).alias("sources")
    ambiguous = letters.groupBy("_root").agg(sources).where(F.size("sources") > 1)
    for row in sorted(ambiguous.collect()):
        if row["_root"] in roots:
            raise StartError(
                f"--corrected: {row['_root']} is a dead letter of several streams ({', '.join(row['sources'])}), but "
                "a corrected payload is for one; replay it without --corrected, which replays each letter as it is"
            )


def with_root_and_attempt(rows: DataFrame, mark: str = MARK) -> DataFrame:
    """Add ``_root``, the identity that the source gave, and ``_attempt``, 0 for the source's own row."""
    suffix = mark + _NUMBERED
    number = F.regexp_extract("_id", suffix, 1)
    attempt = F.when(~F.col("_id").rlike(suffix), 0).when(number == "", 1).otherwise(number.cast("int"))
    return rows.withColumns({"_root": F.regexp_replace("_id", suffix, ""), "_attempt": attempt})


def next_identity_column(root: Column, attempt: Column, mark: str = MARK) -> Column:
    """Return the identity of a family's next row."""
    number = F.when(attempt == 0, "").otherwise((attempt + 1).cast("string"))
    return F.concat(root, F.lit(mark), number)
