"""Iceberg tables: names, making them at start, refusing those of another shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from etl.errors import StartError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    # Iceberg would shuffle a partitioned write by default, which costs a quarter of the throughput.
    "write.distribution-mode": "none",
    "write.spark.fanout.enabled": "true",
    # Identities are all different: their dictionary is thrown away again, the sooner the better. The
    # few hundred values of other columns fit, and files are no larger.
    "write.parquet.dict-size-bytes": "65536",
    # One metadata file per batch otherwise stays for ever.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "commit.retry.num-retries": "10",
    "commit.retry.total-timeout-ms": "300000",
    # Positions share long beginnings; cut short they would not prune.
    "write.metadata.metrics.column._source": "full",
    "write.metadata.metrics.column._shard": "full",
    "write.metadata.metrics.column._position": "full",
    # Never compared in a filter, and long.
    "write.metadata.metrics.column._id": "none",
    "write.metadata.metrics.column._key": "none",
    "write.metadata.metrics.column._bytes": "none",
}
"""How every table of ours is written. Properties of columns that a table lacks are left out."""


@dataclass(frozen=True)
class Table:
    """A table by its full name.

    Parameters
    ----------
    catalog, database, name
        Plain identifiers.
    """

    catalog: str
    database: str
    name: str

    @classmethod
    def of(cls, catalog: str, name: str) -> Table:
        """From a catalog and ``database.table``.

        Raises
        ------
        StartError
            Anything but plain identifiers.
        """
        parts = [catalog, *name.split(".")]
        if len(parts) != 3 or not all(_NAME.fullmatch(p) for p in parts):
            raise StartError(f"table {name!r} in catalog {catalog!r}: write database.table, plain names")
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.catalog}.{self.database}.{self.name}"

    def exists(self, spark: SparkSession) -> bool:
        """Whether the catalog has it."""
        return spark.catalog.tableExists(str(self))

    def metadata(self, spark: SparkSession) -> Any:
        """The table as Iceberg's Java object, freshly loaded."""
        jvm: Any = spark._jvm
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, str(self))


def ensure(
    spark: SparkSession, table: Table, schema: StructType, *, time: str | None = "_arrived_at"
) -> None:
    """Make a table partitioned by day of a timestamp, or check the one that is there.

    Parameters
    ----------
    spark
        With the table's catalog.
    table
        Its name.
    schema
        Columns that will be written.
    time
        The timestamp; None for a table without partitions.

    Raises
    ------
    StartError
        The table is there with other columns or types.
    """
    if table.exists(spark):
        check(spark, table, schema)
        return
    if not spark.catalog.databaseExists(f"{table.catalog}.{table.database}"):
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.catalog}.{table.database}")
    jvm: Any = spark._jvm
    ddl = jvm.org.apache.spark.sql.types.DataType.fromJson(nullable_columns(schema).json()).toDDL()
    present = set(schema.fieldNames())
    properties = ", ".join(
        f"'{key}'='{value}'"
        for key, value in PROPERTIES.items()
        if not (column := re.search(r"\.column\.(\w+)$", key)) or column[1] in present
    )
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({ddl}) USING iceberg "
        + (f"PARTITIONED BY (days(`{time}`)) " if time else "")
        + f"TBLPROPERTIES ({properties})"
    )


def check(spark: SparkSession, table: Table, schema: StructType) -> None:
    """Refuse a table whose columns are not those that will be written.

    Raises
    ------
    StartError
        With the columns that are missing, of another type, or unknown.
    """
    wanted = {f.name: _stored(f) for f in schema.fields}
    found = {f.name: _stored(f) for f in spark.table(str(table)).schema.fields}
    problems = [
        *(f"lacks {name} {kind}" for name, kind in wanted.items() if name not in found),
        *(
            f"has {name} as {found[name]}, not {kind}"
            for name, kind in wanted.items()
            if name in found and found[name] != kind
        ),
        *(f"has {name}, which nothing fills" for name in found if name not in wanted),
    ]
    if problems:
        raise StartError(f"table {table}: {'; '.join(problems)}. Name another table, or alter this one")


def nullable_columns(schema: StructType) -> StructType:
    """The same columns, all nullable: dead letters have none of them."""
    return StructType([StructField(f.name, f.dataType) for f in schema.fields])


def _stored(field: StructField) -> str:
    """A column's type as Iceberg keeps it: it has no integers below 32 bits and no lengths of text."""
    kind = re.sub(r"\b(tinyint|smallint)\b", "int", field.dataType.simpleString())
    return re.sub(r"\b(varchar|char)\(\d+\)", "string", kind)
