"""Every sink that this machine has, out of a deployed document: ``python -m tests.faults.deployed_sinks``.

An environment with one job, which lands a topic and derives from it into PostgreSQL, DynamoDB, another topic, Kinesis and
Parquet, is synthesised by the CDK app and deployed to LocalStack. Its job is started from the launch document that
stands there and from nothing else, killed in the middle (kill -9), started again, and each sink read back. DynamoDB is
moto's server, since LocalStack's own is a download.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

from confluent_kafka import Producer

from millrace.sandbox import deployment
from millrace.sandbox.deployment import Sandbox
from millrace.sandbox.process import RUN
from millrace.sandbox.spark import Job
from tests import postgres
from tests.faults.held import messages, records, rows
from tests.faults.services import items, make_table, moto
from tests.postgres import PASSWORD, USER, Postgres

HOME = RUN / "deployed-sinks"
JOB = "clicks"
SECONDS = 900.0

ENVIRONMENT = """\
project: shop
account: "000000000000"
removal: destroy
network: {{availability_zones: 2}}
storage: {{disposable: [lake, checkpoints, event-logs, dead-letters, access-logs, database, logs]}}
kafka:
  main: {{kind: msk, brokers: 2, disposable: true}}
streams:
  clicks: {{kind: kafka, cluster: main, partitions: 2, disposable: true, traffic: {{records_per_second: 100, record_size: 200B}}}}
  seen: {{kind: kafka, cluster: main, partitions: 2, disposable: true, traffic: {{records_per_second: 100, record_size: 400B}}}}
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
"""

DERIVE = """\
      {name}:
        kind: derive
        source: clicks_landed
        trigger: 1s
        sink: {sink}
"""
"""Followed, where the sink may refuse a row, by the table for that."""


def environment(database: Postgres, secret: str) -> str:
    """The environment file."""
    sinks = {
        "to-database": f"{{kind: jdbc, url: '{database.url}', tls: off, table: clicks, secret: '{secret}'}}",
        "to-topic": "{kind: kafka, topic: seen}",
        "to-stream": "{kind: kinesis, stream: alerts}",
        "to-items": "{kind: dynamodb, table: clicks}",
        "to-files": "{kind: parquet, table: clicks_files}",
    }
    parts = [ENVIRONMENT.format()]
    for name, sink in sinks.items():
        letters = "" if name == "to-files" else f"        dead_letters: {name.replace('-', '_')}_letters\n"
        parts.append(DERIVE.format(name=name, sink=sink) + letters)
    return "".join(parts)


def send(sandbox: Sandbox, count: int) -> None:
    """Fill the topic."""
    producer = Producer({"bootstrap.servers": sandbox.kafka.bootstrap})
    for number in range(count):
        click = {"session": f"s{number}", "page": f"/{number}", "clicked_at": "2026-11-20T12:00:00Z"}
        producer.produce(sandbox.names.stream("clicks"), key=str(number), value=json.dumps(click))
    producer.flush()


def readers(sandbox: Sandbox, database: Postgres, dynamodb: Any) -> dict[str, Callable[[], Counter[str]]]:
    """How often each sink holds each record, by its identity."""
    names = sandbox.names

    def of_table() -> Counter[str]:
        return Counter(identity for (identity,) in database.run("SELECT _id FROM public.clicks"))

    def of_topic() -> Counter[str]:
        seen = messages(sandbox.kafka.bootstrap, names.stream("seen"))
        return Counter(json.loads(message.value() or b"")["_id"] for message in seen)

    def of_stream() -> Counter[str]:
        sent = records(sandbox.stack.client("kinesis"), names.stream("alerts"))
        return Counter(json.loads(record)["_id"] for record in sent)

    def files() -> Iterator[tuple[str]]:
        folder = f"parquet/{names.database}/clicks_files"
        return rows(sandbox.stack.client("s3"), names.bucket("lake"), folder, "_id")

    return {
        "to-database": of_table,
        "to-topic": of_topic,
        "to-stream": of_stream,
        "to-items": lambda: Counter(items(dynamodb, "clicks", "_id")),
        "to-files": lambda: Counter(identity for (identity,) in files()),
    }


def wait(job: Job, enough: Callable[[], bool]) -> None:
    """Wait while a job runs."""
    job.process.wait_until(enough, seconds=SECONDS, what="at the end")


def batches(job: Job, query: str) -> list[dict[str, Any]]:
    """What a run told of a query's batches."""
    return [e for e in job.events() if e["event"] == "batch" and e["query"] == query]


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--records", type=int, default=2000)
    return reading


def main() -> int:
    """Deploy, run, kill, run, read back; 1 where a sink holds something else than was sent."""
    count = parser().parse_args().records
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    HOME.mkdir(parents=True, exist_ok=True)
    with ExitStack() as ending:
        played = ending.enter_context(moto())
        dynamodb = played.client("dynamodb")
        make_table(dynamodb, "clicks")
        database = ending.enter_context(postgres.running())
        stack, broker = ending.enter_context(deployment.servers())
        login = json.dumps({"username": USER, "password": PASSWORD})
        secret = stack.client("secretsmanager").create_secret(Name="shop/db", SecretString=login)["ARN"]
        file = HOME / "sinks.yaml"
        file.write_text(environment(database, secret))
        sandbox = deployment.open_sandbox(str(file), stack, broker)
        send(sandbox, count)
        document = sandbox.launch_document(JOB)
        bind = ("--bind", f"dynamodb.endpoint={played.endpoint}")
        held = readers(sandbox, database, dynamodb)
        queries = list(held)
        first = sandbox.spark.submit(document, "clicks-1", bind)
        ending.callback(first.process.kill)
        wait(first, lambda: all(len(batches(first, query)) > 1 for query in queries))
        first.process.kill()
        second = sandbox.spark.submit(document, "clicks-2", bind)
        ending.callback(second.process.kill)
        found: dict[str, Counter[str]] = {}

        def whole() -> bool:
            found.update({query: read() for query, read in held.items()})
            return all(len(each) >= count for each in found.values())

        wait(second, whole)
        time.sleep(5.0)
        whole()
        wrong = Counter[str]()
        sys.stdout.write(f"{count} records, {document.url.rsplit('/', 1)[1][:12]}..., one kill -9\n")
        for query, each in found.items():
            repeated = each.total() - len(each)
            left_out = sum(batch["duplicates"] for batch in batches(second, query))
            sys.stdout.write(
                f"{query}: {len(each)} records, {count - len(each)} lost, {repeated} repeated; {left_out} were there "
                f"when their batch came again; {len(batches(first, query))} batches before the kill, "
                f"{len(batches(second, query))} after it\n"
            )
            wrong.update(lost=max(count - len(each), 0), others=max(len(each) - count, 0), repeated=repeated)
        sys.stdout.write(
            f"{len(found)} sinks, {count:,} records to each, one kill -9: {wrong['lost']} lost, "
            f"{wrong['repeated']} repeated, {wrong['others']} others\n"
        )
    return int(wrong.total() > 0)


if __name__ == "__main__":
    raise SystemExit(main())
