"""Tables of PostgreSQL: their types, and the merge of staged rows, in SQL."""

from __future__ import annotations

from dataclasses import dataclass

from py4j.protocol import Py4JJavaError
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from ...record.errors import SinkError, StartError
from ..base import DELETED, JSON_OPTIONS, ORDER
from .postgres_session import PostgresSession, sql_state
from .record_order import decided_by_arrival_sql, not_older_sql, order_after_replacement_sql

_TYPES: dict[type[DataType], str] = {
    BooleanType: "boolean",
    ByteType: "smallint",
    ShortType: "smallint",
    IntegerType: "integer",
    LongType: "bigint",
    FloatType: "real",
    DoubleType: "double precision",
    StringType: "text",
    BinaryType: "bytea",
    DateType: "date",
    TimestampType: "timestamp with time zone",
}
"""PostgreSQL's type for each of Spark's; decimals keep precision and scale, nested types become ``jsonb``."""

_NESTED = (ArrayType, MapType, StructType)
LONGEST_NAME = 63
"""Bytes of an identifier; PostgreSQL truncates longer ones without an error."""

_DATA = ("22", "23", "54")
"""SQLSTATE classes of errors in a row: a value out of its type's range, a constraint, a limit of the server
(such as a text that is too long for an index)."""

_CHECK_DEFERRED = "SET CONSTRAINTS ALL IMMEDIATE"
"""Checks the deferred constraints of what the transaction has written, and later ones with each statement; at the commit no row
could be named."""

ATTEMPT = "_attempt"
"""Column of the staging table: the attempt that wrote the row. If a second run empties the table and fills it with its
rows, the first run finds too few of its own."""


def postgres_type(kind: DataType) -> str:
    """Return PostgreSQL's type for one of Spark's.

    Raises
    ------
    StartError
        PostgreSQL has no such type.
    """
    if isinstance(kind, DecimalType):
        return f"numeric({kind.precision},{kind.scale})"
    if isinstance(kind, _NESTED):
        return "jsonb"
    if type(kind) not in _TYPES:
        raise StartError(
            f"PostgreSQL has no column type for {kind.simpleString()}: cast the value in the transform"
        )
    return _TYPES[type(kind)]


def quote_identifier(name: str) -> str:
    """Return an identifier, quoted."""
    return '"' + name.replace('"', '""') + '"'


@dataclass(frozen=True)
class PostgresTable:
    """Table and the columns of its rows.

    Attributes
    ----------
    schema, table
        Their names in the database.
    columns
        PostgreSQL's type by column of the rows.
    identity
        The table's key: ``_source`` and ``_id`` of a record, ``_id`` of a result.
    deletes
        True if rows may be deletes; the table has no column for that.
    """

    schema: str
    table: str
    columns: dict[str, str]
    identity: tuple[str, ...]
    deletes: bool = False

    @classmethod
    def from_columns(cls, name: str, rows: StructType) -> PostgresTable:
        """Make it from ``schema.table`` and the columns of the rows.

        Raises
        ------
        StartError
            PostgreSQL has no type for a column, or does not allow its name.
        """
        schema, table = name.split(".")
        columns = {
            field.name: postgres_type(field.dataType) for field in rows.fields if field.name != DELETED
        }
        # Spark's writer does not double a quote in a name.
        long = [c for c in columns if len(c.encode()) > LONGEST_NAME or "$" in c or '"' in c]
        if long:
            raise StartError(
                f"PostgreSQL table {name}: these column names are longer than {LONGEST_NAME} bytes, or "
                f"contain $ or a quote: {', '.join(long)}; rename them in the transform"
            )
        identity = ("_source", "_id") if "_source" in columns else ("_id",)
        return cls(schema, table, columns, identity, DELETED in rows.fieldNames())

    @property
    def has_replacing_rows(self) -> bool:
        """True if a later row replaces an earlier one."""
        return self.identity == ("_id",)

    @property
    def _has_record_order(self) -> bool:
        """True if each row has the order of its record."""
        return ORDER in self.columns

    def _quoted_table_name(self, suffix: str = "") -> str:
        return f"{quote_identifier(self.schema)}.{quote_identifier(self.table + suffix)}"

    @property
    def staging_table(self) -> str:
        """Table that collects the rows of a batch; emptied before each."""
        return self._quoted_table_name("_millrace")

    @property
    def refused_identities_table(self) -> str:
        """Table with the identities of the last batch's refused rows."""
        return self._quoted_table_name("_refused")

    @property
    def merged_version_table(self) -> str:
        """Table with one row, for results without an order: the version of the latest merged batch."""
        return self._quoted_table_name("_merged")

    def columns_to_stage(self, rows: DataFrame, attempt: str) -> list[Column]:
        """Return the columns of the staging table: nested values as JSON, days and times as text, ``ByteType`` as ``ShortType``."""
        columns = []
        for field in rows.schema.fields:
            column = F.col(f"`{field.name}`")
            if isinstance(field.dataType, DateType | TimestampType):
                # Spark's writer uses java.sql's types, whose calendar lacks ten days of 1582.
                zone = "" if isinstance(field.dataType, DateType) else "Z"
                column = F.concat(column.cast("string"), F.lit(zone))
            elif isinstance(field.dataType, _NESTED):
                column = F.to_json(column, dict(JSON_OPTIONS))
            elif isinstance(field.dataType, ByteType):
                column = column.cast("short")
            columns.append(column.alias(field.name))
        return [*columns, F.lit(attempt).alias(ATTEMPT)]

    def create_or_check_tables(self, session: PostgresSession) -> None:
        """Make table and staging table; check an existing table.

        Raises
        ------
        StartError
            The table lacks a column or a unique key on the identity, has a required column that is not filled, or one of a
            type to which the rows' type cannot be cast, or not back.
        """
        if not session.query("SELECT 1 FROM pg_namespace WHERE nspname = ?", self.schema):
            session.run_and_count_rows(f"CREATE SCHEMA {quote_identifier(self.schema)}")
        types = self._existing_column_types(session)
        if types and self._has_record_order and ORDER not in types:
            # A table from before the order was kept: its rows are older than every record.
            session.run_and_count_rows(
                f"ALTER TABLE {self._quoted_table_name()} ADD COLUMN {quote_identifier(ORDER)} text"
            )
            types = self._existing_column_types(session)
        if not types:
            columns = [
                f"{quote_identifier(name)} {kind}{' NOT NULL' if name in self.identity else ''}"
                for name, kind in self.columns.items()
            ]
            key = ", ".join(map(quote_identifier, self.identity))
            session.run_and_count_rows(
                f"CREATE TABLE {self._quoted_table_name()} ({', '.join(columns)}, PRIMARY KEY ({key}))"
            )
        else:
            self._refuse_unfit_columns(session, types)
        staged = [f"{quote_identifier(n)} {'text' if k == 'jsonb' else k}" for n, k in self.columns.items()]
        staged += [f"{DELETED} boolean"] if self.deletes else []
        staged.append(f"{quote_identifier(ATTEMPT)} text")
        if self.has_replacing_rows and not self._has_record_order:
            session.run_and_count_rows(
                f"CREATE TABLE IF NOT EXISTS {self.merged_version_table} (one boolean PRIMARY KEY, version bigint NOT NULL)"
            )
        definitions = [f"{quote_identifier(n)} text" for n in self.identity]
        for name, columns in (
            (self.staging_table, staged),
            (self.refused_identities_table, [*definitions, '"_refused" text']),
        ):
            session.run_and_count_rows(f"DROP TABLE IF EXISTS {name}")
            # Unlogged: half the writes. A crash of the server empties the table, which
            # the merge detects.
            session.run_and_count_rows(f"CREATE UNLOGGED TABLE {name} ({', '.join(columns)})")

    def _existing_column_types(self, session: PostgresSession) -> dict[str, tuple[str, str, bool]]:
        """Return type without and with its length, and "needs a value", of each column of the table; empty if there is no table.

        A cast to ``varchar(4)`` would truncate a text without an error, while the insert refuses it.
        """
        rows = session.query(
            "SELECT a.attname, quote_ident(tn.nspname) || '.' || quote_ident(t.typname), "
            "format_type(a.atttypid, a.atttypmod), a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' "
            "FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_type t ON t.oid = a.atttypid JOIN pg_namespace tn ON tn.oid = t.typnamespace "
            "WHERE n.nspname = ? AND c.relname = ? AND a.attnum > 0 AND NOT a.attisdropped",
            self.schema,
            self.table,
        )
        return {str(name): (str(kind), str(whole), bool(needed)) for name, kind, whole, needed in rows}

    def _refuse_unfit_columns(
        self, session: PostgresSession, types: dict[str, tuple[str, str, bool]]
    ) -> None:
        problems = [
            f"it lacks column {name} {kind}" for name, kind in self.columns.items() if name not in types
        ]
        problems += [
            f"its column {name} is NOT NULL without a default, and the query does not fill it"
            for name, (*_, needed) in types.items()
            if needed and name not in self.columns
        ]
        unique = session.query(
            "SELECT string_agg(a.attname, ',' ORDER BY a.attname) FROM pg_index i "
            "JOIN pg_class c ON c.oid = i.indrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = ANY (i.indkey) "
            "WHERE n.nspname = ? AND c.relname = ? AND i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL "
            "GROUP BY i.indexrelid",
            self.schema,
            self.table,
        )
        if (",".join(sorted(self.identity)),) not in unique:
            problems.append(f"it has no unique key on {', '.join(self.identity)}")
        for name, kind in self.columns.items():
            if name in types and not self._can_be_cast(session, kind, *types[name][:2]):
                problems.append(
                    f"its column {name} is {types[name][0]}: {kind} cannot be cast to it and back"
                )
        if problems:
            raise StartError(
                f"PostgreSQL table {self.schema}.{self.table}: {'; '.join(problems)}; alter the table, or name "
                "another one"
            )

    @staticmethod
    def _can_be_cast(session: PostgresSession, kind: str, target: str, whole: str) -> bool:
        before = session.connection.setSavepoint()
        try:
            session.query(f"SELECT {_sql_of_exact_cast(f'CAST(NULL AS {kind})', kind, target, whole)}")
        except Py4JJavaError:
            session.connection.rollback(before)
            return False
        return True

    def merge_and_count_written_and_refused(
        self, session: PostgresSession, attempt: str, *, least: int, version: int | None = None
    ) -> tuple[int, int]:
        """Merge staged rows into the table, in the session's transaction.

        Parameters
        ----------
        attempt
            Attempt whose rows are merged; hexadecimal digits.
        least
            Number of rows that must be staged.
        version
            Version of a batch of results. If a later batch was merged, this one was merged before and is skipped.

        Returns
        -------
        tuple
            Number of rows that were inserted or replaced, and of rows that the table refused, which are then in
            :attr:`refused_identities_table`.

        Raises
        ------
        SinkError
            Staged rows are missing: the server crashed in between, or another run of the query emptied the table. Or two
            results have one identity.
        """
        # Only results can share an identity that replaces; for records the server need not sort all of them.
        ids = "DISTINCT _id" if self.has_replacing_rows else "*"
        ((staged, different),) = session.query(
            f"SELECT count(*), count({ids}) FROM {self._sql_from_rows_of_attempt(attempt)}"  # noqa: S608 - quoted
        )
        if int(staged) < least:
            raise SinkError(
                f"PostgreSQL table {self.table}: {least} rows were written to the staging table, but it has "
                f"only {staged}: the server crashed, or another run of the query emptied it; nothing was "
                "merged"
            )
        if int(different) < least:
            raise SinkError(
                f"PostgreSQL table {self.table}: two results of one batch have the same key; the key must "
                "name every column by which the transform groups. Nothing was merged"
            )
        # The row stays locked until the transaction ends: two runs merge one after the other.
        if version is not None and not session.run_and_count_rows(
            f"INSERT INTO {self.merged_version_table} AS m VALUES (true, {version}) ON CONFLICT (one) "  # noqa: S608 - quoted
            "DO UPDATE SET version = EXCLUDED.version WHERE m.version <= EXCLUDED.version"
        ):
            session.run_and_count_rows(f"TRUNCATE {self.staging_table}")
            return 0, 0
        before = session.connection.setSavepoint()
        try:
            deleted = session.run_and_count_rows(self._delete_statement(attempt)) if self.deletes else 0
            written, spoilt = deleted + session.run_and_count_rows(self._merge_statement(session, attempt)), 0
            session.run_and_count_rows(_CHECK_DEFERRED)
        except Py4JJavaError as error:
            if not (sql_state(error) or "").startswith(_DATA):
                raise
            session.connection.rollback(before)
            written, spoilt = self._merge_row_by_row_and_count(session, attempt)
        session.run_and_count_rows(f"TRUNCATE {self.staging_table}")
        return written, spoilt

    def count_decided_by_arrival(self, session: PostgresSession, attempt: str) -> int:
        """Count staged rows with a row in the table, of which only the arrival says which record is the later one."""
        if not self._has_record_order:
            return 0
        apart = decided_by_arrival_sql(_order_sql_without_collation("s"), _order_sql_without_collation("t"))
        ((count,),) = session.query(
            f"SELECT count(DISTINCT s._id) FROM {self._quoted_table_name()} t, {self._sql_from_rows_of_attempt(attempt)} AND t._id = s._id AND {apart}"  # noqa: S608 - quoted
        )
        return int(count)

    def _sql_of_cast_columns(self, session: PostgresSession, row: str) -> str:
        types = self._existing_column_types(session)
        return ", ".join(
            _sql_of_exact_cast(f"{row}.{quote_identifier(name)}", kind, *types[name][:2])
            for name, kind in self.columns.items()
        )

    @property
    def _insert_clause(self) -> str:
        return (
            f"INSERT INTO {self._quoted_table_name()} AS t ({', '.join(map(quote_identifier, self.columns))})"
        )

    @property
    def _conflict_clause(self) -> str:
        key = ", ".join(map(quote_identifier, self.identity))
        if not self.has_replacing_rows:
            return f"ON CONFLICT ({key}) DO NOTHING"
        ordering = (
            {
                ORDER: order_after_replacement_sql(
                    _order_sql_without_collation("EXCLUDED"), _order_sql_without_collation("t")
                )
            }
            if self._has_record_order
            else {}
        )
        values = ", ".join(
            f"{quote_identifier(c)} = {ordering.get(c, f'EXCLUDED.{quote_identifier(c)}')}"
            for c in self.columns
            if c not in self.identity
        )
        return f"ON CONFLICT ({key}) DO UPDATE SET {values}{self._not_older_sql('EXCLUDED', ' WHERE ')}"

    def _not_older_sql(self, row: str, word: str) -> str:
        """Return the condition that a row's record is not older than that of the table's row; empty without an order."""
        return (
            f"{word}{not_older_sql(_order_sql_without_collation(row), _order_sql_without_collation('t'))}"
            if self._has_record_order
            else ""
        )

    def _sql_from_rows_of_attempt(self, attempt: str) -> str:
        return f"{self.staging_table} s WHERE s.{quote_identifier(ATTEMPT)} = '{attempt}'"

    def _delete_statement(self, attempt: str) -> str:
        same = " AND ".join(f"t.{quote_identifier(c)} = s.{quote_identifier(c)}" for c in self.identity)
        return (
            f"DELETE FROM {self._quoted_table_name()} t USING {self._sql_from_rows_of_attempt(attempt)} AND s.{DELETED} AND {same}"  # noqa: S608 - quoted
            f"{self._not_older_sql('s', ' AND ')}"
        )

    def _merge_statement(self, session: PostgresSession, attempt: str) -> str:
        # A repeated task has staged its rows twice; replacing a row twice in one statement is an error.
        key = ", ".join(f"s.{quote_identifier(c)}" for c in self.identity)
        once = f"DISTINCT ON ({key}) " if self.has_replacing_rows else ""
        condition = f" AND NOT s.{DELETED}" if self.deletes else ""
        return (
            f"{self._insert_clause} SELECT {once}{self._sql_of_cast_columns(session, 's')} FROM {self._sql_from_rows_of_attempt(attempt)}{condition} "  # noqa: S608 - quoted
            f"{self._conflict_clause}"
        )

    def _merge_row_by_row_and_count(self, session: PostgresSession, attempt: str) -> tuple[int, int]:
        """Merge row by row, each in a subtransaction: slower, and only for a batch in which the table refused one.

        Deletes come first, as in a complete merge. A row may be refused for a value that a later row of the batch
        gives up, so refused rows are tried again until a round writes none.
        """
        session.run_and_count_rows(f"TRUNCATE {self.refused_identities_table}")
        session.run_and_count_rows(_CHECK_DEFERRED)
        names = ", ".join(map(quote_identifier, self.identity))
        values = ", ".join(f"r.{quote_identifier(c)}" for c in self.identity)
        put = f"{self._insert_clause} VALUES ({self._sql_of_cast_columns(session, 'r')}) {self._conflict_clause};"
        if self.deletes:
            same = " AND ".join(f"t.{quote_identifier(c)} = r.{quote_identifier(c)}" for c in self.identity)
            gone = f"{same}{self._not_older_sql('r', ' AND ')}"
            put = f"IF r.{DELETED} THEN DELETE FROM {self._quoted_table_name()} t WHERE {gone}; ELSE {put} END IF;"  # noqa: S608 - quoted
        refused, order = self.refused_identities_table, f" ORDER BY s.{DELETED} DESC" if self.deletes else ""
        mine, theirs = (
            " AND ".join(f"f.{quote_identifier(c)} = {row}.{quote_identifier(c)}" for c in self.identity)
            for row in "rs"
        )
        session.run_and_count_rows(
            "DO $millrace$ #variable_conflict use_variable DECLARE r record; one bigint; written bigint := 0; done bigint; repeating boolean := false; "  # noqa: S608 - quoted
            f"BEGIN LOOP done := 0; FOR r IN SELECT DISTINCT s.* FROM {self._sql_from_rows_of_attempt(attempt)} "
            f"AND (NOT repeating OR EXISTS (SELECT 1 FROM {refused} f WHERE {theirs})){order} LOOP BEGIN "
            f"{put} GET DIAGNOSTICS one = ROW_COUNT; written := written + one; "
            f"IF repeating THEN DELETE FROM {refused} f WHERE {mine}; done := done + 1; END IF; "
            "EXCEPTION WHEN data_exception OR integrity_constraint_violation OR program_limit_exceeded THEN "
            f"IF NOT repeating THEN INSERT INTO {refused} ({names}, \"_refused\") VALUES ({values}, SQLSTATE || ': ' || SQLERRM); "
            "END IF; END; END LOOP; EXIT WHEN repeating AND done = 0; repeating := true; END LOOP; "
            "PERFORM set_config('millrace.written', written::text, true); END $millrace$"
        )
        ((written,),) = session.query("SELECT current_setting('millrace.written')")
        ((spoilt,),) = session.query(f"SELECT count(*) FROM {self.refused_identities_table}")  # noqa: S608 - quoted
        return int(written), int(spoilt)


def _sql_of_exact_cast(value: str, kind: str, target: str, whole: str) -> str:
    """Return a cast that fails for a value that changes in it; a text is what the target makes of it.

    Parameters
    ----------
    target, whole
        The type of the column without and with its length.
    """
    text = f"CAST({value} AS text)"
    # PostgreSQL keeps 6 or 15 digits of a floating-point number that it casts to a decimal, and all of its text.
    floating = kind in ("real", "double precision") and whole.startswith("numeric")
    cast = f"CAST({text if floating else value} AS {{}})".format
    if kind in (whole, "text", "bytea", "jsonb"):
        return cast(target)
    return (
        f"CASE WHEN CAST({cast(whole)} AS {kind}) IS DISTINCT FROM {value} "
        f"THEN CAST({text} || ' is not exact in its column' AS {target}) ELSE {cast(target)} END"
    )


def _order_sql_without_collation(row: str) -> str:
    """Return the order of a row; a database's own collation would sort letters otherwise."""
    return f'({row}.{quote_identifier(ORDER)} COLLATE "C")'
