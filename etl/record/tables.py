"""Iceberg tables: names, creation at start, refusal of tables with another schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from . import batch_accounts, schema_evolution
from .batch_accounts import EventReporter
from .errors import JVM_ERRORS, StartError, describe_error, java_causes

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_UNSUPPORTED = {"AnalysisException", "UnsupportedOperationException", "ValidationException"}
"""Classes of errors in a table's columns; others, such as those of a busy catalog, may pass."""

_FANOUT = "write.spark.fanout.enabled"

PROPERTIES: Mapping[str, str] = {
    "format-version": "2",
    # Iceberg would shuffle a partitioned write by default, which costs a quarter of the throughput.
    "write.distribution-mode": "none",
    # Each task sorts its rows by partition and holds one file open: with one open file per partition, a batch of a
    # thousand days crashes a JVM of 1 GB. If all rows are of one day, the cost of the sort is not measurable.
    _FANOUT: "false",
    # Identities are all different: their dictionary is discarded, the sooner the better. The
    # few hundred values of other columns fit, and files are no larger.
    "write.parquet.dict-size-bytes": "65536",
    # Otherwise one metadata file per batch stays forever.
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
    "commit.retry.num-retries": "10",
    "commit.retry.total-timeout-ms": "300000",
    # Positions share long prefixes; truncated ones would not prune.
    "write.metadata.metrics.column._source": "full",
    "write.metadata.metrics.column._shard": "full",
    "write.metadata.metrics.column._position": "full",
    # Never compared in a filter, and long.
    "write.metadata.metrics.column._id": "none",
    "write.metadata.metrics.column._key": "none",
    "write.metadata.metrics.column._bytes": "none",
}
"""Properties of every table. Properties of columns that a table lacks are left out."""

WITHOUT_PARTITIONS: Mapping[str, str] = {
    # Results without a time in their key can be in any file: rewriting all files for each batch costs more than
    # delete files with the positions of replaced rows, which compaction removes.
    "write.merge.mode": "merge-on-read",
}
"""Additional properties of a table without partitions."""

DELETE_ISOLATION = "write.delete.isolation-level"
"""Property that a table has from its first erasure on (:mod:`etl.repair.erase_targets`)."""


@dataclass(frozen=True)
class Table:
    """Table by its full name.

    Parameters
    ----------
    catalog, database, name
        Plain identifiers.
    """

    catalog: str
    database: str
    name: str

    @classmethod
    def from_name(cls, catalog: str, name: str) -> Table:
        """Make it from a catalog and ``database.table``.

        Raises
        ------
        StartError
            A part is not a plain identifier.
        """
        parts = [catalog, *name.split(".")]
        if len(parts) != 3 or not all(_NAME.fullmatch(p) for p in parts):
            raise StartError(
                f"table {name!r} in catalog {catalog!r}: write the name as database.table, each part with "
                "letters, digits and _ only"
            )
        return cls(*parts)

    def __str__(self) -> str:
        return f"{self.catalog}.{self.database}.{self.name}"

    def exists(self, spark: SparkSession) -> bool:
        """Check that the catalog has the table."""
        return spark.catalog.tableExists(str(self))

    def current_rows(self, spark: SparkSession) -> DataFrame | None:
        """Return all rows of the current snapshot, whatever is written meanwhile; None for a table without a snapshot."""
        snapshot = self.load_java_table(spark).currentSnapshot()
        if snapshot is None:
            return None
        return spark.sql(f"SELECT * FROM {self} VERSION AS OF {snapshot.snapshotId()}")  # noqa: S608 - plain names

    def load_java_table(self, spark: SparkSession) -> Any:
        """Load the table as Iceberg's Java object."""
        return load_java_table(spark, str(self))


def load_java_table(spark: SparkSession, table: str) -> Any:
    """Return a table as Iceberg's Java object, with its current metadata."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, table)


def create_or_evolve_table(
    spark: SparkSession,
    table: Table,
    schema: StructType,
    *,
    time: str | None = "_arrived_at",
    report: EventReporter | None = None,
) -> None:
    """Create a table partitioned by day of a timestamp, or make an existing one fit.

    A new column and a wider number alter the table (:mod:`etl.record.schema_evolution`).

    Parameters
    ----------
    spark
        Session with the table's catalog.
    schema
        Columns that will be written.
    time
        The timestamp; None for a table without partitions.
    report
        Gets an event with the changes.

    Raises
    ------
    StartError
        The table exists with other columns or types; it was not altered.
    """
    if table.exists(spark):
        _evolve_or_refuse(spark, table, schema, report)
        return
    # Spark first asks whether the database exists, so a role needs no right to create one.
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {table.catalog}.{table.database}")
    jvm: Any = spark._jvm
    ddl = jvm.org.apache.spark.sql.types.DataType.fromJson(with_all_fields_nullable(schema).json()).toDDL()
    present = set(schema.fieldNames())
    properties = ", ".join(
        f"'{key}'='{value}'"
        for key, value in {**PROPERTIES, **({} if time else WITHOUT_PARTITIONS)}.items()
        if not (column := re.search(r"\.column\.(\w+)$", key)) or column[1] in present
    )
    try:
        spark.sql(
            f"CREATE TABLE IF NOT EXISTS {table} ({ddl}) USING iceberg "
            + (f"PARTITIONED BY (days(`{time}`)) " if time else "")
            + f"TBLPROPERTIES ({properties})"
        )
    except JVM_ERRORS as error:
        classes = {cause.getClass().getSimpleName() for cause in java_causes(error)}
        # A type that only later versions of the format have is an IllegalStateException of Iceberg, as much else is.
        if not _UNSUPPORTED & classes and "Invalid schema for v" not in str(error):
            raise
        raise StartError(
            f"table {table} cannot be altered to have the columns {ddl}: {describe_error(error)}"
        ) from error


def _evolve_or_refuse(
    spark: SparkSession, table: Table, schema: StructType, report: EventReporter | None
) -> None:
    changes = schema_evolution.column_changes(spark.table(str(table)).schema, schema)
    refused = [change.says for change in changes if change.statement is None]
    if refused:
        raise StartError(
            f"table {table}: {'; '.join(refused)}. A field can be added, and a number made wider (INT to "
            "BIGINT, FLOAT to DOUBLE, DECIMAL of more digits). Revert any other change, add a field beside "
            "the old one, or name another table and replay into it"
        )
    # Names and types come from a schema that Spark has parsed, and names are quoted.
    statements = [str(change.statement) for change in changes]
    for statement in statements:
        spark.sql(f"ALTER TABLE {table} {statement}")
    if statements and report is not None:
        report.emit(
            "altered",
            table=str(table),
            changes=statements,
            at=batch_accounts.iso_text(batch_accounts.utc_now()),
        )


def refuse_table_with_other_columns(spark: SparkSession, table: Table, schema: StructType) -> None:
    """Refuse a table whose columns differ from those that will be written.

    Raises
    ------
    StartError
        The message lists columns that are missing, of another type, or unknown.
    """
    problems = [
        change.says for change in schema_evolution.column_changes(spark.table(str(table)).schema, schema)
    ]
    if problems:
        raise StartError(
            f"table {table}: {'; '.join(problems)}. Start the job: it alters the table where that is safe"
        )


def with_all_fields_nullable(kind: StructType) -> StructType:
    """Return the same columns with every field nullable, at every level of structs: dead letters have none of them."""
    return StructType(
        [
            StructField(
                f.name,
                with_all_fields_nullable(f.dataType) if isinstance(f.dataType, StructType) else f.dataType,
            )
            for f in kind.fields
        ]
    )
