"""Iceberg tables: names, making them at start, refusing those of another shape."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from . import batch_accounts, schema_evolution
from .batch_accounts import Reporter
from .errors import StartError

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_FANOUT = "write.spark.fanout.enabled"

PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    # Iceberg would shuffle a partitioned write by default, which costs a quarter of the throughput.
    "write.distribution-mode": "none",
    # Each task sorts its rows by partition and holds one file open: with a file open for each, a batch that names a
    # thousand days ends a JVM of 1 GB. Where all rows are of one day the sort costs nothing that can be measured.
    _FANOUT: "false",
    # Identities are all different: their dictionary is thrown away again, the sooner the better. The
    # few hundred values of other columns fit, and files are no larger.
    "write.parquet.dict-size-bytes": "65536",
    # One metadata file per batch otherwise stays forever.
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

WITHOUT_PARTITIONS: Mapping[str, str] = {
    # Results without a time in their key lie in any file: to write all of them again for each batch costs more than the
    # places of those that are replaced, which compaction works off.
    "write.merge.mode": "merge-on-read",
}
"""How a table without partitions is written besides."""


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

    def current_rows(self, spark: SparkSession) -> DataFrame | None:
        """All rows of this moment, whatever is written meanwhile; None for a table without a snapshot."""
        snapshot = self.metadata(spark).currentSnapshot()
        if snapshot is None:
            return None
        return spark.sql(f"SELECT * FROM {self} VERSION AS OF {snapshot.snapshotId()}")  # noqa: S608 - plain names

    def metadata(self, spark: SparkSession) -> Any:
        """The table as Iceberg's Java object, freshly loaded."""
        jvm: Any = spark._jvm
        return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, str(self))


def ensure(
    spark: SparkSession,
    table: Table,
    schema: StructType,
    *,
    time: str | None = "_arrived_at",
    report: Reporter | None = None,
) -> None:
    """Make a table partitioned by day of a timestamp, or make the one that is there fit.

    A column that is new, and a number that is to be wider, alter the table (:mod:`etl.record.schema_evolution`).

    Parameters
    ----------
    spark
        With the table's catalog.
    schema
        Columns that will be written.
    time
        The timestamp; None for a table without partitions.
    report
        Told what was altered.

    Raises
    ------
    StartError
        The table is there with other columns or types; it was not altered.
    """
    if table.exists(spark):
        _fit(spark, table, schema, report)
        return
    # Spark asks whether the database is there first, so a role needs no right to make one.
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.catalog}.{table.database}")
    jvm: Any = spark._jvm
    ddl = jvm.org.apache.spark.sql.types.DataType.fromJson(nullable(schema).json()).toDDL()
    present = set(schema.fieldNames())
    properties = ", ".join(
        f"'{key}'='{value}'"
        for key, value in {**PROPERTIES, **({} if time else WITHOUT_PARTITIONS)}.items()
        if not (column := re.search(r"\.column\.(\w+)$", key)) or column[1] in present
    )
    spark.sql(
        f"CREATE TABLE IF NOT EXISTS {table} ({ddl}) USING iceberg "
        + (f"PARTITIONED BY (days(`{time}`)) " if time else "")
        + f"TBLPROPERTIES ({properties})"
    )


def _fit(spark: SparkSession, table: Table, schema: StructType, report: Reporter | None) -> None:
    changes = schema_evolution.changes(spark.table(str(table)).schema, schema)
    refused = [change.says for change in changes if change.statement is None]
    if refused:
        raise StartError(
            f"table {table}: {'; '.join(refused)}. A field may be added, and a number made wider (INT to BIGINT, "
            "FLOAT to DOUBLE, DECIMAL of more digits). Revert any other change, or add a field beside the old one, "
            "or name another table and replay into it"
        )
    # Names and types come out of a schema that Spark has parsed, and names are quoted.
    statements = [str(change.statement) for change in changes]
    if table.metadata(spark).properties().get(_FANOUT) == "true":
        # Made by an earlier release. A MERGE, unlike an append, takes no option of the writer's.
        statements.append(f"SET TBLPROPERTIES ('{_FANOUT}'='false')")
    for statement in statements:
        spark.sql(f"ALTER TABLE {table} {statement}")
    if statements and report is not None:
        report.emit(
            "altered", table=str(table), changes=statements, at=batch_accounts.iso_text(batch_accounts.now())
        )


def check(spark: SparkSession, table: Table, schema: StructType) -> None:
    """Refuse a table whose columns are not those that will be written.

    Raises
    ------
    StartError
        With the columns that are missing, of another type, or unknown.
    """
    problems = [change.says for change in schema_evolution.changes(spark.table(str(table)).schema, schema)]
    if problems:
        raise StartError(
            f"table {table}: {'; '.join(problems)}. Start the job, which makes it fit where that is safe"
        )


def nullable(kind: StructType) -> StructType:
    """The same columns, with every field, at every level of structs, allowed to be null: dead letters have none of them."""
    return StructType(
        [
            StructField(f.name, nullable(f.dataType) if isinstance(f.dataType, StructType) else f.dataType)
            for f in kind.fields
        ]
    )
