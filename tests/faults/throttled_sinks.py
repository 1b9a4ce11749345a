"""Fault test of sinks whose servers are slow or stay busy: ``python -m tests.faults.throttled_sinks``.

For each sink that a server can throttle: a write that the server's limit makes slow, which must end with every row there
once, and a write whose server takes nothing, which must fail loudly, when the patience of three minutes is at an end.
Kafka is slowed by a quota of the broker itself, and held by SIGSTOP; before Kinesis and DynamoDB stands a proxy with a limit as AWS
documents it; OpenSearch answers 429 since its queue of writes is short, and its memory for requests a byte. It takes about five minutes.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass

from pyspark.sql import SparkSession

from millrace.etl.launch.settings import Connection
from millrace.etl.launch.sinks import (
    DynamoDbSinkSettings,
    KafkaSinkSettings,
    KinesisSinkSettings,
    OpenSearchSinkSettings,
)
from millrace.etl.record.errors import describe_error
from millrace.etl.sinks.base import Sink
from millrace.etl.sinks.delivery.kinesis_tail import identity_of_record
from millrace.etl.sinks.dynamodb import DynamoDbSink
from millrace.etl.sinks.kafka import KafkaSink
from millrace.etl.sinks.kinesis import KinesisSink
from millrace.etl.sinks.opensearch import OpenSearchSink
from millrace.sandbox.programs import jars, kafka_broker, open_spark_session
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.toolchain import java_home
from tests import kinesalite, opensearch
from tests.faults.moto_server import items, make_table, moto
from tests.faults.sink_contents import messages, records
from tests.kinesalite import CREDENTIALS, REGION
from tests.spark import faulty_dynamodb_kinesis_proxy
from tests.spark.sink_input_rows import none_refused, place, row, rows

ROWS = 5_000
QUOTA = 200_000
"""Bytes in a second that the broker takes of a producer; the rows below are some 2 MB."""

RECORDS = 500
"""A second, of the stream: a half of what one shard takes (Kinesis developer guide, "Quotas")."""

ITEMS = 150
"""A second, of the table: less than moto's server takes here."""

SHARDS = 64
"""Of the index: a request has a part for each, and a few of them find a place in the queue."""

MOST_SECONDS = 300.0
"""For a write whose server takes nothing: the patience, and a task's end."""


@dataclass
class Case:
    """A sink, before a server that can be made slow, and what the server has seen.

    Attributes
    ----------
    busy
        Makes its server take nothing.
    held
        How often it holds each identity.
    seen
        What it has answered, or how it was slowed.
    """

    name: str
    sink: Sink
    busy: Callable[[], None]
    held: Callable[[], Counter[str]]
    seen: Callable[[], str]


@contextmanager
def topic(broker: KafkaBroker) -> Iterator[Case]:
    """Kafka, slowed by a quota of its own."""
    broker.create_topic("slow", 2)
    settings = KafkaSinkSettings("slow", "main", None, 100_000)
    _quota(broker, QUOTA)
    begun = time.monotonic()

    def seen() -> str:
        return f"quota of {QUOTA:,} B/s, {sum(sizes):,} B in the topic after {time.monotonic() - begun:.0f} s"

    sizes: list[int] = []

    def held() -> Counter[str]:
        results = Counter[str]()
        for identity, size in _messages(broker, "slow"):
            results[identity] += 1
            sizes.append(size)
        return results

    connection = Connection(None, broker.bootstrap, "none")
    pid = broker.process.popen.pid
    try:
        # However low, a quota lets some through: a broker that is held answers nobody.
        yield Case("kafka", KafkaSink(settings, connection), lambda: os.kill(pid, signal.SIGSTOP), held, seen)
    finally:
        os.kill(pid, signal.SIGCONT)


def _quota(broker: KafkaBroker, rate: int) -> None:
    """Set what every producer may send in a second, by Kafka's own tool."""
    class_path = ":".join(map(str, jars.jar_files("kafka-broker")))
    command = [
        str(java_home() / "bin" / "java"), "-cp", class_path, "kafka.admin.ConfigCommand", "--bootstrap-server",
        broker.bootstrap, "--alter", "--add-config", f"producer_byte_rate={rate}", "--entity-type", "clients",
        "--entity-default",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True)


def _messages(broker: KafkaBroker, name: str) -> Iterator[tuple[str, int]]:
    for message in messages(broker.bootstrap, name):
        headers: dict[str, bytes] = dict(message.headers() or ())  # type: ignore[arg-type]
        yield headers["millrace-id"].decode(), len(message)


@contextmanager
def stream() -> Iterator[Case]:
    """Kinesis, behind a proxy that takes so many records in a second."""
    with (
        kinesalite.running(name="throttle") as server,
        faulty_dynamodb_kinesis_proxy.before(server.endpoint) as faults,
    ):
        client = server.client()
        client.create_stream(StreamName="slow", ShardCount=1)
        client.get_waiter("stream_exists").wait(StreamName="slow", WaiterConfig={"Delay": 1})
        faults.rate = RECORDS
        settings = KinesisSinkSettings("slow", REGION, None, 100_000)

        def held() -> Counter[str]:
            result = (identity_of_record(record["Data"]) for record in records(client, "slow"))
            return Counter(identity[1] for identity in result if identity is not None)

        yield Case(
            "kinesis",
            KinesisSink(settings, faults.endpoint),
            lambda: setattr(faults, "rate", 0.0),
            held,
            lambda: _answers(faults, f"{RECORDS} records"),
        )


@contextmanager
def table(endpoint: str) -> Iterator[Case]:
    """DynamoDB, behind a proxy that takes so many items in a second."""
    dynamodb = LocalStack(endpoint, REGION, None).client("dynamodb")
    make_table(dynamodb, "slow")
    with faulty_dynamodb_kinesis_proxy.before(endpoint) as faults:
        faults.rate = ITEMS

        def held() -> Counter[str]:
            return Counter(items(dynamodb, "slow", "_id"))

        yield Case(
            "dynamodb",
            DynamoDbSink(DynamoDbSinkSettings("slow", REGION), faults.endpoint),
            lambda: setattr(faults, "rate", 0.0),
            held,
            lambda: _answers(faults, f"{ITEMS} items"),
        )


def _answers(faults: faulty_dynamodb_kinesis_proxy.Faults, what: str) -> str:
    return (
        f"{what} a second, {faults.done['refused']} of {faults.done['refused'] + faults.done['passed']} "
        "requests throttled in whole or in part"
    )


@contextmanager
def index() -> Iterator[Case]:
    """OpenSearch, whose queue of writes is shorter than an index has shards."""
    with opensearch.running() as domain:
        domain.create("slow", SHARDS)
        settings = OpenSearchSinkSettings(domain.endpoint, "slow", REGION)
        yield Case(
            "opensearch",
            OpenSearchSink(settings),
            lambda: domain.refuse_writes(True),
            lambda: Counter(document["millrace"]["id"] for document in domain.documents("slow").values()),
            lambda: f"{SHARDS} shards, {domain.rejected()} parts of requests answered 429",
        )


def slowed(spark: SparkSession, case: Case) -> bool:
    """Write through the limit; print what came of it."""
    batch = rows(spark, [row(n) for n in range(ROWS)], parts=2)
    begun = time.monotonic()
    done = case.sink.write(batch, place(0), none_refused)
    seconds = time.monotonic() - begun
    held = case.held()
    whole = held == Counter(f"flights-topic/0/{n}" for n in range(ROWS)) and done.written == ROWS
    sys.stdout.write(
        f"{case.name}: {case.seen()}; {done.written} rows written in {seconds:.1f} s, {len(held)} there, "
        f"{sum(held.values()) - len(held)} twice\n"
    )
    return whole


def stuck(spark: SparkSession, case: Case, results: dict[str, tuple[float, str]]) -> None:
    """Write to a server that takes nothing, and keep how long it took and what was said."""
    batch = rows(spark, [row(n) for n in range(ROWS, ROWS + 500)], parts=1)
    begun = time.monotonic()
    try:
        case.sink.write(batch, place(1), none_refused)
    except Exception as error:
        said = [
            line
            for line in describe_error(error).splitlines()
            if "could be written" in line or "Timeout" in line
        ]
        results[case.name] = (time.monotonic() - begun, said[-1] if said else describe_error(error))


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--only", choices=("kafka", "kinesis", "dynamodb", "opensearch"))
    return reading


def main() -> int:
    """Run both kinds of writes; 1 where one is not as promised."""
    only = parser().parse_args().only
    status = 0
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    with ExitStack() as ending:
        played = ending.enter_context(moto())
        os.environ.update(CREDENTIALS)
        settings = {"spark.master": "local[6]"}
        spark = ending.enter_context(
            open_spark_session.running_spark_session(jars.jar_files("kafka-client"), settings)
        )
        ways: dict[str, Callable[[], AbstractContextManager[Case]]] = {
            "kafka": lambda: topic(ending.enter_context(kafka_broker.running_broker())),
            "kinesis": stream,
            "dynamodb": lambda: table(played.endpoint),
            "opensearch": index,
        }
        cases = [ending.enter_context(way()) for name, way in ways.items() if only in (None, name)]
        whole = sum(slowed(spark, case) for case in cases)
        status |= whole < len(cases)
        results: dict[str, tuple[float, str]] = {}
        for case in cases:
            case.busy()
        # At once, as each of them takes three minutes.
        threads = [threading.Thread(target=stuck, args=(spark, case, results)) for case in cases]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for case in cases:
            seconds, said = results.get(case.name, (0.0, "written, though nothing was taken"))
            sys.stdout.write(f"{case.name}, taking nothing: after {seconds:.0f} s: {said[:300]}\n")
            status |= not 150 < seconds < MOST_SECONDS
        failed = [seconds for seconds, _ in results.values()]
        sys.stdout.write(
            f"{len(cases)} sinks: {whole} held all {ROWS:,} rows once after a server that was slow; {len(failed)} failed "
            f"loudly before one that takes nothing, after {min(failed, default=0):.0f} to {max(failed, default=0):.0f} s\n"
        )
    return status


if __name__ == "__main__":
    raise SystemExit(main())
