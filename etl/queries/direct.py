"""Direct query: topics, through decoding and transform, into sinks, without a landing table.

It saves a second of latency and one write, for queries without state. It is exact because a batch of its sources is a
fixed range: a replay holds the same records. So each commit to a table names its batch, and other contents of the table
are known by their offsets (:mod:`etl.queries.offsets_already_in_table`); other sinks know what they hold. The dead letters of all
routes go to a separate table, and only a batch that has some writes to it.

A batch of one route is read once, and its records are counted on their way. With several routes it is decoded once and cached
for its readers: one that counts, then a sink for each route that has records, then the dead letters. If
one sink fails, the complete batch is repeated, and the sinks that had written their part find it there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..checkpoints.checkpoint import Checkpoint
from ..formats.base import Decoder
from ..formats.decoding import redact
from ..formats.decoding.data_rules import rules_field_of_accounts
from ..formats.decoding.decoder_per_topic import COLUMN, rows_of_route
from ..record import batch_accounts, envelope
from ..record.batch_accounts import BatchAccounts, EventReporter, row_count_aggregate
from ..record.envelope import with_hash_and_landing_time
from ..record.errors import AccountsError
from ..sinks.base import (
    STAGE,
    BatchIdentity,
    Reread,
    Sink,
    WriteCounts,
    batch_identity,
    raise_on_refused_rows,
)
from ..sinks.delivery.python_task_writes import CountedRows
from ..sinks.iceberg import IcebergSink
from ..sources.base import ReplayedLeg
from ..sources.batch_offsets import MOST_PARTITIONS, BatchOffsets, read_in_planned_tasks
from ..sources.source_union import batch_offsets_of_legs
from .offsets_already_in_table import OffsetOverlap, overlap_with_derived_table, overlap_with_landing_table
from .transform import DEAD_LETTER, EnrichThenTransform
from .try_quick_decoding_first import QuickDecodingFirstWriter, has_few_records

QUERY, RANGE = "millrace.query", "millrace.offsets"
"""Properties of a commit for the audit: the query and the offsets."""

_PARTS = 3
"""Parts of a Kafka record's identity: topic (without ``/``), partition, offset."""


def offsets_as_commit_properties(query: str, offsets: BatchOffsets | None) -> Mapping[str, str]:
    """Return the properties of a commit, which the audit reads.

    Parameters
    ----------
    query
        Name of the query, or of the query and its route.
    offsets
        Offsets of the batch; None where unknown.
    """
    if offsets is None or len(offsets.end) > MOST_PARTITIONS:
        return {QUERY: query}
    ends = {"start": offsets.start, "end": offsets.end}
    return {QUERY: query, RANGE: json.dumps(ends, sort_keys=True, separators=(",", ":"))}


@dataclass(frozen=True)
class DirectRoute:
    """Route of a direct query with its transform and sink.

    Parameters
    ----------
    name
        Name of the route; None for the only one of a query without routes.
    source
        Logical name of its stream.
    """

    name: str | None
    source: str
    compose: EnrichThenTransform
    sink: Sink

    @cached_property
    def _overlap_with_sink(self) -> OffsetOverlap:
        return overlap_with_derived_table(self.source)

    def rows_for_sink(self, good: DataFrame) -> DataFrame:
        """Return the route's rows for the sink, from good records of all routes."""
        return self.compose(rows_of_route(good, self.name, "of the batch").drop(*DEAD_LETTER))

    def batch_identity_for_sink(
        self, query: str, whole: BatchIdentity, offsets: BatchOffsets | None
    ) -> BatchIdentity:
        """Return the batch's identity for the route's sink.

        Parameters
        ----------
        offsets
            Offsets of all that the query reads; None if the checkpoint does not know them.
        """
        own = f"{self.source}/"
        look_ups = self._overlap_with_sink.look_ups_as_function(
            None if offsets is None else offsets.partitions_with_prefix(own)
        )
        if self.name is None:
            plain = None if offsets is None else offsets.with_prefix_removed(own)
            return replace(whole, properties=offsets_as_commit_properties(query, plain), look_ups=look_ups)
        assert offsets is not None, "Spark writes the end of a batch before it begins"
        route = f"{query}/{self.name}"
        # Of the complete batch: then a table's history also covers batches without a record of the route.
        start, end = (json.dumps(each, sort_keys=True) for each in (offsets.start, offsets.end))
        notes = f"{whole.notes}/routes/{self.name}"
        properties = offsets_as_commit_properties(route, offsets)
        return replace(
            whole, start=start, end=end, notes=notes, route=route, properties=properties, look_ups=look_ups
        )


@dataclass
class DirectBatchWriter:
    """Writer of each batch of a direct query; called by ``foreachBatch``.

    Parameters
    ----------
    decoder
        Decoder of all its routes.
    routes
        One for each route of the query.
    letters
        Sink of dead letters: a table in the shape of a landing table with these routes.
    replayed
        Its legs, which know the offsets of a batch.
    rules
        Aggregates over decoded records: :func:`etl.formats.decoding.data_rules.broken_rule_count_aggregates`.
    tasks
        Tasks into which the plan divides a batch; None for those of the source.
    """

    query: str
    decoder: Decoder
    routes: tuple[DirectRoute, ...]
    letters: Sink
    replayed: tuple[ReplayedLeg, ...]
    checkpoint: Checkpoint
    report: EventReporter
    rules: tuple[Column, ...] = ()
    tasks: int | None = None
    _quick_first: QuickDecodingFirstWriter = field(default_factory=QuickDecodingFirstWriter, repr=False)

    @cached_property
    def _dead_letter_overlap(self) -> OffsetOverlap:
        return overlap_with_landing_table(source.name for leg in self.replayed for source in leg.sources)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch and report its accounts.

        Parameters
        ----------
        batch
            Rows in the envelope's shape: fixed ranges of offsets.
        batch_id
            Spark's id; only the offsets in the checkpoint for it matter.
        """
        begun = batch_accounts.utc_now()
        spark = batch.sparkSession
        offsets = batch_offsets_of_legs(spark, self.replayed, batch_id)
        batch = read_in_planned_tasks(batch, offsets, self.tasks)
        place = batch_identity(spark, self.checkpoint, batch_id)
        of_letters = replace(place, look_ups=self._dead_letter_overlap.look_ups_as_function(offsets))
        letters = _DeadLetterWriter(batch, offsets, self.decoder, self.letters, of_letters)
        places = [route.batch_identity_for_sink(self.query, place, offsets) for route in self.routes]
        write = self._write_batch_of_one_route if len(places) == 1 else self._write_batch_of_several_routes
        figures, done = write(places, letters)
        balance = BatchAccounts(figures["read"], done.offered, done.written, figures["bad"], done.refused)
        times = batch_accounts.batch_time_fields(begun, batch_accounts.utc_now(), figures["oldest"])
        fields = {**balance.event_fields(), **rules_field_of_accounts(figures), **times}
        self.report.emit("batch", query=self.query, batch=batch_id, **fields)

    def _write_batch_of_one_route(
        self, places: Sequence[BatchIdentity], letters: _DeadLetterWriter
    ) -> tuple[Mapping[str, int], WriteCounts]:
        """Write a batch of one route, read once; a batch with dead letters is read a second time for them."""
        [route], [place] = self.routes, places

        def write_attempt(decoder: Decoder) -> tuple[Mapping[str, int], WriteCounts]:
            read = CountedRows(
                route.sink, row_count_aggregate("read"), F.expr("min(unix_micros(_arrived_at)) AS oldest")
            )

            def decoded_rows() -> DataFrame:
                decoded = decoder.decode_and_observe(
                    with_hash_and_landing_time(letters.batch),
                    lambda rows, error: read.observe(rows, F.expr(f"count({error}) AS bad"), *self.rules),
                )
                return route.rows_for_sink(decoded.where("_error IS NULL"))

            done = route.sink.write(decoded_rows(), place, letters.append_refused_rows, decoded_rows)
            return read.values_after_write(done), done

        # Other sinks may have delivered a part of a batch when a task fails.
        few = isinstance(route.sink, IcebergSink) and has_few_records(letters.offsets)
        figures, done = self._quick_first.write(self.decoder, few, write_attempt)
        if figures["bad"]:
            decoded = self.decoder.decode
            letters.append(
                lambda: decoded(with_hash_and_landing_time(letters.batch)).where("_error IS NOT NULL")
            )
        return figures, done if route.name is None else _sum_of_counts([done])

    def _write_batch_of_several_routes(
        self, places: Sequence[BatchIdentity], letters: _DeadLetterWriter
    ) -> tuple[Mapping[str, int], WriteCounts]:
        """Write a batch of several routes, decoded once and cached for its readers."""
        decoded = self.decoder.decode(with_hash_and_landing_time(letters.batch)).persist()
        try:
            figures, with_good_records = _count_batch_and_find_good_routes(decoded, self.rules)
            good = decoded.where("_error IS NULL")
            done = []
            for route, place in zip(self.routes, places, strict=True):
                if route.name in with_good_records:
                    rows = route.rows_for_sink(good)
                    written = route.sink.write(
                        rows,
                        place,
                        letters.append_refused_rows,
                        lambda rows=rows: rows,  # type: ignore[misc]  # of this turn
                    )
                    done.append(written)
            if figures["bad"]:
                letters.append(lambda: decoded.where("_error IS NOT NULL"))
        finally:
            decoded.unpersist()
        return figures, _sum_of_counts(done)


@dataclass(frozen=True)
class _DeadLetterWriter:
    """Writer of the dead letters of one batch."""

    batch: DataFrame
    offsets: BatchOffsets | None
    decoder: Decoder
    sink: Sink
    place: BatchIdentity

    def append(self, letters: Reread) -> None:
        self.sink.write(letters(), self.place, raise_on_refused_rows, letters)

    def append_refused_rows(self, letters: DataFrame) -> None:
        self.append(lambda: refused_rows_as_landing_rows(self.batch, letters, self.decoder))


def _count_batch_and_find_good_routes(
    decoded: DataFrame, rules: Sequence[Column]
) -> tuple[Mapping[str, int], set[str]]:
    """Count a batch, and return its routes with good records; the counting action also fills the cache."""
    bad = F.col("_error").isNotNull()
    aggregates = (F.count(F.lit(1)).alias("n"), F.expr("min(unix_micros(_arrived_at))").alias("oldest"))
    found = decoded.groupBy(F.col(COLUMN).alias("route"), bad.alias("bad")).agg(*aggregates, *rules).collect()
    kept = {"route", "bad", "n", "oldest"}
    broken = [name for name in (found[0].asDict() if found else ()) if name not in kept]
    figures = {
        "read": sum(row["n"] for row in found),
        "bad": sum(row["n"] for row in found if row["bad"]),
        "oldest": min((row["oldest"] for row in found if row["oldest"] is not None), default=None),
        **{name: sum(row[name] for row in found) for name in broken},
    }
    return figures, {row["route"] for row in found if not row["bad"]}


def _sum_of_counts(done: Sequence[WriteCounts]) -> WriteCounts:
    offered, refused = (sum(getattr(each, name) or 0 for each in done) for name in ("offered", "refused"))
    return WriteCounts(offered, sum(each.written for each in done), refused)


def refused_rows_as_landing_rows(batch: DataFrame, letters: DataFrame, decoder: Decoder) -> DataFrame:
    """Return refused rows in the shape of a landing table, with the bytes of their original records.

    Fields that the decoder redacts are cut out of the bytes, as for records that cannot be decoded. A transform that makes
    several rows of a record extends its identity (``_id``, then ``/`` and a suffix): such rows are one dead letter,
    and a replay passes it through the transform again.

    Parameters
    ----------
    batch
        Rows in the envelope's shape, from Kafka.
    letters
        Rows in the shape of :data:`etl.sinks.base.LETTER`.
    decoder
        Decoder of the query, which defines the columns of the dead letter table.

    Raises
    ------
    AccountsError
        A refused row has an identity that the transform invented, so its record is unknown.
    """
    reasons = _reasons_by_record(letters, batch)
    chosen = with_hash_and_landing_time(batch).join(reasons, [*envelope.IDENTITY])
    shape = decoder.decode(with_hash_and_landing_time(batch.limit(0))).schema
    return chosen.select(*columns_of_refused_record(shape, decoder, F.col("payload"), F.col("_why")))


def columns_of_refused_record(
    shape: StructType, decoder: Decoder, payload: Column, reason: Column
) -> list[Column]:
    """Return the columns of a landing table for a record that a sink refused: its bytes and the reason, nothing decoded.

    Parameters
    ----------
    shape
        Columns of the landing table; those of the envelope exist.
    """
    bare = decoder.redacted_payload(payload)
    have = {*envelope.COLUMNS, "_hash", "_landed_at"}
    last = {
        "_bytes": bare,
        "_stage": F.lit(STAGE),
        "_error": redact.redacted_error(reason, payload, bare),
    }
    return [
        F.col(f.name) if f.name in have else last.get(f.name, F.lit(None).cast(f.dataType)).alias(f.name)
        for f in shape.fields
    ]


def _reasons_by_record(letters: DataFrame, records: DataFrame) -> DataFrame:
    """Return identity and reason (``_why``) of each record of which a row was refused.

    Raises
    ------
    AccountsError
        As in :func:`refused_rows_as_landing_rows`.
    """
    # By equality, not by prefix of the identity: that would compare each record with each letter.
    record = F.substring_index("_id", "/", _PARTS).alias("_id")
    reasons = letters.select("_source", record, F.col("_error").alias("_why")).dropDuplicates(
        [*envelope.IDENTITY]
    )
    stray = reasons.join(records, [*envelope.IDENTITY], "left_anti").first()
    if stray is not None:
        raise AccountsError(
            f"the sink refused row {stray['_id']} ({stray['_why']}), but the batch has no record with this "
            "_id: keep _id in the transform, and append / and a number to it where the transform returns "
            "several rows for a record"
        )
    return reasons


@dataclass
class ReplayedToSinks:
    """Result of the write of replayed dead letters to the sinks of a direct query.

    Attributes
    ----------
    refused
        Reason, by source and identity, for each record of which a sink refused a row.
    duplicates
        Rows that a sink had already, and keeps as they are; a sink that cannot know counts none.
    """

    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    duplicates: int = 0


def write_replayed_to_sinks(routes: Sequence[DirectRoute], good: DataFrame) -> ReplayedToSinks:
    """Write replayed dead letters that are now good to the sinks of a direct query.

    Parameters
    ----------
    good
        Rows in a landing table's shape, with the identities of their records: a sink that knows identities leaves out
        the rows that it has.

    Raises
    ------
    AccountsError
        As in :func:`refused_rows_as_landing_rows`.
    """
    result = ReplayedToSinks()

    def note_refused(letters: DataFrame) -> None:
        # Now: a sink does not keep them until the replay is at its end.
        found = _reasons_by_record(letters, good).collect()
        result.refused.update({(row["_source"], row["_id"]): row["_why"] for row in found})

    routed = routes[0].name is not None
    there = {row[COLUMN] for row in good.select(COLUMN).distinct().collect()} if routed else {None}
    for route in routes:
        if route.name in there:
            done = route.sink.write(route.rows_for_sink(good), None, note_refused)
            if done.offered is not None:
                result.duplicates += done.offered - done.written - (done.refused or 0)
    return result
