"""Backfill of a landing table with records that it lacks: a range of time of a stream, or lines of files.

For records that a connector has lost, records before the query's start, and a table that was partly deleted. Every record
has the identity that the query gives it, so records that have landed do not land again, and queries that
derive from the table read the new ones. The identity of a file's line is the file and the line number.
"""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ..commits.commit_beside_streams import NoRowsOfSameArrivalSinceSnapshot, write_beside_streams
from ..commits.duplicate_look_up_bounds import DuplicateLookUp
from ..formats.base import Decoder
from ..formats.decoding.decoder_per_topic import route_decoder
from ..launch.entry_script_arguments import BackfillRequest
from ..launch.settings import LandSettings, SourceRouteSettings
from ..queries import land
from ..queries.query_and_repair_setup import prepare_session_and_find_query
from ..record import batch_accounts, tables
from ..record.batch_accounts import EventReporter
from ..record.envelope import with_hash_and_landing_time
from ..record.errors import StartError
from ..record.job_run_context import JobRun
from ..sinks.iceberg import AppendResult, IcebergSink
from ..sources.base import BackfillPart, Parts, reader_of
from ..sources.kafka.overflowing_record_times import OverflowingTimesDecoder
from ..sources.kafka.range_reader import is_time_overflow
from .lines_of_backfill_files import file_parts_reader


@dataclass(frozen=True)
class LandingBackfiller:
    """Backfill of missing records into a landing table.

    Parameters
    ----------
    query
        Name of the land query.
    parts
        Reads the requested records.
    decoder
        Decoder of the query's payload.
    sink
        Its landing table.
    report
        Gets an event for each part and one for the total.
    """

    query: str
    parts: Parts
    decoder: Decoder
    sink: IcebergSink
    report: EventReporter

    def __call__(self, spark: SparkSession, request: BackfillRequest) -> int:
        """Run the backfill and report it.

        Parameters
        ----------
        request
            The range, or the files.

        Returns
        -------
        int
            Exit status 0.
        """
        begun = batch_accounts.utc_now()
        totals = {"read": 0, "written": 0, "bad": 0}
        for part in self.parts(spark, request):
            at = batch_accounts.utc_now()
            appended = self._land_part(part)
            counts = {
                "read": appended.offered,
                "written": appended.written,
                "bad": appended.figures["bad"] or 0,
            }
            totals = {name: totals[name] + count for name, count in counts.items()}
            self.report.emit(
                "step",
                query=self.query,
                part=part.name,
                **counts,
                **batch_accounts.batch_time_fields(at, batch_accounts.utc_now()),
            )
        self.report.emit(
            "backfilled",
            query=self.query,
            table=str(self.sink.table),
            origin=request.origin,
            **totals,
            duplicates=totals["read"] - totals["written"],
            filtered=0,
            replaced=0,
            **batch_accounts.batch_time_fields(begun, batch_accounts.utc_now()),
        )
        return 0

    def _land_part(self, part: BackfillPart) -> AppendResult:
        try:
            return self._decode_and_append(part.records, self.decoder, part.bound)
        except Exception as error:
            if part.around is None or not is_time_overflow(error) or (records := part.around()) is None:
                raise
            return self._decode_and_append(records, OverflowingTimesDecoder(self.decoder), part.bound)

    def _decode_and_append(
        self, records: DataFrame, decoder: Decoder, bound: DuplicateLookUp
    ) -> AppendResult:
        rows = decoder.decode(with_hash_and_landing_time(records))
        return write_beside_streams(
            records.sparkSession,
            self.sink.table,
            NoRowsOfSameArrivalSinceSnapshot,
            lambda fence: self.sink.append(rows, bound, F.count("_error").alias("bad"), fence=fence),
        )


def make_landing_backfiller(run: JobRun, request: BackfillRequest) -> LandingBackfiller:
    """Make the backfill of a query's landing table; its checkpoint is not touched.

    Parameters
    ----------
    request
        Request with an origin, and the name of a land query.

    Raises
    ------
    StartError
        No such query, a stream that cannot be read by time, files of a format without lines, or a table that is
        missing or has another schema.
    """
    spark = run.spark
    have = [q for q in run.job.queries if isinstance(q, LandSettings) and q.routes[0].name is None]
    asked = f"--backfill {request.query} --from {request.origin}"
    query = prepare_session_and_find_query(run, asked, request.query, "land query", have)
    [route] = query.routes
    parts = _parts_reader_of_source(run, query.name, route, request)
    table = run.table(query.table)
    if not table.exists(spark):
        raise StartError(
            f"--backfill {query.name}: table {table} does not exist; start the job, which creates it"
        )
    decoder = route_decoder(spark, route)
    tables.refuse_table_with_other_columns(spark, table, land.landing_table_schema(decoder.schema))
    return LandingBackfiller(query.name, parts, decoder, IcebergSink(table), run.report)


def _parts_reader_of_source(
    run: JobRun, query: str, route: SourceRouteSettings, request: BackfillRequest
) -> Parts:
    source = route.source
    if request.origin != "stream":
        if not route.format.is_payload_one_text_line:
            raise StartError(
                f"--from {request.origin}: files are read line by line, but format {route.format.kind} has no lines; "
                "use --from stream"
            )
        return file_parts_reader(source.name)
    return reader_of((source,)).backfill_reader(run, query)
