"""Fault test with kill -9 during writes to sinks: ``python -m tests.faults.kill_during_sink_writes --kills 10``.

One job of direct queries reads a topic of a real broker and writes PostgreSQL, another topic, Kinesis (kinesalite),
DynamoDB (moto's server), OpenSearch (:mod:`tests.opensearch`) and Parquet files. With ``--deployed`` a job that the CDK app has deployed to LocalStack
is started from its launch document and from nothing else: it lands the topic, and derives from it into those of these
sinks that an environment can name here. Each server is no part of the driver, which is killed again and again at a
random moment, and started again on the same checkpoints; at last one run reads to the end. Then each sink is held
against what was sent. It ends with 1 where a record is lost, or held twice.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyarrow import fs

from millrace.sandbox import localstack_deployment
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs import kafka_broker, start_spark_submit
from millrace.sandbox.programs.child_processes import RUN, ChildProcess, wait_until
from millrace.sandbox.records.producer import KafkaProducer
from tests import kinesalite, opensearch, postgres
from tests.faults import lake_rows, round_setup, sink_contents, small_job_documents
from tests.faults.moto_server import items, make_table, moto
from tests.faults.row_difference import Difference
from tests.kinesalite import REGION
from tests.postgres import PASSWORD, USER

HOME = RUN / "faults-sinks"
TOPIC, OUT, STREAM, INDEX = "events", "out", "out", "flights"

"""Set-up leaves its jars out."""

BATCH = 500
DIRTY = 100
"""One of so many records is no JSON."""

STALL_SECONDS = 600.0
"""Without another record in a sink for so long, what is missing is lost."""

SHOP = """\
project: shop
account: "000000000000"
removal: destroy
network: {{availability_zones: 2}}
storage: {{disposable: [lake, checkpoints, event-logs, dead-letters, access-logs, database, logs]}}
kafka:
  main: {{kind: msk, brokers: 2, disposable: true}}
streams:
  clicks: &stream
    kind: kafka
    cluster: main
    partitions: 2
    disposable: true
    traffic: {{records_per_second: 100, record_size: 400B}}
  seen: *stream
  alerts: {{kind: kinesis, disposable: true, traffic: {{records_per_second: 100, record_size: 400B}}}}
jobs:
  clicks:
    engine: glue
    latency: 60s
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land-clicks:
        kind: land
        source: clicks
        table: clicks_landed
        schema: pipelines/clicks/schemas/click.ddl
        trigger: 1s
        records_per_batch: 400
      to-database: &derive
        kind: derive
        source: clicks_landed
        trigger: 1s
        sink: {{kind: jdbc, url: '{url}', tls: off, table: events, secret: '{secret}'}}
        dead_letters: to_database_letters
      to-topic: {{<<: *derive, sink: {{kind: kafka, topic: seen}}, dead_letters: to_topic_letters}}
      to-stream: {{<<: *derive, sink: {{kind: kinesis, stream: alerts}}, dead_letters: to_stream_letters}}
      to-items: {{<<: *derive, sink: {{kind: dynamodb, table: events}}, dead_letters: to_items_letters}}
      to-files: {{kind: derive, source: clicks_landed, trigger: 1s, sink: {{kind: parquet, table: files}}}}
"""
"""An environment for what a deployment can name here; a domain of OpenSearch would be one of AWS."""


@dataclass
class Round:
    """A job with several sinks, what is sent to it, and its runs.

    Attributes
    ----------
    payload
        Of the record of a number.
    sinks
        By query, what reads the identities that its sink holds.
    begin
        Starts the run of a number.
    log
        Names in a folder of a query's checkpoint.
    letters
        The identities in a query's table of dead letters; None where the spoiled records are kept elsewhere.
    """

    producer: KafkaProducer
    payload: Callable[[int], Mapping[str, Any]]
    sinks: Mapping[str, Callable[[], Iterable[str]]]
    begin: Callable[[int], ChildProcess]
    log: Callable[[str, str], Iterable[str]]
    letters: Callable[[str], Iterable[str]] | None = None
    runs: list[ChildProcess] = field(default_factory=list)

    def send(self, count: int) -> None:
        """Fill the topic."""
        self.producer.send(map(self._event, range(count)), sent=lambda _: None)

    def _event(self, number: int) -> RecordToSend:
        key = str(number).encode()
        if number % DIRTY == 0:
            return RecordToSend(key, b"broken", "broken")
        return RecordToSend(key, json.dumps(self.payload(number)).encode())

    def start(self) -> ChildProcess:
        """Start the job, again or for the first time."""
        self.runs.append(self.begin(len(self.runs) + 1))
        return self.runs[-1]

    def batches(self, runs: Iterable[ChildProcess]) -> list[dict[str, Any]]:
        """Lines of the accounts of the sinks' queries, of batches with records in them."""
        told = (
            event
            for run in runs
            for event in start_spark_submit.read_driver_events(run)
            if event["event"] == "batch"
        )
        return [event for event in told if event["query"] in self.sinks and event["read"]]

    def killed(self, choose: random.Random) -> set[str]:
        """Start the job, kill it at a random moment, and tell which of its queries had a batch that was not committed."""
        run, wanted = self.start(), choose.randrange(1, 8)
        run.wait_until(
            lambda: len(self.batches([run])) >= wanted, seconds=900, what=f"done with {wanted} batches"
        )
        time.sleep(choose.uniform(0.0, 0.8))
        run.kill()
        return {query for query in self.sinks if self._last(query, "offsets") > self._last(query, "commits")}

    def _last(self, query: str, log: str) -> int:
        return max((int(name) for name in self.log(query, log) if name.isdigit()), default=-1)

    def finish(self) -> dict[str, Counter[str]]:
        """Let one more run read to the end; how often each sink then holds each record."""
        run, result = self.start(), dict[str, Counter[str]]()
        wanted = len(self.producer.ledger) - self.producer.ledger.dirty_count

        def whole() -> bool:
            result.update({query: Counter(read()) for query, read in self.sinks.items()})
            return all(len(each) >= wanted for each in result.values()) and all(
                len(set(self.letters(query))) >= self.producer.ledger.dirty_count
                for query in (self.sinks if self.letters else ())
            )

        wait_until(
            whole, seconds=STALL_SECONDS, what="in all sinks", runs=(run,), poll_seconds=1.0,
            progress=lambda: ", ".join(f"{query} {len(each)} of {wanted}" for query, each in result.items()),
        )  # fmt: skip
        time.sleep(5.0)  # for rows too many
        whole()
        run.kill()
        return result

    def end(self) -> None:
        """End all runs."""
        for run in self.runs:
            run.kill()


def of_sinks(
    database: postgres.Postgres, topic: tuple[str, str], stream: tuple[Any, str], dynamodb: Any
) -> dict[str, Callable[[], Iterable[str]]]:
    """Readers of the identities that these sinks hold."""
    return {
        "to-database": lambda: (identity for (identity,) in database.run("SELECT _id FROM public.events")),
        "to-topic": lambda: (json.loads(m.value() or b"")["_id"] for m in sink_contents.messages(*topic)),
        "to-stream": lambda: (json.loads(r["Data"])["_id"] for r in sink_contents.records(*stream)),
        "to-items": lambda: items(dynamodb, "events", "_id"),
    }


def direct_sinks(database_url: str, secret: str, domain: str) -> dict[str, dict[str, Any]]:
    """By query, the settings of its sink."""
    result: dict[str, dict[str, Any]] = {
        "to-database": {
            "kind": "jdbc", "url": database_url, "tls": "off", "authorities": None, "table": "public.events", "secret": secret,
            "region": REGION, "connections": 2,
        },
        "to-topic": {
            "kind": "kafka", "topic": OUT, "connection": "main", "key": None, "max_record_bytes": 100_000,
        },
        "to-stream": {
            "kind": "kinesis", "stream": STREAM, "region": REGION, "key": None, "max_record_bytes": 100_000,
        },
        "to-items": {"kind": "dynamodb", "table": "events", "region": REGION},
        "to-index": {"kind": "opensearch", "endpoint": domain, "index": INDEX, "region": REGION},
        "to-files": {"kind": "parquet", "path": f"{HOME}/files", "files_per_batch": 1},
    }  # fmt: skip
    return result


def direct_job(sinks: Mapping[str, Mapping[str, Any]], bootstrap: str) -> dict[str, Any]:
    """Settings of a job with a direct query into each sink; a query's dead letters are its only table."""
    schema = HOME / "schema.ddl"
    source = small_job_documents.topic(TOPIC, BATCH)
    queries = [
        {
            **small_job_documents.queries("direct", source, schema, partial(_letters, name), sink=sink)[0],
            "name": name,
        }
        for name, sink in sinks.items()
    ]
    return small_job_documents.settings("faults", queries, f"{HOME}/checkpoints", bootstrap)


def _letters(query: str, _what: str = "letters") -> str:
    return f"faults.{query.replace('-', '_')}"


def direct(ending: ExitStack) -> Round:
    """Start the servers of a job of direct queries, and make what sinks expect to find."""
    aws, database = ending.enter_context(moto()), ending.enter_context(postgres.running())
    broker, kinesis = (
        ending.enter_context(kafka_broker.running_broker()),
        ending.enter_context(kinesalite.running()),
    )
    domain, streams = ending.enter_context(opensearch.running()), kinesis.client()
    domain.create(INDEX)
    (HOME / "schema.ddl").write_text("n BIGINT NOT NULL, text STRING")
    catalog = round_setup.local_catalog(HOME)
    ending.callback(catalog.close)
    for topic in (TOPIC, OUT):
        broker.create_topic(topic, 2)
    make_table(aws.client("dynamodb"), "events")
    streams.create_stream(StreamName=STREAM, ShardCount=2)
    streams.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})
    login = json.dumps({"username": USER, "password": PASSWORD})
    secret = aws.client("secretsmanager").create_secret(Name="database", SecretString=login)["ARN"]
    sinks = direct_sinks(database.url, secret, domain.endpoint)
    more: dict[str, Any] = {"spark.master": "local[4,4]"}
    binds = dict.fromkeys(("secretsmanager.endpoint", "dynamodb.endpoint"), aws.endpoint)
    binds["kinesis.endpoint"] = kinesis.endpoint

    def begin(number: int) -> ChildProcess:
        return round_setup.start(
            "faults-sinks", HOME, direct_job(sinks, broker.bootstrap), jar_sets=(*round_setup.JAR_SETS, "postgresql"),
            spark=more, binds=binds, log=f"run-{number}.log",
        )  # fmt: skip

    def log(query: str, folder: str) -> Iterator[str]:
        return (path.name for path in (HOME / "checkpoints" / query / folder).glob("*"))

    readers = of_sinks(database, (broker.bootstrap, OUT), (streams, STREAM), aws.client("dynamodb"))
    readers["to-index"] = lambda: (each["millrace"]["id"] for each in domain.documents(INDEX).values())
    readers["to-files"] = lambda: (
        i for (i,) in sink_contents.rows(fs.LocalFileSystem(), f"{HOME}/files", "_id")
    )
    return Round(
        KafkaProducer(broker.bootstrap, TOPIC), lambda n: {"n": n, "text": "x" * 50}, readers, begin, log,
        lambda query: (identity for (identity,) in lake_rows.read(catalog, _letters(query), "_id")),
    )  # fmt: skip


def deployed(ending: ExitStack) -> Round:
    """Deploy a job that derives into sinks. DynamoDB is moto's server, since LocalStack's own is a download."""
    played, database = ending.enter_context(moto()), ending.enter_context(postgres.running())
    make_table(played.client("dynamodb"), "events")
    stack, broker = ending.enter_context(localstack_deployment.running_localstack_and_kafka())
    login = json.dumps({"username": USER, "password": PASSWORD})
    secret = stack.client("secretsmanager").create_secret(Name="shop/db", SecretString=login)["ARN"]
    file = HOME / "sinks.yaml"
    file.write_text(SHOP.format(url=database.url, secret=secret))
    sandbox = localstack_deployment.deploy_sandbox(str(file), stack, broker)
    names, document = sandbox.names, sandbox.launch_document("clicks")
    s3, lake_files = stack.client("s3"), sink_contents.of_stack(stack)

    def begin(number: int) -> ChildProcess:
        bind = ("--bind", f"dynamodb.endpoint={played.endpoint}")
        return sandbox.spark.submit(document, f"clicks-{number}", bind).process

    def log(query: str, folder: str) -> Iterator[str]:
        where = f"clicks/{query}/{folder}/"
        pages = s3.get_paginator("list_objects_v2").paginate(Bucket=names.bucket("checkpoints"), Prefix=where)
        return (each["Key"].rpartition("/")[2] for page in pages for each in page.get("Contents", ()))

    readers = of_sinks(
        database, (broker.bootstrap, names.stream("seen")), (stack.client("kinesis"), names.stream("alerts")),
        played.client("dynamodb"),
    )  # fmt: skip
    folder = f"{names.bucket('lake')}/parquet/{names.database}/files"
    readers["to-files"] = lambda: (identity for (identity,) in sink_contents.rows(lake_files, folder, "_id"))
    payload: Mapping[str, Any] = {"clicked_at": "2026-11-20T12:00:00Z"}
    return Round(
        KafkaProducer(broker.bootstrap, names.stream("clicks")),
        lambda n: {"session": f"s{n}", "page": f"/{n}", **payload}, readers, begin, log,
    )  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--kills", type=int, default=10)
    reading.add_argument("--records", type=int, default=20_000)
    reading.add_argument("--seed", type=int, default=1)
    reading.add_argument("--deployed", action="store_true", help="a job that is deployed to LocalStack")
    return reading


def main() -> int:
    """Kill, compare, print a line for each sink."""
    options = parser().parse_args()
    choose = random.Random(options.seed)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    shutil.rmtree(HOME, ignore_errors=True)
    HOME.mkdir(parents=True)
    met, tried = Counter[str](), list[Difference]()
    with ExitStack() as ending:
        round_ = (deployed if options.deployed else direct)(ending)
        ending.callback(round_.end)
        round_.send(options.records)
        for _ in range(options.kills):
            met.update(round_.killed(choose))
        result, batches = round_.finish(), round_.batches(round_.runs)
        ledger = round_.producer.ledger
        kinds = list(zip(ledger.ids, ledger.dirt, strict=True))
        good, spoiled = (Counter(i for i, dirt in kinds if bool(dirt) is bad) for bad in (False, True))
        for name, each in result.items():
            tried.append(Difference.of(name, good, each))
            again = sum(int(batch["duplicates"]) for batch in batches if batch["query"] == name)
            line = f"{name}: {met[name]} kills in a batch; {tried[-1]}; {again} were there when their batch came again"
            if round_.letters is not None:
                tried.append(Difference.of(f"{name} letters", spoiled, Counter(round_.letters(name))))
                line += f"; {spoiled.total()} dead letters, {tried[-1]}"
            sys.stdout.write(f"{line}\n")
        round_.producer = None  # type: ignore[assignment]  # while the broker is there to say goodbye to
    sys.stdout.write(
        f"{len(result)} sinks, {options.records:,} records to each, {len(batches)} batches, {options.kills} kills that met "
        f"{met.total()}: {Difference.total(tried)}\n"
    )
    return int(not all(line.exact for line in tried))


if __name__ == "__main__":
    raise SystemExit(main())
