"""Kinesis data source in Python, for Spark 4 without a JVM connector.

It has the options of Glue's connector that the core sets, and ``region``, and the connector's columns. Its batches are fixed
ranges of sequence numbers, which :mod:`.stream_batches` finds: the driver reads the stream to find the end of a batch, and the
tasks read the same records again.

Spark 4 looks for modules whose names begin with ``pyspark_`` and registers the ``DefaultSource`` of each
(``pyspark.sql.worker.lookup_data_sources``). It is not in the package :mod:`millrace.sandbox`: a driver imports
``millrace`` from its job's archive, and this package from another path.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property

from pyspark.sql.types import StructType

from millrace.etl.launch.engine_interface_and_registry import KINESIS_IN_PYTHON
from millrace.etl.sources.kinesis.closed_shards import COLUMNS

from .stream_batches import (
    BatchPlanner,
    KinesisService,
    Offset,
    Row,
    ranges_between_offsets,
    read_shard_range,
)

try:
    from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
except ImportError:
    # Spark 3 has no data sources in Python.
    DataSource = DataSourceStreamReader = InputPartition = object


class KinesisDataSource(DataSource):
    """Data source for one Kinesis stream."""

    @classmethod
    def name(cls) -> str:
        """Return the name of its format."""
        return KINESIS_IN_PYTHON

    def schema(self) -> str:
        """Return the columns of the connectors."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> KinesisStreamReader:  # noqa: N802 - Spark's name
        """Return the reader that finds batches, on the driver, and reads them, in tasks."""
        return KinesisStreamReader(self.options)


DefaultSource = KinesisDataSource


class KinesisStreamReader(DataSourceStreamReader):
    """Reader of one stream; every task has a copy.

    Parameters
    ----------
    options
        Options; the case of their names does not matter.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}

    def initialOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the start of a query without a checkpoint."""
        return self._batch_planner.initial_offset()

    def latestOffset(self) -> Offset:  # noqa: N802 - Spark's name
        """Return the end of the next batch."""
        return self._batch_planner.read_to_latest_offset()

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Return a task for each shard with records for the batch.

        At a restart Spark requests the range between the last offset of its log and itself, so that a source learns
        its position (``PythonMicroBatchStream.setLatestSeenOffset``).
        """
        self._batch_planner.resume(end)
        return [InputPartition(asked) for asked in ranges_between_offsets(start, end)]

    def read(self, partition: InputPartition) -> Iterator[Row]:
        """Yield records of one shard."""
        service = self._kinesis_service()
        try:
            yield from read_shard_range(service, partition.value)
        finally:
            service.client.close()

    @cached_property
    def _batch_planner(self) -> BatchPlanner:
        options = self._options
        return BatchPlanner(
            self._kinesis_service(),
            options["startingposition"],
            # As in the connector: it stops after the call that exceeds the limit.
            most_records=int(options["kinesis.executor.maxfetchrecordspershard"]) + 1,
            seconds=int(options["kinesis.executor.maxfetchtimeinms"]) / 1000,
            call=int(options["kinesis.executor.maxrecordperread"]),
        )

    def _kinesis_service(self) -> KinesisService:
        options = self._options
        return KinesisService(options["streamname"], options["region"], options["endpointurl"])
