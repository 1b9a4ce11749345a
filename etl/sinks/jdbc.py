"""PostgreSQL sink over JDBC: each row is inserted once by identity."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType

from ..launch.sinks import JdbcSinkSettings
from ..record.errors import JVM_ERRORS, SinkError, StartError, describe_error
from ..record.job_run_context import JobRun
from ..services import secret
from ..services.backoff import START_SECONDS, Backoff
from .base import (
    BatchIdentity,
    Refuse,
    Reread,
    WriteCounts,
    dead_letters_of_refused_rows,
    reason_not_storable,
    refuse_unwritable_map_keys,
    version_if_rows_are_results,
)
from .delivery.postgres_merge import PostgresTable
from .delivery.postgres_session import (
    LOGIN_SECONDS,
    PostgresSession,
    connect,
    is_tls_refusal,
    sql_state,
    tls_properties,
)
from .delivery.python_task_writes import RowsCountedInPlan, rows_through_rdd

ROWS_PER_STATEMENT = 1000
SOCKET_SECONDS = 600
"""Longest time without data during a statement, such as a merge of a large batch into a table with many indexes."""

_AWAY = ("08", "25006", "40", "53", "55", "57")
"""SQLSTATEs, or classes of them, after which a retry may succeed (PostgreSQL manual, appendix A): connection, a
server that became a standby, rollback, no resources, object in use, operator intervention."""

_BUSY = (*_AWAY, "28")
"""In a running job also a password that was just changed."""

Login = Callable[[], tuple[str, str]]
"""Returns the current user and password."""


def open_sink(settings: JdbcSinkSettings, run: JobRun, _key: tuple[str, ...]) -> JdbcSink:
    """Make the sink, see :func:`etl.sinks.base.open_sink`."""
    return JdbcSink(settings, partial(read_login, settings.secret, run.binds.get("secretsmanager.endpoint")))


@dataclass(frozen=True)
class JdbcSink:
    """Table of PostgreSQL 9.5 or later.

    Rows are first written to a staging table beside it, by as many connections as configured, and from
    there to the table in one transaction.

    Parameters
    ----------
    settings
        Database, table, connections.
    login
        Returns user and password; called before each batch, so that a rotated secret is used.
    """

    settings: JdbcSinkSettings
    login: Login = field(repr=False)
    acts_on_rdd: bool = True
    _secured: dict[str, str] = field(default_factory=dict, init=False, repr=False, compare=False)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Make the table with the identity as its primary key, or check an existing one; make the staging table.

        Raises
        ------
        StartError
            The database cannot be reached, has no trusted certificate, or its table does not fit.
        """
        shape = PostgresTable.from_columns(self.settings.table, schema)
        refuse_unwritable_map_keys(schema, self._describe_target)
        waits = Backoff("at the start", patience=START_SECONDS)
        try:
            while True:
                try:
                    with self._open_session(spark, self.login()) as session:
                        shape.create_or_check_tables(session)
                    return
                except JVM_ERRORS as error:
                    if not (sql_state(error) or "").startswith(_AWAY) or is_tls_refusal(error):
                        raise StartError(f"{self._describe_target}: {_short_error_message(error)}") from error
                    waits.wait(_short_error_message(error))
        except SinkError as error:
            raise StartError(f"{self._describe_target}: {error}") from error

    @property
    def _describe_target(self) -> str:
        return f"PostgreSQL table {self.settings.table} at {self.settings.url.split('?', 1)[0]}"

    def _open_session(
        self, spark: SparkSession, login: tuple[str, str]
    ) -> AbstractContextManager[PostgresSession]:
        return connect(spark, self.settings.url, *login, SOCKET_SECONDS, self._tls_properties(spark))

    def _tls_properties(self, spark: SparkSession) -> Mapping[str, str]:
        if not self._secured:
            self._secured.update(tls_properties(spark, self.settings.tls, self.settings.authorities))
        return self._secured

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        """Insert the rows that the table does not hold; a result of many records replaces its last version.

        Guarantee: exactly once per identity, after any kill, retry or replay, also beside other programs
        that write the table: its own key decides. A second run of this query (an error) makes
        one of the two fail. Results of a batch before the last merged one count as duplicates. A batch becomes visible
        completely in one transaction, or not at all. Rows that the table refuses (a constraint, a value outside a column's
        type) become dead letters, and the others of their batch are written. If a server is unreachable, full or
        restarting, the sink waits within limits.
        """
        shape, version = (
            PostgresTable.from_columns(self.settings.table, rows.schema),
            version_if_rows_are_results(rows, place),
        )
        if shape.has_replacing_rows:
            # A batch with state must be read only once, because the read commits the state.
            rows = rows.persist()
        backoff = Backoff(self._describe_target)
        try:
            while True:
                try:
                    return self._stage_and_merge(rows, shape, version, refuse)
                except JVM_ERRORS as error:
                    state = sql_state(error)
                    if state is None or not state.startswith(_BUSY):
                        raise
                    backoff.wait(f"{state}: {_short_error_message(error)}")
                    if reread is not None and not shape.has_replacing_rows:
                        rows = reread()
        finally:
            if shape.has_replacing_rows:
                rows.unpersist()

    def _stage_and_merge(
        self, rows: DataFrame, shape: PostgresTable, version: int | None, refuse: Refuse
    ) -> WriteCounts:
        login, attempt = self.login(), uuid.uuid4().hex
        with self._open_session(rows.sparkSession, login) as session:
            session.run_and_count_rows(f"TRUNCATE {shape.staging_table}")
        counted = RowsCountedInPlan(
            (F.count(F.lit(1)).alias("offered"), F.count("_refused").alias("refused"))
        )
        marked = counted.observe(rows.withColumn("_refused", _reason_not_stageable(rows)))
        fit = marked.where(F.col("_refused").isNull()).drop("_refused")
        self._stage_rows(rows_through_rdd(fit), shape, login, attempt)
        figures = counted.values_after_action(fit)
        offered, refused = figures["offered"], figures["refused"]
        with self._open_session(rows.sparkSession, login) as session:
            unordered = shape.count_decided_by_arrival(session, attempt)
            written, spoilt = shape.merge_and_count_written_and_refused(
                session, attempt, least=offered - refused, version=version
            )
        if refused:
            refuse(
                dead_letters_of_refused_rows(rows, _reason_not_stageable(rows)).where(
                    F.col("_error").isNotNull()
                )
            )
        if spoilt:
            refuse(self._refused_rows(rows, shape, login))
        return WriteCounts(offered, written, refused + spoilt, unordered, fit)

    def _stage_rows(
        self, rows: DataFrame, shape: PostgresTable, login: tuple[str, str], attempt: str
    ) -> None:
        # Spark commits each partition in its own transaction; a repeated task may stage its
        # rows twice, which the merge handles.
        rows.select(*shape.columns_to_stage(rows, attempt)).write.format("jdbc").mode("append").options(
            **self._jdbc_options(rows.sparkSession, login),
            dbtable=shape.staging_table,
            numPartitions=str(self.settings.connections),
        ).save()

    def _jdbc_options(self, spark: SparkSession, login: tuple[str, str]) -> Mapping[str, str]:
        user, password = login
        return {
            **self._tls_properties(spark),
            "url": self.settings.url,
            "driver": "org.postgresql.Driver",
            "user": user,
            # Spark redacts values of this name in plans and event logs (spark.redaction.regex).
            "password": password,
            "batchsize": str(ROWS_PER_STATEMENT),
            "reWriteBatchedInserts": "true",
            # The server reads a text as what its column is.
            "stringtype": "unspecified",
            "isolationLevel": "READ_COMMITTED",
            "loginTimeout": str(LOGIN_SECONDS),
            "socketTimeout": str(SOCKET_SECONDS),
            "ApplicationName": "millrace",
        }

    def _refused_rows(self, rows: DataFrame, shape: PostgresTable, login: tuple[str, str]) -> DataFrame:
        """Return the rows that the table refused, with its message."""
        said = (
            rows.sparkSession.read.format("jdbc")
            .options(**self._jdbc_options(rows.sparkSession, login), dbtable=shape.refused_identities_table)
            .load()
        )
        refusals = said.groupBy(*shape.identity).agg(F.first("_refused").alias("_refused"))
        both = rows.join(F.broadcast(refusals), list(shape.identity))
        return dead_letters_of_refused_rows(
            both.select(*(both[f"`{c}`"] for c in rows.columns), "_refused"), F.col("_refused")
        )


def _reason_not_stageable(rows: DataFrame) -> Any:
    """Return the reason why a row cannot be staged: PostgreSQL's text allows no NUL, and its times no year before 4714 BC."""
    texts = [f.name for f in rows.schema.fields if isinstance(f.dataType, StringType)]
    reason = reason_not_storable(rows)
    for name in texts:
        reason = F.when(F.col(f"`{name}`").contains("\x00"), f"{name} holds a NUL character").otherwise(
            reason
        )
    return reason


def _short_error_message(error: BaseException) -> str:
    return describe_error(error).splitlines()[0][:500]


def read_login(arn: str, endpoint: str | None) -> tuple[str, str]:
    """Return user and password from a secret of Secrets Manager, in the form of AWS' own rotation.

    Raises
    ------
    SinkError
        As in :func:`etl.services.secret.read_secret`.
    """
    credentials = secret.read_secret(arn, endpoint, ("username", "password"))
    return credentials["username"], credentials["password"]
