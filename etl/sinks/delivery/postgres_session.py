"""Connections to PostgreSQL from the driver, over the JVM's JDBC: transactions, TLS, SQLSTATEs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from ...formats.schema_files import read_job_file
from ...record import ship_file_to_jvms
from ...record.errors import java_causes

_REJECTED = "08004"
"""SQLSTATE of pgjdbc if the server does not support TLS (``PSQLState.CONNECTION_REJECTED``)."""

LOGIN_SECONDS = 20
"""Longest time for all of a login; ``socketTimeout`` alone would let a server that accepts and is silent take as long as a statement."""


@dataclass
class PostgresSession:
    """Connection in one transaction."""

    connection: Any

    def run_and_count_rows(self, sql: str) -> int:
        """Run a statement; return the number of changed rows."""
        with closing(self.connection.createStatement()) as statement:
            return int(statement.executeUpdate(sql))

    def query(self, sql: str, *values: str) -> list[tuple[Any, ...]]:
        """Return the rows of a query, each value as text, a boolean or None."""
        with closing(self.connection.prepareStatement(sql)) as statement:
            for position, value in enumerate(values, start=1):
                statement.setString(position, value)
            result = statement.executeQuery()
            count = result.getMetaData().getColumnCount()
            rows = []
            while result.next():
                rows.append(tuple(result.getObject(i) for i in range(1, count + 1)))
            return rows


def tls_properties(spark: SparkSession, kind: str, authorities: str | None) -> dict[str, str]:
    """Return the driver's properties for TLS; without them it would connect without encryption if the server has no TLS.

    The driver reads certificates from files only, in the JVM of the Spark driver and of each executor.

    Parameters
    ----------
    spark
        Session whose executors connect too.
    kind, authorities
        As in :class:`etl.launch.sinks.JdbcSinkSettings`.

    Raises
    ------
    StartError
        The file of the authorities is not in the job's archive.
    """
    if kind == "off":
        return {"sslmode": "disable"}
    if authorities is None:
        return {"sslmode": "verify-full", "sslfactory": "org.postgresql.ssl.DefaultJavaSSLFactory"}
    file = ship_file_to_jvms.ship_file_to_jvms(
        spark.sparkContext, "authorities", read_job_file(spark, authorities)
    )
    return {"sslmode": "verify-full", "sslrootcert": file}


@contextmanager
def connect(
    spark: SparkSession, url: str, user: str, password: str, socket_seconds: int, secured: Mapping[str, str]
) -> Iterator[PostgresSession]:
    """Open a connection through the driver that Spark registers; it is committed at the end, or rolled back after an error.

    Parameters
    ----------
    spark
        Session in whose JVM the connection is opened.
    socket_seconds
        Longest time without data from the server during a statement.
    secured
        From :func:`tls_properties`.
    """
    jvm: Any = spark._jvm
    jvm.org.apache.spark.sql.execution.datasources.jdbc.DriverRegistry.register("org.postgresql.Driver")
    properties = jvm.java.util.Properties()
    properties.putAll(
        {
            "user": user,
            "password": password,
            "ApplicationName": "millrace",
            "tcpKeepAlive": "true",
            "loginTimeout": str(LOGIN_SECONDS),
            "connectTimeout": "10",
            "socketTimeout": str(socket_seconds),
            **secured,
        }
    )
    with closing(jvm.java.sql.DriverManager.getConnection(url, properties)) as connection:
        connection.setAutoCommit(False)
        try:
            yield PostgresSession(connection)
            connection.commit()
        except BaseException:
            # A broken connection has rolled back by itself; the current error has the reason.
            with suppress(Py4JJavaError):
                connection.rollback()
            raise


def sql_state(error: BaseException) -> str | None:
    """Return the SQLSTATE of the first database error behind an error of PySpark; None if there is none."""
    for cause in java_causes(error):
        if hasattr(cause, "getSQLState") and "SQLException" in str(cause.getClass().getName()):
            state = cause.getSQLState()
            return None if state is None else str(state)
    return None


def is_tls_refusal(error: BaseException) -> bool:
    """Check that a connection was refused for its certificate or for missing TLS; a retry cannot help."""
    of_certificates = ("java.security.cert.", "sun.security.validator.")
    classes = (str(cause.getClass().getName()) for cause in java_causes(error))
    return sql_state(error) == _REJECTED or any(name.startswith(of_certificates) for name in classes)
