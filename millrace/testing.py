"""Pytest plugin: rows in, rows out, for transforms, windows and the latest record of a key, on local Spark without a deployment.

Installed with Millrace; tests ask for the fixture ``bench``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Record = Mapping[str, Any]
Transform = Callable[["DataFrame"], "DataFrame"]

_CORE = (
    "_id STRING, _source STRING, _shard STRING, _position STRING, _key BINARY, _arrived_at TIMESTAMP, "
    "_landed_at TIMESTAMP, _deleted BOOLEAN"
)
"""Columns of the core that a transform is given beside those of the schema."""


@dataclass(frozen=True)
class Bench:
    """Local Spark that runs transforms on rows of a test.

    Records are as in JSON lines: times are texts in ISO 8601, or whole numbers in the unit that the schema declares. A schema is
    DDL, or the path of a ``.ddl`` or ``.avsc`` file; for Protobuf give the columns of the message as DDL. A record may also have ``_key``, and ``_deleted`` for a record without payload. Results are rows without the core's own columns.
    """

    spark: SparkSession

    def transform(
        self, function: Transform, records: Iterable[Record], schema: str | Path
    ) -> list[dict[str, Any]]:
        """Run a transform on records."""
        return self._collected_visible_rows(function(self._frame_of_records(list(records), schema)))

    def windows(
        self,
        function: Transform,
        batches: Iterable[Sequence[Record]],
        schema: str | Path,
        *,
        time: str,
        delay: str,
        key: Sequence[str],
    ) -> list[dict[str, Any]]:
        """Run a transform with state on batches of records, and return the rows of its table after the last one.

        Parameters
        ----------
        time, delay
            Of the watermark: a column, and a duration such as ``2 hours``. A batch that comes after one with much later times
            is late.
        key
            Columns that identify a row, which a later result replaces.
        """
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}

        def keep_latest_row_by_key(result: DataFrame, _: int) -> None:
            rows.update(
                {tuple(row[name] for name in key): row for row in self._collected_visible_rows(result)}
            )

        with tempfile.TemporaryDirectory() as folder:
            frames = [self._frame_of_records(batch, schema) for batch in batches]
            source = f"{folder}/source"
            Path(source).mkdir()
            stream = self.spark.readStream.schema(frames[0].schema).parquet(source).withWatermark(time, delay)
            query = (
                function(stream)
                .writeStream.outputMode("update")
                .option("checkpointLocation", f"{folder}/checkpoint")
                .foreachBatch(keep_latest_row_by_key)
                .start()
            )
            try:
                for frame in frames:
                    frame.coalesce(1).write.mode("append").parquet(source)
                    query.processAllAvailable()
            finally:
                query.stop()
        return list(rows.values())

    def latest_by(
        self,
        function: Transform,
        records: Iterable[Record],
        schema: str | Path,
        *,
        key: Sequence[str],
        order: str | None = None,
    ) -> list[dict[str, Any]]:
        """Run a transform of a query with ``latest_by`` on records in the source's order; return the rows that its table has.

        The core runs the transform, and refuses what it refuses in a job. A row with ``_deleted`` removes the row of its key.

        Parameters
        ----------
        key, order
            Those of ``latest_by``.

        Returns
        -------
        list of dict
            In the order of the key.

        Raises
        ------
        StartError
            The transform drops a column that its query needs, uses a reserved one, or lacks a column of the key.
        """
        from millrace.etl.queries.transform import EnrichThenTransform

        name = getattr(function, "__name__", "transform")
        run = EnrichThenTransform((), function, name, latest_by=tuple(key), latest_order=order)
        return self._collected_visible_rows(
            run(self._frame_of_records(list(records), schema)).where("NOT _deleted").orderBy(*key)
        )

    def _frame_of_records(self, records: Sequence[Record], schema: str | Path) -> DataFrame:
        from pyspark.sql.types import StructField, StructType

        from millrace.sandbox.schemas import ddl_and_pyspark_types
        from millrace.sandbox.schemas.avro_types_and_encoding import AvroSchema
        from millrace.sandbox.schemas.traffic_values import typed_row

        if isinstance(schema, str):
            payload = ddl_and_pyspark_types.parse_ddl(schema)
        elif schema.suffix == ".avsc":
            payload = AvroSchema(schema.read_text(encoding="utf-8")).struct
        elif schema.suffix == ".desc":
            raise ValueError(f"{schema}: give the columns of its message as DDL")
        else:
            payload = ddl_and_pyspark_types.read_ddl_file(schema)
        # Fields may be null, as those of a landing table: a deleted record has none.
        nullable = [StructField(each.name, each.dataType) for each in payload.fields]
        whole = StructType([*ddl_and_pyspark_types.parse_ddl(_CORE).fields, *nullable])
        now = datetime.now(UTC)
        rows = []
        for number, record in enumerate(records):
            deleted = bool(record.get("_deleted"))
            key = record.get("_key")
            key = key.encode() if isinstance(key, str) else key
            own = [f"records/0/{number}", "records", "0", f"{number:020}", key, now, now, deleted]
            values = {} if deleted else typed_row(record, payload, f"record {number}", texts=False)
            rows.append([*own, *(values.get(name) for name in payload.fieldNames())])
        return self.spark.createDataFrame(rows, whole)

    @staticmethod
    def _collected_visible_rows(result: DataFrame) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in row.asDict(recursive=True).items() if not name.startswith("_")}
            for row in result.collect()
        ]


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    """Local Spark for tests, in UTC; started once."""
    from pyspark.sql import SparkSession

    settings: dict[str, bool | float | int | str | None] = {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    yield Bench(spark)
    spark.stop()
