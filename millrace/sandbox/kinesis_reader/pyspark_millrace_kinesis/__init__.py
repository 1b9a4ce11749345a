"""Kinesis as a data source in Python, for Spark 4: in the place of a connector for the JVM where there is none.

It takes the options of Glue's connector that the core gives, with ``region`` beside them, and has its columns. Its batches are
fixed ranges of sequence numbers, which :mod:`.stream_batches` finds: the driver reads the stream to find where a
batch ends, its tasks read the same records again.

Spark 4 looks for modules whose names begin with ``pyspark_`` and registers the ``DefaultSource`` of each
(``pyspark.sql.worker.lookup_data_sources``). It is no part of :mod:`millrace.sandbox`: a driver finds the package
``millrace`` in its job's archive, and this one beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from millrace.etl.launch.engine import KINESIS_IN_PYTHON
from millrace.etl.sources.kinesis.closed_shards import COLUMNS

from .service import KinesisService
from .stream_batches import BatchPlanner, Limits, Offset, Row, ShardRange, ranges, read_range

try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
except ImportError:
    # Spark 3, which looks for none.
    DataSource = DataSourceStreamReader = InputPartition = object


class KinesisDataSource(DataSource):
    """One stream."""

    @classmethod
    def name(cls) -> str:
        """Its format."""
        return KINESIS_IN_PYTHON

    def schema(self) -> str:
        """Columns of the connectors."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> KinesisStreamReader:  # noqa: N802 - Spark's name
        """What finds batches, on the driver, and reads them, in tasks."""
        return KinesisStreamReader(self.options)


DefaultSource = KinesisDataSource


@dataclass
class Range(InputPartition):
    """What one task reads."""

    asked: ShardRange


class KinesisStreamReader(DataSourceStreamReader):
    """Reads one stream; a copy of it is in every task.

    Parameters
    ----------
    options
        Whatever the case of their names.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self._planner: BatchPlanner | None = None

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where a query without a checkpoint begins."""
        return self._batches().initial()

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Where the next batch ends."""
        return self._batches().latest()

    def partitions(self, start: Offset, end: Offset) -> list[Range]:
        """A task for each shard that gives the batch something.

        At a restart Spark asks for what is between the last offset of its log and itself, so that a source learns where it is
        (``PythonMicroBatchStream.setLatestSeenOffset``).
        """
        self._batches().resume(end)
        return [Range(asked) for asked in ranges(start, end)]

    def read(self, partition: Range) -> Iterator[Any]:
        """Records of one shard, as record batches of PyArrow."""
        service = self._service()
        try:
            for rows in read_range(service, partition.asked):
                yield _record_batch(rows)
        finally:
            service.close()

    def _batches(self) -> BatchPlanner:
        if self._planner is None:
            given = self._options
            # As the connector: it stops after the call with which it has more.
            limits = Limits(
                int(given["kinesis.executor.maxfetchrecordspershard"]) + 1,
                int(given["kinesis.executor.maxfetchtimeinms"]) / 1000,
                int(given["kinesis.executor.maxrecordperread"]),
            )
            self._planner = BatchPlanner(self._service(), given["startingposition"], limits)
        return self._planner

    def _service(self) -> KinesisService:
        given = self._options
        keys = (given["awsaccesskeyid"], given["awssecretkey"]) if "awsaccesskeyid" in given else None
        return KinesisService(given["streamname"], given["region"], given["endpointurl"], keys)


def _record_batch(rows: list[Row]) -> Any:
    """Rows as Spark wants them from Python, in the types of :data:`COLUMNS`."""
    import pyarrow as pa

    schema = pa.schema(
        [
            ("data", pa.binary()),
            ("streamName", pa.string()),
            ("partitionKey", pa.string()),
            ("sequenceNumber", pa.string()),
            ("approximateArrivalTimestamp", pa.timestamp("us", tz="UTC")),
        ]
    )
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, kind.type) for column, kind in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
