"""Backfill of a derived table: a range of a landing table through a derive query's transform again, beside the stream.

Rows that a transform should have written, or written otherwise, are computed again from
the landing table, in steps of an hour of arrival, each one transaction. It needs no checkpoint,
neither the query's nor another: a repeated step has the same result, by identity or by
replacement of the step's range.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from pyspark.sql import SparkSession

from ..commits.commit_beside_streams import NoRowsOfSameArrivalSinceSnapshot, write_beside_streams
from ..commits.duplicate_look_up_bounds import DuplicateLookUp
from ..formats.decoding.decoder_per_topic import rows_of_route
from ..launch.entry_script_arguments import BackfillRequest
from ..queries.transform import EnrichThenTransform, good_records
from ..record import batch_accounts
from ..record.batch_accounts import BatchAccounts, EventReporter, ObservedFigures, row_count_aggregate
from ..record.tables import Table
from ..sinks.iceberg import IcebergSink
from ..sources.base import arrived_between_condition, backfill_time_steps

STEP = timedelta(hours=1)
"""Step in arrival time: small compared with a batch after a pause, and with the loss if it is killed."""


@dataclass(frozen=True)
class DerivedTableBackfiller:
    """Backfill of a derived table from a range of its landing table.

    It may run beside the stream with the same sink. If the stream adds rows of the step's time meanwhile, such as a stream
    that has yet to read that hour, the step is repeated, with or without ``replace``; after
    several such attempts it fails and writes nothing (:mod:`etl.commits.commit_beside_streams`). A range ends an hour before
    now, so that this is rare.

    Parameters
    ----------
    query
        Name of the derive query.
    landing
        Table that it reads.
    compose
        Current enrichment and transform.
    sink
        An Iceberg table that keeps ``_arrived_at``.
    report
        Gets an event for each step and one for the total.
    route
        Route of the landing table's rows to read; None for all.
    """

    query: str
    landing: Table
    compose: EnrichThenTransform
    sink: IcebergSink
    report: EventReporter
    route: str | None = None

    def __call__(self, spark: SparkSession, request: BackfillRequest) -> int:
        """Run the backfill and report it.

        Parameters
        ----------
        request
            The range, and whether existing rows are replaced.

        Returns
        -------
        int
            Exit status 0.
        """
        begun = batch_accounts.utc_now()
        totals = dict.fromkeys(("read", "duplicates", "filtered", "written", "replaced"), 0)
        assert request.since is not None, "a landing table is read by time"
        assert request.until is not None, "a landing table is read by time"
        for since, until in backfill_time_steps(request, STEP, whole=True):
            for name, count in self._backfill_range(spark, since, until, replace=request.replace).items():
                totals[name] += count
        self.report.emit(
            "backfilled",
            query=self.query,
            table=str(self.sink.table),
            since=batch_accounts.iso_text(request.since),
            until=batch_accounts.iso_text(request.until),
            **totals,
            **batch_accounts.batch_time_fields(begun, batch_accounts.utc_now()),
        )
        return 0

    def _backfill_range(
        self, spark: SparkSession, since: datetime, until: datetime, *, replace: bool
    ) -> dict[str, int]:
        begun = batch_accounts.utc_now()
        within = arrived_between_condition(since, until)

        def write_attempt(fence: NoRowsOfSameArrivalSinceSnapshot) -> dict[str, int]:
            # A newer snapshot than the sink's: it holds the record of each row that is replaced.
            landed = self.landing.current_rows(spark)
            if landed is None:
                return {}
            rows = rows_of_route(good_records(landed.where(within)), self.route, str(self.landing))
            if rows.isEmpty():
                # Nothing landed then: the sink's rows of that time have another origin.
                return {}
            # Counters are valid for one attempt.
            read = ObservedFigures(row_count_aggregate("read"))
            out = self.compose(read.observe(rows))
            replaced = 0
            if replace:
                computed = ObservedFigures(row_count_aggregate("offered"))
                replaced = fence.replace_range(computed.observe(out), since, until)
                offered = written = computed.values()["offered"]
            else:
                appended = self.sink.append(out, DuplicateLookUp(within), fence=fence)
                offered, written = appended.offered, appended.written
            accounts = BatchAccounts(read.values()["read"], offered, written)
            return accounts.event_fields() | {"replaced": replaced}

        counts = write_beside_streams(spark, self.sink.table, NoRowsOfSameArrivalSinceSnapshot, write_attempt)
        if not counts:
            return {}
        self.report.emit(
            "step",
            query=self.query,
            since=batch_accounts.iso_text(since),
            until=batch_accounts.iso_text(until),
            **counts,
            **batch_accounts.batch_time_fields(begun, batch_accounts.utc_now()),
        )
        return counts
