"""PostgreSQL's certificate is verified before a password is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.launch.sinks import JdbcSinkSettings
from millrace.etl.record.errors import StartError
from millrace.etl.sinks.base import WriteCounts
from millrace.etl.sinks.jdbc import JdbcSink
from millrace.sandbox.programs import jars
from tests import postgres
from tests.postgres import Postgres
from tests.spark import separate_executors
from tests.spark.sink_input_rows import none_refused, place, row, rows
from tests.tls_proxy import Authority, front

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres.running() as running:
        yield running


def sink(port: int, table: str, authorities: Path | None, host: str = "localhost") -> JdbcSink:
    url = f"jdbc:postgresql://{host}:{port}/{postgres.DATABASE}"
    named = None if authorities is None else str(authorities)
    settings = JdbcSinkSettings(url, f"public.{table}", "arn", "us-east-1", 2, "verify-full", named)
    return JdbcSink(settings, lambda: (postgres.USER, postgres.PASSWORD))


def test_a_server_whose_authority_is_named_is_written_over_tls_alone(
    spark: SparkSession, server: Postgres, tmp_path: Path
) -> None:
    authority, other = Authority("ours"), Authority("another of the bundle")
    bundle = tmp_path / "bundle.pem"
    bundle.write_bytes(other.pem + authority.pem)
    with front(server.port, authority.server(tmp_path, "localhost")) as tls:
        one = sink(tls.port, "secured", bundle)
        batch = rows(spark, [row(n) for n in range(1, 5)])
        one.prepare(spark, batch.schema)
        assert one.write(batch, place(0), none_refused) == WriteCounts(4, 4)
        assert one.write(batch, place(0), none_refused) == WriteCounts(4, 0)
        assert tls.encrypted > 4  # the driver's, and those of the tasks
        assert tls.clear == 0
    assert server.run("SELECT count(*) FROM secured") == [["4"]]


def test_a_server_without_tls_is_refused(spark: SparkSession, server: Postgres, tmp_path: Path) -> None:
    """With the driver's own default, ``prefer``, it is written in the clear."""
    (tmp_path / "authority.pem").write_bytes(Authority("ours").pem)
    for authorities in (tmp_path / "authority.pem", None):
        with pytest.raises(StartError, match="The server does not support SSL"):
            sink(server.port, "clear", authorities).prepare(spark, rows(spark, [row(1)]).schema)
    assert server.run("SELECT count(*) FROM pg_tables WHERE tablename = 'clear'") == [["0"]]


@pytest.mark.parametrize(
    ("named", "certificate_of", "said"),
    [
        ("another's", "localhost", "PKIX path|certificate"),
        (None, "localhost", "PKIX path|certificate"),
        # A name that no certificate has is asked for again until the wait ends: 40 s.
        pytest.param("ours", "elsewhere.example", "could not be verified", marks=pytest.mark.slow),
    ],
    ids=["another authority", "none that Java trusts", "another server's certificate"],
)
def test_a_server_that_cannot_be_known_is_refused(
    named: str | None, certificate_of: str, said: str, spark: SparkSession, server: Postgres, tmp_path: Path
) -> None:
    ours = Authority("ours")
    file = None
    if named is not None:
        file = tmp_path / "authority.pem"
        file.write_bytes(ours.pem if named == "ours" else Authority(named).pem)
    with (
        front(server.port, ours.server(tmp_path, certificate_of)) as tls,
        pytest.raises(StartError, match=said) as told,
    ):
        sink(tls.port, "unknown", file).prepare(spark, rows(spark, [row(1)]).schema)
    assert postgres.PASSWORD not in str(told.value)
    assert server.run("SELECT count(*) FROM pg_tables WHERE tablename = 'unknown'") == [["0"]]


def test_certificates_that_did_not_travel_are_named(spark: SparkSession, server: Postgres) -> None:
    with pytest.raises(StartError, match=r"pipelines/none\.pem"):
        sink(server.port, "x", Path("pipelines/none.pem")).prepare(spark, rows(spark, [row(1)]).schema)


PROGRAM = """
from pathlib import Path
from millrace.etl.sinks.delivery.postgres_session import connect, tls_properties

url, authorities, user, password = arguments
secured = tls_properties(spark, "verify-full", authorities)
assert not Path(secured["sslrootcert"]).is_absolute()
options = dict(secured, url=url, driver="org.postgresql.Driver", user=user, password=password, dbtable="far")
spark.range(100).repartition(4).write.format("jdbc").mode("append").options(**options).save()
with connect(spark, url, user, password, 60, secured) as session:
    session.run_and_count_rows("DELETE FROM far WHERE id > 89")
spark.stop()
"""


@pytest.mark.slow
def test_executors_in_processes_of_their_own_know_the_authorities_too(
    server: Postgres, tmp_path: Path
) -> None:
    authority = Authority("ours")
    pem = tmp_path / "authority.pem"
    pem.write_bytes(authority.pem)
    with front(server.port, authority.server(tmp_path, "localhost")) as tls:
        url = f"jdbc:postgresql://localhost:{tls.port}/{postgres.DATABASE}"
        arguments = [url, str(pem), postgres.USER, postgres.PASSWORD]
        separate_executors.run(PROGRAM, arguments, jars=jars.jar_files("postgresql"), folder=tmp_path)
        assert tls.clear == 0
    assert server.run("SELECT count(*) FROM far") == [["90"]]
