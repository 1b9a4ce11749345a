"""Sign-in to a real broker: success, each refusal's message, and a password that changes while a job runs."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from millrace.etl.job import build_queries
from millrace.etl.job.supervise import RetryLimits, Supervisor
from millrace.etl.launch import settings
from millrace.etl.launch.settings import Connection, SecretLogin
from millrace.etl.launch.sinks import KafkaSinkSettings
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.errors import SinkError, StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.sinks.base import WriteCounts
from millrace.etl.sinks.kafka import KafkaSink
from millrace.etl.sources.kafka import connection as kafka
from millrace.etl.sources.kafka import login
from tests.faults import small_job_documents
from tests.faults.moto_server import moto
from tests.secured_kafka import PASSWORD, Guarded
from tests.spark.sink_input_rows import none_refused, place, row, rows
from tests.tls_proxy import Authority

pytestmark = pytest.mark.slow

REGION = "us-east-1"


@pytest.fixture(scope="module")
def broker(guarded_broker: Guarded) -> Guarded:
    return guarded_broker


class Secrets:
    """A Secrets Manager, by its API."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self._client = boto3.client(
            "secretsmanager", endpoint_url=endpoint, region_name=REGION,
            aws_access_key_id="test", aws_secret_access_key="test",
        )  # fmt: skip
        self._made = 0

    def holds(self, held: Any) -> str:
        """ARN of a new one."""
        self._made += 1
        text = held if isinstance(held, str) else json.dumps(held)
        return str(self._client.create_secret(Name=f"kafka-{self._made}", SecretString=text)["ARN"])

    def change(self, arn: str, held: dict[str, str]) -> None:
        self._client.put_secret_value(SecretId=arn, SecretString=json.dumps(held))


@pytest.fixture(scope="module")
def secrets() -> Iterator[Secrets]:
    with moto() as server, pytest.MonkeyPatch.context() as patch:
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        yield Secrets(server.endpoint)


def bound(secrets: Secrets, servers: str, kind: Any, arn: str) -> Connection:
    connection = Connection(None, servers, SecretLogin(kind, arn))
    return kafka.apply_bind_options("main", connection, {"secretsmanager.endpoint": secrets.endpoint})


def refused(spark: SparkSession, connection: Connection) -> str:
    with pytest.raises(StartError) as told:
        kafka.check_kafka_sign_in(spark, connection)
    return str(told.value)


@pytest.mark.parametrize("kind", ["scram-sha-512", "plain", "mutual-tls"])
def test_each_way_lets_in(kind: str, spark: SparkSession, broker: Guarded, secrets: Secrets) -> None:
    kafka.check_kafka_sign_in(
        spark, bound(secrets, broker.servers[kind], kind, secrets.holds(broker.secret(kind)))
    )


def test_an_own_authority_is_known_without_a_login(
    spark: SparkSession, broker: Guarded, secrets: Secrets
) -> None:
    servers = broker.servers["mutual-tls"]
    arn = secrets.holds({"certificateAuthority": broker.authority.pem.decode()})
    assert "the brokers ask for a certificate" in refused(spark, bound(secrets, servers, "tls", arn))
    plain = Connection(None, servers, "tls")
    assert "not trusted here" in refused(spark, plain)


def changed(broker: Guarded, what: str) -> tuple[str, dict[str, str | None]]:
    """A kind, and what its secret holds in place of what lets in; None for nothing."""
    old, key_of_old = broker.authority.signed("client", days=-1)
    foreign, key_of_foreign = Authority("foreign").signed("client")
    sealed, sealed_key = broker.authority.signed("client", password="another")
    return {
        "password": ("scram-sha-512", {"password": "hunter3"}),
        "password by PLAIN": ("plain", {"password": "hunter3"}),
        "user": ("scram-sha-512", {"username": "nobody"}),
        "no authority": ("scram-sha-512", {"certificateAuthority": None}),
        "another authority": ("plain", {"certificateAuthority": Authority("another").pem.decode()}),
        "no certificate": ("scram-sha-512", {"certificateAuthority": "hunter3"}),
        "out of date": ("mutual-tls", {"certificate": old, "privateKey": key_of_old}),
        "foreign": ("mutual-tls", {"certificate": foreign, "privateKey": key_of_foreign}),
        "another's key": ("mutual-tls", {"privateKey": key_of_foreign}),
        "sealed key": ("mutual-tls", {"certificate": sealed, "privateKey": sealed_key}),
        "broken key": (
            "mutual-tls",
            {"privateKey": "-----BEGIN PRIVATE KEY-----\nhunter3\n-----END PRIVATE KEY-----"},
        ),
        "missing": ("plain", {"password": None}),
        "empty": ("mutual-tls", {"certificate": ""}),
    }[what]  # type: ignore[return-value]


SAID = {
    "password": "the brokers refuse the user or the password of secret {arn}",
    "password by PLAIN": "the brokers refuse the user or the password of secret {arn}",
    "user": "the brokers refuse the user or the password of secret {arn}",
    "no authority": "the brokers' certificate is not trusted here (unable to find valid certification path",
    "another authority": "the brokers' certificate is not trusted here (unable to find valid certification path",
    "no certificate": "is not a certificate or key in PEM (No matching CERTIFICATE entries in PEM file)",
    "out of date": "the brokers refuse the certificate of secret {arn} (Received fatal alert: certificate_",
    "foreign": "the brokers refuse the certificate of secret {arn} (Received fatal alert: ",
    "another's key": "the brokers refuse the certificate of secret {arn} (Received fatal alert: ",
    "sealed key": "secret {arn}: privateKey must be an unencrypted PKCS #8 key in PEM",
    "broken key": "is not a certificate or key in PEM (Private key could not be loaded)",
    "missing": "secret {arn}: its value lacks password; it must be a JSON object with username and password",
    "empty": "secret {arn}: its value lacks certificate; it must be a JSON object with certificate and privateKey",
}


@pytest.mark.faults
@pytest.mark.parametrize("what", SAID)
def test_who_is_not_let_in_is_told_what_to_do(
    what: str, spark: SparkSession, broker: Guarded, secrets: Secrets
) -> None:
    kind, other = changed(broker, what)
    held = {name: text for name, text in {**broker.secret(kind), **other}.items() if text is not None}
    arn = secrets.holds(held)
    told = refused(spark, bound(secrets, broker.servers[kind], kind, arn))
    assert SAID[what].format(arn=arn) in told
    assert "\n" not in told
    texts = [text for name, text in held.items() if name in ("password", "privateKey")]
    assert not [line for text in texts for line in text.splitlines() if line in told]


@pytest.mark.faults
@pytest.mark.parametrize("text", ["hunter3", '["hunter3"]', '"hunter3"', "{"])
def test_a_secret_that_holds_something_else_is_named_and_not_shown(
    text: str, spark: SparkSession, secrets: Secrets
) -> None:
    arn = secrets.holds(text)
    told = refused(spark, bound(secrets, "localhost:1", "plain", arn))
    assert told == f"secret {arn}: its value must be a JSON object with username and password"


@pytest.mark.faults
def test_a_secret_that_is_not_there_and_another_mechanism_are_told(
    spark: SparkSession, broker: Guarded, secrets: Secrets
) -> None:
    gone = f"arn:aws:secretsmanager:{REGION}:123456789012:secret:gone-AbCdEf"
    assert f"secret {gone}: there is none in {REGION}" in refused(
        spark, bound(secrets, "localhost:1", "plain", gone)
    )
    arn = secrets.holds(broker.secret("plain"))
    told = refused(spark, bound(secrets, broker.servers["scram-sha-512"], "plain", arn))
    assert "enabled mechanisms are [SCRAM-SHA-512]" in told


@pytest.mark.faults
def test_brokers_that_are_named_otherwise_than_in_their_certificate_are_told(
    spark: SparkSession, secrets: Secrets, broker: Guarded
) -> None:
    servers = broker.servers["plain"].replace("localhost", "127.0.0.1")
    told = refused(spark, bound(secrets, servers, "plain", secrets.holds(broker.secret("plain"))))
    assert "No subject alternative names matching IP address 127.0.0.1" in told
    assert "for another name than that in bootstrap_servers" in told


@pytest.mark.parametrize(
    "text", ["${file:/etc/passwd:x}", "a\\u0041\tb", " leading", "a\r\nb", "#!=:", "ä€𝄞"]
)
def test_kafka_reads_every_text_as_it_was(text: str, spark: SparkSession, tmp_path: Path) -> None:
    options = login._options_referring_to_shipped_file(
        {"kafka.ssl.keystore.key": text, "kafka.sasl.jaas.config": f"x{text}"}
    )
    jvm: Any = spark._jvm
    provider = jvm.org.apache.kafka.common.config.provider.FileConfigProvider()
    provider.configure(jvm.java.util.HashMap())
    path = options["kafka.ssl.keystore.key"].removeprefix("${file:").rpartition(":kafka.ssl")[0]
    held = provider.get(path).data()
    assert dict(held) == {"kafka.ssl.keystore.key": text, "kafka.sasl.jaas.config": f"x{text}"}
    assert Path(path).stat().st_mode & 0o777 == 0o600


@pytest.mark.faults
@pytest.mark.slow
def test_a_sink_follows_a_password_that_is_changed(
    spark: SparkSession, broker: Guarded, secrets: Secrets, tmp_path: Path
) -> None:
    broker.kafka.create_topic("sent", 1)
    arn = secrets.holds(broker.secret("scram-sha-512"))
    connection = bound(secrets, broker.servers["scram-sha-512"], "scram-sha-512", arn)
    one = KafkaSink(KafkaSinkSettings("sent", "main", None, 9000), connection)
    batch = rows(spark, [row(1)])
    one.prepare(spark, batch.schema)
    assert one.write(batch, place(0, notes=tmp_path), none_refused) == WriteCounts(1, 1)
    broker.set_password("changed")
    try:
        secrets.change(arn, broker.secret("scram-sha-512") | {"password": "changed"})
        # The connections that are open continue; a batch that comes again opens one, to look at the topic's end.
        with pytest.raises(SinkError, match="SaslAuthenticationException"):
            one.write(batch, place(0, notes=tmp_path), none_refused)
        assert one.write(batch, place(0, notes=tmp_path), none_refused) == WriteCounts(1, 0)
    finally:
        broker.set_password(PASSWORD)


@pytest.mark.slow
@pytest.mark.faults
def test_a_query_follows_a_password_that_is_changed(
    spark: SparkSession, broker: Guarded, secrets: Secrets, tmp_path: Path
) -> None:
    """The broker asks clients who they are again every few seconds, as with ``connections.max.reauth.ms`` any may."""
    broker.kafka.create_topic("read", 1)
    producer = Producer({"bootstrap.servers": broker.kafka.bootstrap})
    producer.produce("read", json.dumps({"n": 1}))
    assert producer.flush(30) == 0
    arn = secrets.holds(broker.secret("scram-sha-512"))
    (tmp_path / "schema.ddl").write_text("n BIGINT")
    queries = small_job_documents.queries(
        "land",
        small_job_documents.topic("read", 10, label="read"),
        tmp_path / "schema.ddl",
        lambda _: "tests.rotated",
    )
    main = {
        "cluster": None, "bootstrap_servers": broker.servers["scram-sha-512"],
        "authentication": {"kind": "scram-sha-512", "secret": arn},
    }  # fmt: skip
    job = small_job_documents.settings("shop", queries, str(tmp_path / "checkpoints"), None, retries=2)
    job |= {"connections": {"main": main}}
    said = Lines()
    report = EventReporter("rotated", said)
    built = build_queries.build_queries(
        JobRun(spark, settings.parse_job_settings(job), {"secretsmanager.endpoint": secrets.endpoint}, report)
    )
    supervisor = Supervisor(spark, report, retries=RetryLimits(2, 0.5))
    ended: list[int] = []
    running = threading.Thread(target=lambda: ended.append(supervisor.run_to_exit_status(built)))
    running.start()
    try:
        said.wait("batch")
        secrets.change(arn, broker.secret("scram-sha-512") | {"password": "changed"})
        broker.set_password("changed")
        said.wait("retrying")
        producer.produce("read", json.dumps({"n": 2}))
        assert producer.flush(30) == 0
        said.wait("batch", 2)
    finally:
        supervisor.request_stop()
        running.join()
        broker.set_password(PASSWORD)
    assert ended == [0]
    assert spark.table("lake.tests.rotated").count() == 2
    [retried] = [each for each in said.all() if each["event"] == "retrying"]
    assert "SaslAuthenticationException" in retried["error"]


class Lines(io.StringIO):
    """What a job says; tests wait for it."""

    def __init__(self) -> None:
        super().__init__()
        self._more = threading.Condition()

    def write(self, text: str) -> int:
        with self._more:
            self._more.notify_all()
            return super().write(text)

    def all(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]

    def wait(self, event: str, count: int = 1) -> None:
        with self._more:
            said = self._more.wait_for(
                lambda: sum(each["event"] == event for each in self.all()) >= count, 180
            )
        assert said, self.getvalue()
