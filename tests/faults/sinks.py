"""kill -9 in the middle of writes to sinks: ``python -m tests.faults.sinks --kills 10``.

One job of direct queries reads a topic of a real broker and writes PostgreSQL, another topic, Kinesis (kinesalite),
DynamoDB (moto's server), OpenSearch (:mod:`tests.opensearch`), Parquet files and, where its jars are there
(``python -m millrace.sandbox.jars --also delta``), Delta. Each server is no part of the driver, which is killed
again and again at a random moment, and started again on the same checkpoints; at last one run reads to the end. Then
each sink is held against what was sent. It ends with 1 where a record is lost, or held twice.
"""

from __future__ import annotations

import argparse
import json
import logging
import random
import shutil
import sys
import time
import urllib.request
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from confluent_kafka import Producer
from pyiceberg.catalog.sql import SqlCatalog

from millrace.sandbox import driver, jars, kafka, kinesalite
from millrace.sandbox.kafka import Kafka
from millrace.sandbox.kinesalite import CREDENTIALS, REGION, Kinesalite
from millrace.sandbox.localstack import LocalStack
from millrace.sandbox.process import RUN, Process
from millrace.sandbox.spark import iceberg_catalog
from millrace.sandbox.toolchain import ROOT, program_environment
from tests import opensearch, postgres
from tests.faults import jobs
from tests.faults.held import messages, records
from tests.faults.services import items, make_table, moto
from tests.postgres import PASSWORD, USER, Postgres

HOME = RUN / "faults-sinks"
TOPIC, OUT, STREAM, INDEX = "events", "out", "out", "flights"

_DELTA = ("delta",) if any(jars.folder("delta").glob("*.jar")) else ()
"""Set-up leaves its jars out."""

BATCH = 500
DIRTY = 100
"""One of so many records is no JSON."""

END_SECONDS = 900.0


def _table(query: str, _what: str = "letters") -> str:
    """A query's dead letters are its only table."""
    return f"faults.{query.replace('-', '_')}"


def _numbers(payloads: Iterable[bytes]) -> Iterator[int]:
    return (int(json.loads(payload)["n"]) for payload in payloads)


@dataclass
class Round:
    """The servers, the job's documents and its runs."""

    broker: Kafka
    database: Postgres
    stream: Kinesalite
    domain: str
    aws: LocalStack
    runs: list[Process] = field(default_factory=list)

    def prepare(self, records: int) -> None:
        """Fill the topic and make what sinks expect to find."""
        shutil.rmtree(HOME, ignore_errors=True)
        (HOME / "lake").mkdir(parents=True)
        # Makes the catalog's tables, which the job then finds.
        SqlCatalog("lake", uri=f"sqlite:///{HOME}/catalog.db", warehouse=f"file://{HOME}/lake").close()
        for topic in (TOPIC, OUT):
            self.broker.create_topic(topic, 2)
        producer = Producer({"bootstrap.servers": self.broker.bootstrap})
        for number in range(records):
            text = "broken" if number % DIRTY == 0 else json.dumps({"n": number, "text": "x" * 50})
            producer.produce(TOPIC, key=str(number), value=text)
            if number % 1000 == 0:
                producer.flush()
        producer.flush()
        secrets = self.aws.client("secretsmanager")
        login = json.dumps({"username": USER, "password": PASSWORD})
        self.secret = secrets.create_secret(Name="database", SecretString=login)["ARN"]
        make_table(self.aws.client("dynamodb"), "events")
        streams = self.stream.client()
        streams.create_stream(StreamName=STREAM, ShardCount=2)
        streams.get_waiter("stream_exists").wait(StreamName=STREAM, WaiterConfig={"Delay": 1})

    def _queries(self) -> dict[str, dict[str, Any]]:
        return {
            "to-database": {
                "kind": "jdbc", "url": self.database.url, "tls": "off", "authorities": None, "table": "public.events", "secret": self.secret,
                "region": REGION, "connections": 2,
            },
            "to-topic": {
                "kind": "kafka", "topic": OUT, "connection": "main", "key": None, "max_record_bytes": 100_000,
            },
            "to-stream": {
                "kind": "kinesis", "stream": STREAM, "region": REGION, "key": None, "max_record_bytes": 100_000,
            },
            "to-items": {"kind": "dynamodb", "table": "events", "region": REGION},
            "to-index": {"kind": "opensearch", "endpoint": self.domain, "index": INDEX, "region": REGION},
            "to-files": {"kind": "parquet", "path": f"{HOME}/files", "files_per_batch": 1},
        } | (
            {"to-delta": {"kind": "delta", "path": f"{HOME}/delta", "files_per_batch": 1}} if _DELTA else {}
        )  # fmt: skip

    def _document(self) -> Path:
        schema = HOME / "schema.ddl"
        schema.write_text("n BIGINT NOT NULL, text STRING")
        source = jobs.topic(TOPIC, BATCH)
        queries = [
            {**jobs.queries("direct", source, schema, partial(_table, name), sink=sink)[0], "name": name}
            for name, sink in self._queries().items()
        ]
        settings = jobs.settings("faults", queries, f"{HOME}/checkpoints", self.broker.bootstrap)
        document = HOME / "launch.json"
        document.write_text(json.dumps({"version": 1, "settings": settings}))
        return document

    def start(self) -> Process:
        """Start the job as an engine does."""
        sets = ("sandbox", "kafka-client", "postgresql", *_DELTA)
        settings = {
            **driver.LOCAL,
            **iceberg_catalog("lake", HOME / "catalog.db", f"file://{HOME}/lake"),
            "spark.master": "local[4,4]",
            "spark.sql.shuffle.partitions": "2",
            "spark.jars": ",".join(str(jar) for name in sets for jar in jars.files(name)),
        }
        if _DELTA:
            settings |= {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.databricks.delta.snapshotPartitions": "2",
            }
        binds = {
            "secretsmanager.endpoint": self.aws.endpoint, "dynamodb.endpoint": self.aws.endpoint,
            "kinesis.endpoint": self.stream.endpoint,
        }  # fmt: skip
        arguments = ["--launch-document", self._document().as_uri()]
        for bind, value in binds.items():
            arguments += ["--bind", f"{bind}={value}"]
        environment = {**program_environment(), **CREDENTIALS, "PYTHONPATH": str(ROOT)}
        log = f"run-{len(self.runs) + 1}.log"
        entry = ROOT / "etl" / "main.py"
        self.runs.append(
            driver.start("faults-sinks", HOME, entry, settings, arguments, environment=environment, log=log)
        )
        return self.runs[-1]

    def batches(self, run: Process) -> list[dict[str, Any]]:
        """Lines of a run's accounts."""
        return [event for event in driver.events(run) if event["event"] == "batch"]

    def wait(self, run: Process, batches: int) -> None:
        """Wait for so many batches of a run, or for its end."""
        run.wait_until(
            lambda: len(self.batches(run)) >= batches,
            seconds=END_SECONDS,
            what=f"done with {batches} batches",
        )

    def finish(self, records: int) -> None:
        """Let the last run read to the end of the topic."""
        run, deadline = self.start(), time.monotonic() + END_SECONDS
        still = dict.fromkeys(self._queries(), 0)
        while min(still.values()) < records:
            if not run.alive or time.monotonic() > deadline:
                raise RuntimeError(f"the end was not reached, {still}:\n{run.tail(30)}")
            time.sleep(0.5)
            still = {name: self._end(name) for name in still}
        time.sleep(2.0)
        run.kill()

    def _end(self, query: str) -> int:
        """Records up to which a query's checkpoint is committed."""
        commits = [int(p.name) for p in (HOME / "checkpoints" / query / "commits").glob("[0-9]*")]
        if not commits:
            return 0
        offsets = (HOME / "checkpoints" / query / "offsets" / str(max(commits))).read_text().splitlines()
        return sum(json.loads(offsets[2])[TOPIC].values())

    def broken_off(self) -> set[str]:
        """Queries with a batch that is planned and not committed."""

        def last(query: str, log: str) -> int:
            folder = HOME / "checkpoints" / query / log
            return max((int(p.name) for p in folder.glob("[0-9]*")), default=-1)

        return {query for query in self._queries() if last(query, "offsets") > last(query, "commits")}

    def told(self, query: str, figure: str) -> int:
        """Sum of a figure in the batches of all runs."""
        batches = [batch for run in self.runs for batch in self.batches(run)]
        return sum(int(batch[figure]) for batch in batches if batch["query"] == query)

    # ---- what is there ----

    def found(self) -> dict[str, Counter[int]]:
        """How often each sink holds each record."""
        found = {
            "to-database": Counter(int(n) for (n,) in self.database.run("SELECT n FROM events")),
            "to-topic": Counter(_numbers(m.value() or b"" for m in messages(self.broker.bootstrap, OUT))),
            "to-stream": Counter(_numbers(records(self.stream.client(), STREAM))),
            "to-items": Counter(map(int, items(self.aws.client("dynamodb"), "events", "n"))),
            "to-index": Counter(self._documents()),
            "to-files": Counter(n for file in self._files() for n in pq.read_table(file)["n"].to_pylist()),
        }
        if _DELTA:
            found["to-delta"] = Counter(n for f in self._delta() for n in pq.read_table(f)["n"].to_pylist())
        return found

    def _documents(self) -> Iterator[int]:
        with urllib.request.urlopen(f"{self.domain}/", timeout=30) as answer:
            yield from (int(document["n"]) for document in json.load(answer))

    def _delta(self) -> set[Path]:
        """Files of the table's last version, by its log."""
        files: set[Path] = set()
        for log in sorted((HOME / "delta" / "_delta_log").glob("*.json")):
            for action in map(json.loads, log.read_text().splitlines()):
                if "add" in action:
                    files.add(HOME / "delta" / action["add"]["path"])
                elif "remove" in action:
                    files.discard(HOME / "delta" / action["remove"]["path"])
        return files

    def _files(self) -> Iterator[Path]:
        for manifest in (HOME / "files" / "_manifests").glob("*.json"):
            held = json.loads(manifest.read_text())
            yield from (HOME / "files" / held["folder"] / name for name in held["files"])

    def letters(self) -> dict[str, Counter[str]]:
        """How often each query's table of dead letters holds each identity."""
        catalog = SqlCatalog("lake", uri=f"sqlite:///{HOME}/catalog.db", warehouse=f"file://{HOME}/lake")
        tables = {name: _table(name) for name in self._queries()}
        held = {
            name: Counter(
                catalog.load_table(table).scan(selected_fields=("_id",)).to_arrow()["_id"].to_pylist()
            )
            for name, table in tables.items()
        }
        catalog.close()
        return held


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(description=__doc__)
    reading.add_argument("--kills", type=int, default=10)
    reading.add_argument("--records", type=int, default=20_000)
    reading.add_argument("--seed", type=int, default=1)
    return reading


def main() -> int:
    """Kill, compare, print a line for each sink."""
    given = parser().parse_args()
    choose = random.Random(given.seed)
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    with ExitStack() as ending:
        aws = ending.enter_context(moto())
        database = ending.enter_context(postgres.running())
        broker = ending.enter_context(kafka.running())
        stream = ending.enter_context(kinesalite.running())
        domain = ending.enter_context(opensearch.apart())
        round_ = Round(broker, database, stream, domain, aws)
        round_.prepare(given.records)
        ending.callback(lambda: [run.kill() for run in round_.runs])
        broken = Counter[str]()
        for _ in range(given.kills):
            shutil.rmtree(HOME / "tmp", ignore_errors=True)
            run = round_.start()
            round_.wait(run, choose.randrange(1, 8))
            time.sleep(choose.uniform(0.0, 0.8))
            run.kill()
            broken.update(round_.broken_off())
        round_.finish(given.records)
        found, letters = round_.found(), round_.letters()
        shutil.rmtree(HOME / "tmp", ignore_errors=True)
        seen = sum(len(round_.batches(run)) for run in round_.runs)
        left_out = {name: round_.told(name, "duplicates") for name in found}
    wanted = {n for n in range(given.records) if n % DIRTY}
    wrong = Counter[str]()
    for name, held in found.items():
        lost, repeated = len(wanted - held.keys()), held.total() - len(held)
        strange = len(held.keys() - wanted)
        kept, doubled = len(letters[name]), letters[name].total() - len(letters[name])
        sys.stdout.write(
            f"{name}: {broken[name]} kills in a batch; {len(held)} records, {lost} lost, {repeated} repeated, {strange} "
            f"others; {left_out[name]} were there when their batch came again; {kept} dead letters, {doubled} doubled\n"
        )
        astray = abs(given.records - len(wanted) - kept) + doubled
        wrong.update(lost=lost, repeated=repeated, others=strange, letters=astray)
    sys.stdout.write(
        f"{len(found)} sinks, {given.records:,} records to each, {seen} batches, {given.kills} kills that met {broken.total()}: "
        f"{wrong['lost']} lost, {wrong['repeated']} repeated, {wrong['others']} others, {wrong['letters']} letters astray\n"
    )
    return int(wrong.total() > 0)


if __name__ == "__main__":
    raise SystemExit(main())
