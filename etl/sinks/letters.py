"""Where refused rows are kept: an Iceberg table of dead letters, each once."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere in PySpark code

from etl import tables
from etl.sinks.base import LETTER
from etl.sinks.iceberg import EVERYTHING, IcebergSink
from etl.tables import Table


@dataclass(frozen=True)
class Letters:
    """Rows that a derive query's sink refused.

    Parameters
    ----------
    table
        In the shape of :data:`etl.sinks.base.LETTER`.
    query
        Its name, which stands for the source of a result of many records.
    """

    table: Table
    query: str

    def prepare(self, spark: SparkSession) -> None:
        """Make the table, or check the one that is there.

        Raises
        ------
        StartError
            It has another shape.
        """
        tables.ensure(spark, self.table, LETTER)

    def __call__(self, letters: DataFrame) -> None:
        """Keep refused rows, each once however often its batch comes again.

        A result of many records may be refused again with other values: each of them is kept.

        Parameters
        ----------
        letters
            In the shape of :data:`etl.sinks.base.LETTER`.
        """
        result = F.col("_source").isNull()
        identity = F.when(result, F.concat_ws("#", "_id", F.xxhash64("_bytes").cast("string")))
        kept = letters.withColumns(
            {
                "_id": identity.otherwise(F.col("_id")),
                "_source": F.coalesce(F.col("_source"), F.lit(self.query)),
                "_arrived_at": F.coalesce(F.col("_arrived_at"), F.current_timestamp()),
            }
        )
        IcebergSink(self.table).append(kept, EVERYTHING)
