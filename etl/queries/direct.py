"""Direct: topics through decoding and transform into sinks, without a landing table between.

A second of latency and one write less, for what keeps no state. What makes it exact is that a batch of its sources is a
fixed range: a replay holds the same records. So each commit to a table names its batch, and what the table may hold
besides is known by its offsets (:mod:`etl.queries.offset_overlap`); other sinks know what they hold. The dead letters of all routes go to
a table of their own, and only a batch that has some pays for them.

A batch of one route is read once, and its records are counted on their way. With several routes it is decoded once and held,
as it has several readers: one that counts, then a sink for each route that has records, then the dead letters. Should
one sink fail, the batch comes again as a whole, and those that had written their part find it there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ..checkpoints.checkpoint import Checkpoint
from ..formats.base import Decoder, decode_observed
from ..formats.decoding import redact
from ..formats.decoding.data_rules import rule_counts
from ..formats.decoding.routes import COLUMN, rows_of_route
from ..record import batch_accounts, envelope
from ..record.batch_accounts import Accounts, Reporter, row_count
from ..record.envelope import with_hash_and_landing_time
from ..record.errors import AccountsError
from ..sinks.base import STAGE, Again, BatchPlace, Sink, WriteCounts, batch_place, takes_every_row
from ..sinks.delivery.python_tasks import CountedRows
from ..sources.base import ReplayedLeg
from ..sources.offsets import OffsetRange
from ..sources.source_union import offsets_of
from . import offset_overlap
from .derive import DEAD_LETTER, EnrichThenTransform
from .offset_overlap import Overlap

QUERY, RANGE = "millrace.query", "millrace.offsets"
"""Properties of a commit: who wrote it, and which offsets it holds; the audit reads them."""

_PARTS = 3
"""Of a Kafka record's identity: topic (which holds no ``/``), partition, offset."""


def commit_properties(query: str, offsets: OffsetRange | None) -> Mapping[str, str]:
    """What the audit looks for in a commit.

    Parameters
    ----------
    query
        Its name, or those of the query and its route.
    offsets
        Of the batch; None where unknown.
    """
    text = None if offsets is None else offsets.as_property()
    return {QUERY: query} | ({} if text is None else {RANGE: text})


@dataclass(frozen=True)
class DirectRoute:
    """A route with what its records go through and where they end.

    Parameters
    ----------
    name
        Of the route; None for the only one of a query without routes.
    source
        The logical name of its stream.
    compose
        Enrichment and transform.
    sink
        Where its rows go.
    """

    name: str | None
    source: str
    compose: EnrichThenTransform
    sink: Sink

    @cached_property
    def _overlap(self) -> Overlap:
        return offset_overlap.of_derived(self.source)

    def rows(self, good: DataFrame) -> DataFrame:
        """The lane's rows of the sink, out of good records of all routes."""
        return self.compose(rows_of_route(good, self.name, "of the batch").drop(*DEAD_LETTER))

    def batch_place(self, query: str, whole: BatchPlace, offsets: OffsetRange | None) -> BatchPlace:
        """Which batch it is for the lane's sink.

        Parameters
        ----------
        offsets
            Of all that the query reads; None where the checkpoint does not know them.
        """
        own = f"{self.source}/"
        lookup = self._overlap.look_up(None if offsets is None else offsets.of(own))
        if self.name is None:
            plain = None if offsets is None else offsets.without_prefix(own)
            return replace(whole, properties=commit_properties(query, plain), lookup=lookup)
        assert offsets is not None, "Spark writes the end of a batch before it begins"
        route = f"{query}/{self.name}"
        # Of the whole batch: a table's history then tells of batches without a record of the route, too.
        start, end = (json.dumps(each, sort_keys=True) for each in (offsets.start, offsets.end))
        notes = f"{whole.notes}/routes/{self.name}"
        properties = commit_properties(route, offsets)
        return replace(
            whole, start=start, end=end, notes=notes, route=route, properties=properties, lookup=lookup
        )


@dataclass
class DirectBatchWriter:
    """Writes each batch of a direct query; called by ``foreachBatch``.

    Parameters
    ----------
    decoder
        Of all its routes.
    lanes
        One for each route.
    letters
        Where dead letters go: a table in the shape of a landing table with these routes.
    replayed
        What it reads: legs that tell the offsets of a batch.
    rules
        Aggregates over decoded records: :func:`etl.formats.decoding.data_rules.counts`.
    """

    query: str
    decoder: Decoder
    lanes: tuple[DirectRoute, ...]
    letters: Sink
    replayed: tuple[ReplayedLeg, ...]
    checkpoint: Checkpoint
    report: Reporter
    rules: tuple[Column, ...] = ()

    @cached_property
    def _kept(self) -> Overlap:
        return offset_overlap.of_landed(source.name for leg in self.replayed for source in leg.sources)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch and report its accounts.

        Parameters
        ----------
        batch
            In the envelope's shape: fixed ranges of offsets.
        batch_id
            Spark's; only the offsets that its checkpoint has for it count.
        """
        begun = batch_accounts.now()
        spark = batch.sparkSession
        offsets = offsets_of(spark, self.replayed, batch_id)
        place = batch_place(spark, self.checkpoint, batch_id)
        letters = _Letters(
            batch, self.decoder, self.letters, replace(place, lookup=self._kept.look_up(offsets))
        )
        places = [lane.batch_place(self.query, place, offsets) for lane in self.lanes]
        figures, done = self._passed(places[0], letters) if len(places) == 1 else self._held(places, letters)
        balance = Accounts(figures["read"], done.offered, done.written, figures["bad"], done.refused)
        times = batch_accounts.batch_times(begun, batch_accounts.now(), figures["oldest"])
        fields = {**balance.fields(), **rule_counts(figures), **times}
        self.report.emit("batch", query=self.query, batch=batch_id, **fields)

    def _passed(self, place: BatchPlace, letters: _Letters) -> tuple[Mapping[str, int], WriteCounts]:
        """Write a batch of one route, read once; one with dead letters is read again for them."""
        [lane] = self.lanes
        read = CountedRows(lane.sink, row_count("read"), F.expr("min(unix_micros(_arrived_at)) AS oldest"))

        def offered() -> DataFrame:
            decoded = decode_observed(
                self.decoder,
                with_hash_and_landing_time(letters.batch),
                lambda rows, error: read.observe(rows, F.expr(f"count({error}) AS bad"), *self.rules),
            )
            return lane.rows(decoded.where("_error IS NULL"))

        done = lane.sink.write(offered(), place, letters.refuse, offered)
        figures = read.values(done)
        if figures["bad"]:
            decoded = self.decoder.decode
            letters.append(
                lambda: decoded(with_hash_and_landing_time(letters.batch)).where("_error IS NOT NULL")
            )
        return figures, done if lane.name is None else _together([done])

    def _held(self, places: Sequence[BatchPlace], letters: _Letters) -> tuple[Mapping[str, int], WriteCounts]:
        """Write a batch of several routes, decoded once and held for its readers."""
        held = self.decoder.decode(with_hash_and_landing_time(letters.batch)).persist()
        try:
            figures, there = _counted(held, self.rules)
            good = held.where("_error IS NULL")
            done = []
            for lane, place in zip(self.lanes, places, strict=True):
                if lane.name in there:
                    rows = lane.rows(good)
                    done.append(lane.sink.write(rows, place, letters.refuse, lambda rows=rows: rows))  # type: ignore[misc]  # of this turn
            if figures["bad"]:
                letters.append(lambda: held.where("_error IS NOT NULL"))
        finally:
            held.unpersist()
        return figures, _together(done)


@dataclass(frozen=True)
class _Letters:
    """Takes dead letters of one batch."""

    batch: DataFrame
    decoder: Decoder
    sink: Sink
    place: BatchPlace

    def append(self, letters: Again) -> None:
        self.sink.write(letters(), self.place, takes_every_row, letters)

    def refuse(self, letters: DataFrame) -> None:
        self.append(lambda: in_landing_shape(self.batch, letters, self.decoder))


def _counted(held: DataFrame, rules: Sequence[Column]) -> tuple[Mapping[str, int], set[str]]:
    """What a batch holds, and the routes with good records; the action that counts it is the one that reads it."""
    bad = F.col("_error").isNotNull()
    aggregates = (F.count(F.lit(1)).alias("n"), F.expr("min(unix_micros(_arrived_at))").alias("oldest"))
    found = held.groupBy(F.col(COLUMN).alias("route"), bad.alias("bad")).agg(*aggregates, *rules).collect()
    kept = {"route", "bad", "n", "oldest"}
    broken = [name for name in (found[0].asDict() if found else ()) if name not in kept]
    figures = {
        "read": sum(row["n"] for row in found),
        "bad": sum(row["n"] for row in found if row["bad"]),
        "oldest": min((row["oldest"] for row in found if row["oldest"] is not None), default=None),
        **{name: sum(row[name] for row in found) for name in broken},
    }
    return figures, {row["route"] for row in found if not row["bad"]}


def _together(done: Sequence[WriteCounts]) -> WriteCounts:
    offered, refused = (sum(getattr(each, name) or 0 for each in done) for name in ("offered", "refused"))
    return WriteCounts(offered, sum(each.written for each in done), refused)


def in_landing_shape(batch: DataFrame, letters: DataFrame, decoder: Decoder) -> DataFrame:
    """Refused rows in the shape of a landing table, with the bytes of the record that they came of.

    What the decoder redacts is taken out of the bytes, as it is where it cannot decode them. A transform that makes
    several rows of a record adds to its identity (``_id`` and what follows a ``/``): such rows are one dead letter,
    which a replay takes through the transform again.

    Parameters
    ----------
    batch
        In the envelope's shape: of Kafka.
    letters
        In the shape of :data:`etl.sinks.base.LETTER`.
    decoder
        Of the query, which makes the columns of the table of dead letters.

    Raises
    ------
    AccountsError
        A refused row has an identity of the transform's own: nobody knows what it came of.
    """
    # By equality, not by what an identity begins with: that would compare each record with each letter.
    record = F.substring_index("_id", "/", _PARTS).alias("_id")
    told = letters.select("_source", record, F.col("_error").alias("_why")).dropDuplicates(
        [*envelope.IDENTITY]
    )
    stray = told.join(batch, [*envelope.IDENTITY], "left_anti").first()
    if stray is not None:
        raise AccountsError(
            f"the sink refused row {stray['_id']} ({stray['_why']}), but the batch has no record with this _id: keep "
            "_id in the transform, and append / and a number to it where the transform makes several rows of a record"
        )
    chosen = with_hash_and_landing_time(batch).join(told, [*envelope.IDENTITY])
    bare = redact.redacted_payload(decoder, F.col("payload"))
    have = {*envelope.COLUMNS, "_hash", "_landed_at"}
    last = {
        "_bytes": bare,
        "_stage": F.lit(STAGE),
        "_error": redact.redacted_error(F.col("_why"), F.col("payload"), bare),
    }
    shape = decoder.decode(with_hash_and_landing_time(batch.limit(0))).schema
    return chosen.select(
        *(
            F.col(f.name) if f.name in have else last.get(f.name, F.lit(None).cast(f.dataType)).alias(f.name)
            for f in shape.fields
        )
    )


@dataclass(frozen=True)
class ReplayToSinks:
    """Takes replayed dead letters that became good to the sinks of a direct query."""

    lanes: tuple[DirectRoute, ...]

    def __call__(self, good: DataFrame) -> None:
        """Write rows of a landing table's shape; a sink that knows them by identity writes each once.

        Raises
        ------
        AccountsError
            A sink refuses some again: they stay dead letters.
        """
        routed = self.lanes[0].name is not None
        there = {row[COLUMN] for row in good.select(COLUMN).distinct().collect()} if routed else {None}
        for lane in self.lanes:
            if lane.name in there:
                lane.sink.write(lane.rows(good), None, _still_refused)


def _still_refused(letters: DataFrame) -> None:
    first = letters.first()
    assert first is not None
    raise AccountsError(
        f"the sink refused {letters.count()} of the replayed rows again, such as {first['_id']}: {first['_error']}"
    )
