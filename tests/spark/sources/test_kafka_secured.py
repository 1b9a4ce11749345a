"""Runs of a job on a secured broker land and send every record, and write no secret to logs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from pydantic import TypeAdapter

from millrace.config import Names, load
from millrace.config.kafka.login import Login
from millrace.config.model import ExternalCluster
from millrace.lifecycle.account import kafka_access
from millrace.sandbox.programs import jars
from millrace.sandbox.programs.child_processes import ChildProcess
from millrace.sandbox.programs.start_spark_submit import read_driver_events
from tests import secured_kafka
from tests.faults import round_setup, small_job_documents
from tests.faults.moto_server import moto
from tests.secured_kafka import Guarded
from tests.spark import separate_executors

ROOT = Path(__file__).parents[3]
KINDS = ("scram-sha-512", "plain", "mutual-tls")
RECORDS = 20
AWS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}


@dataclass
class Place:
    """A guarded broker, and a Secrets Manager with what lets into it."""

    broker: Guarded
    endpoint: str
    held: dict[str, dict[str, str]]
    arns: dict[str, str]

    def client(self, service: str) -> Any:
        return boto3.client(
            service, endpoint_url=self.endpoint, region_name="us-east-1",
            aws_access_key_id="test", aws_secret_access_key="test",
        )  # fmt: skip

    def store(self, name: str, held: dict[str, str]) -> str:
        client = self.client("secretsmanager")
        return str(client.create_secret(Name=name, SecretString=json.dumps(held))["ARN"])


@pytest.fixture(scope="module")
def place(guarded_broker: Guarded) -> Iterator[Place]:
    with moto() as server:
        held = {kind: guarded_broker.secret(kind) for kind in KINDS}
        made = Place(guarded_broker, server.endpoint, held, {})
        made.arns = {kind: made.store(f"AmazonMSK_{kind}", each) for kind, each in held.items()}
        yield made


def document(place: Place, home: Path, arns: dict[str, str]) -> dict[str, Any]:
    """Of a job that lands the topic of each kind, and sends it on to another topic of the same cluster."""
    schema = home / "schema.ddl"
    schema.write_text("n BIGINT NOT NULL")
    queries: list[dict[str, Any]] = []
    for kind in arns:
        name = kind.replace("-", "_")
        source = small_job_documents.topic(f"in-{kind}", 1000, label=kind, lag_group=f"lag-{kind}") | {
            "connection": kind
        }
        table = {"landed": f"t.{name}", "letters": f"t.letters_{name}"}.__getitem__
        sink = {
            "kind": "kafka",
            "topic": f"out-{kind}",
            "connection": kind,
            "key": None,
            "max_record_bytes": 9000,
        }
        for verb, query in (("land", "land"), ("send", "direct")):
            (made,) = small_job_documents.queries(query, source, schema, table, sink=sink)
            queries.append(made | {"name": f"{verb}-{kind}"})
    connections = {
        kind: {
            "cluster": None,
            "bootstrap_servers": place.broker.servers[kind],
            "authentication": {"kind": kind, "secret": arn},
        }
        for kind, arn in arns.items()
    }
    return small_job_documents.settings("secured", queries, f"{home}/checkpoints", None) | {
        "connections": connections
    }


@contextmanager
def job(place: Place, home: Path, arns: dict[str, str]) -> Iterator[ChildProcess]:
    """Start it with everything logged that Spark logs by itself."""
    (home / "events").mkdir()
    round_setup.local_catalog(home).close()
    settings = {
        "spark.master": "local[2]",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.log.level": "INFO",
        "spark.eventLog.enabled": "true",
        # Spark 4 packs and rolls them.
        "spark.eventLog.compress": "false",
        "spark.eventLog.rolling.enabled": "false",
        "spark.eventLog.dir": (home / "events").as_uri(),
    }
    binds = {"secretsmanager.endpoint": place.endpoint}
    with round_setup.start(
        "kafka-secured", home, document(place, home, arns), spark=settings, binds=binds
    ) as process:
        yield process


def sent_on(place: Place, topics: list[str]) -> dict[str, set[int]]:
    """Numbers in the topics, when each holds all."""
    settings = {
        "bootstrap.servers": place.broker.kafka.bootstrap,
        "group.id": "reader",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe(topics)
    result: dict[str, set[int]] = {topic: set() for topic in topics}
    try:
        while any(len(each) < RECORDS for each in result.values()):
            message = consumer.poll(240)
            assert message is not None, result
            if not message.error():
                result[message.topic()].add(json.loads(message.value())["n"])
    finally:
        consumer.close()
    return result


def secrets_of(place: Place) -> set[str]:
    """Texts that nobody may find: as they are, and as JSON, Java or a log would have them; a key by each of its lines."""
    result = {secured_kafka.PASSWORD, json.dumps(secured_kafka.PASSWORD)[1:-1], "ter2"}
    key = place.held["mutual-tls"]["privateKey"]
    return result | {line for line in key.splitlines() if line and "-----" not in line}


def written(home: Path) -> dict[Path, str]:
    """Everything below a folder but jars."""
    return {
        path: path.read_bytes().decode("latin-1")
        for path in home.rglob("*")
        if path.is_file() and path.suffix != ".jar"
    }


@pytest.mark.slow
def test_each_way_lands_and_sends_and_leaves_no_secret_behind(place: Place, tmp_path: Path) -> None:
    producer = Producer({"bootstrap.servers": place.broker.kafka.bootstrap})
    for kind in KINDS:
        place.broker.kafka.create_topic(f"in-{kind}", 2)
        place.broker.kafka.create_topic(f"out-{kind}", 2)
        for n in range(RECORDS):
            producer.produce(f"in-{kind}", key=str(n), value=json.dumps({"n": n}))
        producer.produce(f"in-{kind}", key="odd", value="no json")
    assert producer.flush(30) == 0
    with job(place, tmp_path, place.arns) as process:
        result = sent_on(place, [f"out-{kind}" for kind in KINDS])
        landed: dict[str, int] = {}
        process.wait_until(
            lambda: (
                landed.update(counted(process)) or all(landed.get(f"land-{kind}", 0) == 21 for kind in KINDS)
            ),
            seconds=240,
            what="landing",
        )
        process.popen.send_signal(signal.SIGTERM)
        process.popen.wait(120)
    assert result == {f"out-{kind}": set(range(RECORDS)) for kind in KINDS}
    assert not [
        each
        for each in read_driver_events(process)
        if each["event"] in ("failed", "retrying", "lag_unwritten")
    ]
    files = written(tmp_path)
    [log] = [text for path, text in files.items() if path.parent.name == "events"]
    assert "SparkListenerSQLExecutionStart" in log
    assert place.broker.servers["mutual-tls"] in log  # plans are told with their options
    for path, text in files.items():
        assert not [each for each in secrets_of(place) if each in text], path


def counted(process: ChildProcess) -> dict[str, int]:
    result: dict[str, int] = {}
    for each in read_driver_events(process):
        if each["event"] == "batch":
            result[each["query"]] = result.get(each["query"], 0) + each["read"]
    return result


PROGRAM = """
from millrace.etl.launch.settings import Connection, SecretLogin
from millrace.etl.sources.kafka.connection import apply_bind_options, connection_options

endpoint, kind, servers, secret = arguments
connection = Connection(None, servers, SecretLogin(kind, secret))
options = connection_options(apply_bind_options("main", connection, {"secretsmanager.endpoint": endpoint}))
assert "${file:kafka-" in str(options), options
rows = spark.range(20).repartition(2).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("kafka").options(**options, topic="far").save()
read = spark.read.format("kafka").options(**options, subscribe="far").load()
assert read.selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS n").agg({"n": "sum"}).first()[0] == 190
spark.stop()
"""


@pytest.mark.slow
def test_executors_in_processes_of_their_own_sign_in_too(place: Place, tmp_path: Path) -> None:
    place.broker.kafka.create_topic("far", 2)
    kind = "mutual-tls"
    arguments = [place.endpoint, kind, place.broker.servers[kind], place.arns[kind]]
    separate_executors.run(
        PROGRAM, arguments, jars=jars.jar_files("kafka-client"), folder=tmp_path, environment=AWS
    )
    assert not list(tmp_path.glob("kafka-*"))  # the driver's copy


@pytest.mark.slow
@pytest.mark.faults
def test_a_password_that_is_refused_ends_the_start_with_a_message_of_one_line(
    place: Place, tmp_path: Path
) -> None:
    wrong = place.store("wrong", place.held["plain"] | {"password": "hunter3"})
    with job(place, tmp_path, {"plain": wrong}) as process:
        assert process.popen.wait(180) == 2
    text = process.log.read_text()
    [told] = [line for line in text.splitlines() if line.startswith("error: ")]
    assert told.startswith(
        f"error: Kafka cluster at {place.broker.servers['plain']}: the brokers refuse the user"
    )
    assert wrong in told
    assert "Traceback" not in text
    assert not [path for path, text in written(tmp_path).items() if "hunter3" in text]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_command_line_signs_in_by_the_same_secret(kind: str, place: Place) -> None:
    """By a client of its own, librdkafka."""
    place.broker.kafka.create_topic(f"seen-{kind}", 1)
    login = TypeAdapter(Login).validate_python({"kind": kind, "secret": place.arns[kind]})
    servers = place.broker.servers[kind]
    theirs = ExternalCluster(kind="external", bootstrap_servers=servers, authentication=login)
    model = load("minimal", root=ROOT).model_copy(update={"kafka": {"theirs": theirs}})
    names = Names(model, "111122223333")
    result = AdminClient(
        dict(kafka_access.cluster_connection_settings(names, "theirs", place.client))
    ).list_topics(timeout=60)
    assert f"seen-{kind}" in result.topics
