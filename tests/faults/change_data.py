"""Fault test of change data from a database with random transactions: ``python -m tests.faults.change_data``.

PostgreSQL, Debezium in Kafka Connect, a broker and the job are real programs. Two sessions write while the connector makes snapshots, the
connector and the job are killed in turn, the table is truncated, gets a column and a wider type. In the end the current rows, by two keys,
are held against PostgreSQL's, and the history against what its triggers have logged. Ends with 1 where one differs.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import shutil
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from millrace.sandbox.programs import jars
from millrace.sandbox.programs.child_processes import RUN, SandboxError, wait_until
from tests import debezium_connector, postgres, postgres_random_transactions
from tests.faults import lake_rows
from tests.faults.kafka_round_setup import KafkaStage
from tests.launch_document_defaults import with_route
from tests.postgres_random_transactions import session, transactions

HOME = RUN / "faults-change-data"
TOPIC, PARTITIONS, SESSIONS = "shop.public.orders", 3, 2
TABLES: Mapping[str, Mapping[str, Any]] = {
    "latest": {"latest_by": ["id"]},
    "by_code": {"latest_by": ["code"]},
    "history": {"latest_by": ["id"], "history": True},
}
PORTION = 50
"""Transactions that a session runs between two looks at the clock."""

REPEATS = (*(1 for _ in range(19)), 100)
PATIENCE_SECONDS = 900.0
"""For a step; a busy machine needs minutes for what takes seconds on an idle one."""
CAUGHT_UP_SECONDS = 900.0
COLUMNS = ("id", "code", "n", "price", "day", "at", "seen", "raw", "note")
ROWS = (
    "select id, code, n, price, day, to_char(at, 'YYYY-MM-DD HH24:MI:SS.US'), extract(epoch from seen)::text, encode(raw, 'hex'), "
    "md5(note), extra from orders order by id"
)


@dataclass
class ChangeStage(KafkaStage):
    """A job that lands the changes and keeps three tables of them."""

    partitions: int = PARTITIONS
    ddl: str = postgres_random_transactions.DDL

    def _job_settings(self, schema: Path) -> dict[str, Any]:
        job = super()._job_settings(schema)
        job["queries"][0]["routes"][0]["format"] = {
            "kind": "debezium", "avro": None, "decimals": "precise", "flattened": False,
        }  # fmt: skip
        for name, more in TABLES.items():
            derive: dict[str, Any] = {
                "kind": "derive",
                "name": name,
                "source_table": "faults.landed",
                "route": None,
            }
            derive |= {"enrich": [], "transform": None, "state": None, "dead_letters": None, **more}
            derive |= {
                "sink": {"kind": "iceberg", "table": f"faults.{name}"},
                "trigger_seconds": self.trigger_seconds,
            }
            job["queries"].append(with_route(derive))
        return job

    def rows(self, table: str, *columns: str) -> Iterator[dict[str, Any]]:
        """Rows of a table of the job."""
        for row in lake_rows.read(self.catalog, f"faults.{table}", *columns):
            yield dict(zip(columns, row, strict=True))

    def current(self, table: str, *, ended: bool = False) -> list[list[str]]:
        """The current rows of a table, as PostgreSQL shows them; ``ended``: of a history."""
        columns = (*COLUMNS, "extra", *(["_valid_to"] if ended else []))
        found = (row for row in self.rows(table, *columns) if row.get("_valid_to") is None)
        return [
            [_shown(name, row[name]) for name in (*COLUMNS, "extra")]
            for row in sorted(found, key=lambda row: row["id"])
        ]


def _shown(name: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        micros = round(value.astimezone(UTC).timestamp() * 10**6)
        return f"{micros // 10**6}.{micros % 10**6:06}" if name == "seen" else f"{value:%Y-%m-%d %H:%M:%S.%f}"
    if name == "note":
        return hashlib.md5(value.encode()).hexdigest()  # noqa: S324 - as PostgreSQL shows it
    return value.hex() if isinstance(value, bytes) else str(value)


@dataclass
class Writers:
    """Sessions that change rows at a rate, in transactions a second, as far as the story has come, until so many have ended."""

    database: postgres.Postgres
    seed: int
    goal: int
    keys: int
    rate: float
    allowed: float = 0.0
    done: int = 0
    widened: bool = False
    errors: list[str] = field(default_factory=list)
    between: threading.Lock = field(default_factory=threading.Lock)

    def write(self, number: int) -> None:
        """Run portions in a session of its own."""
        part = 0
        try:
            while self._more():
                begun = time.monotonic()
                seed = self.seed * 10**6 + part * SESSIONS + number
                made = transactions(seed, PORTION, self.keys, REPEATS, widened=self.widened)
                session(self.database, "\n".join(made))
                part += 1
                time.sleep(max(0.0, begun + SESSIONS * PORTION / self.rate - time.monotonic()))
        except Exception as error:  # of a thread
            self.errors.append(repr(error))

    def _more(self) -> bool:
        while self.allowed <= self.done < self.goal and not self.errors:
            time.sleep(0.1)
        with self.between:
            if self.done >= self.goal or self.errors:
                return False
            self.done += PORTION
            return True


@dataclass
class Story:
    """What happens to the database, the connector and the job while the sessions write."""

    stage: ChangeStage
    database: postgres.Postgres
    connector: debezium_connector.Connector
    writers: Writers
    choose: random.Random
    say: Callable[[str], None]
    marks: int = 0
    done: Counter[str] = field(default_factory=Counter)

    def play(self, rounds: int) -> int:
        """Play all; the time from which the history is complete, in milliseconds since 1970."""
        self.writers.allowed = self.writers.goal / (rounds + 1)
        self.connector.start()
        self.stage.start()
        # The first may be a row of the first snapshot.
        self.mark()
        self.mark()
        since = postgres_random_transactions.clock(self.database)
        for number in range(rounds):
            self.until((number + 1) / (rounds + 1))
            self.writers.allowed = (number + 2) / (rounds + 1) * self.writers.goal
            what = ("connector", "job", "snapshot")[number % 3]
            getattr(self, f"_{what}")(number)
            if number == rounds // 3:
                self.database.run("truncate orders")
                self.done["truncate"] += 1
            if number == rounds // 2:
                self._widen()
        self.until(1)
        return since

    def until(self, share: float) -> None:
        """Wait until the sessions have run a share of the transactions."""
        goal = share * self.writers.goal
        wait_until(
            lambda: self.writers.done >= goal or bool(self.writers.errors),
            seconds=PATIENCE_SECONDS, what=f"{goal:,.0f} transactions", progress=lambda: str(self.writers.done),
        )  # fmt: skip
        if self.writers.errors:
            raise SandboxError(self.writers.errors[0])

    def mark(self) -> None:
        """Insert a row, and wait until it has landed."""
        self.marks += 1
        code = f"mark-{self.marks}"
        self.database.run(f"insert into orders (id, code) values (-{self.marks}, '{code}')")  # noqa: S608 - a number
        self.stage.until(
            lambda: any(row["code"] == code for row in self.stage.rows("landed", "code")),
            PATIENCE_SECONDS,
            code,
        )

    def _connector(self, number: int) -> None:
        self.connector.kill()
        self.connector.start()
        self.done["connector killed"] += 1

    def _job(self, number: int) -> None:
        self.stage.job.kill()
        self.stage.start()
        self.done["job killed"] += 1

    def _snapshot(self, number: int) -> None:
        self.database.run(postgres_random_transactions.SNAPSHOT.format(number))
        self.done["incremental snapshot"] += 1

    def _widen(self) -> None:
        self.database.run(postgres_random_transactions.WIDENED)
        self.stage.ddl = self.stage.ddl.replace("n INT", "n BIGINT") + ", extra STRING"
        self._job(0)
        # What has the new column lands with the new schema.
        self.mark()
        self.writers.widened = True
        self.done["schema changed"] += 1


def _end(connector: debezium_connector.Connector) -> None:
    if connector.process is not None:
        connector.kill()


def sent(bootstrap: str) -> int:
    """Records of the topic."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "counted"})
    places = (TopicPartition(TOPIC, number) for number in range(PARTITIONS))
    ends = [consumer.get_watermark_offsets(each, timeout=30)[1] for each in places]
    consumer.close()
    return sum(ends)


def differences(
    stage: ChangeStage, rows: list[list[str]], log: Mapping[int, Any], since: int
) -> dict[str, int]:
    """Rows of each table that are not PostgreSQL's."""
    wanted = Counter(map(tuple, rows))
    found = {}
    for name in ("latest", "by_code"):
        held = Counter(map(tuple, stage.current(name)))
        found[name] = ((wanted - held) + (held - wanted)).total()
    held = Counter(map(tuple, stage.current("history", ended=True)))
    found["history, now"] = ((wanted - held) + (held - wanted)).total()
    kept = postgres_random_transactions.kept(
        stage.rows("history", "id", "code", "n", "price", "_valid_from", "_valid_to")
    )
    found["history, keys"] = len(postgres_random_transactions.differences(kept, log, since))
    return found


def parser() -> argparse.ArgumentParser:
    """Arguments of this program."""
    reading = argparse.ArgumentParser(
        prog="python -m tests.faults.change_data", description="Change data of a database that never rests."
    )
    reading.add_argument("--transactions", type=int, default=100_000)
    reading.add_argument("--keys", type=int, default=3000)
    reading.add_argument("--rate", type=float, default=250, help="transactions a second of all sessions")
    reading.add_argument(
        "--rounds", type=int, default=18, help="kills of the connector and the job, and snapshots, in turn"
    )
    reading.add_argument("--seed", type=int, default=1)
    return reading


def main(arguments: list[str] | None = None) -> int:
    """Play, compare, print."""
    options = parser().parse_args(arguments)
    shutil.rmtree(HOME, ignore_errors=True)
    jars.fetch_missing_jars_and_count(["debezium"])
    begun, choose, stalled = time.monotonic(), random.Random(options.seed), ""

    def say(line: str) -> None:
        sys.stderr.write(f"{time.monotonic() - begun:5.0f} s: {line}\n")

    with ExitStack() as ending:
        database = ending.enter_context(postgres.running())
        database.stop()
        database.start(*postgres_random_transactions.SETTINGS)
        database.run(postgres_random_transactions.TABLE)
        session(database, "\n".join(transactions(options.seed, 1000, options.keys, REPEATS)))
        stage = ChangeStage(None, HOME / "stage", TOPIC, choose, trigger_seconds=2.0)
        ending.callback(stage.close)
        stage.create_stream(0)
        assert stage.bootstrap is not None
        settings = {
            "table.include.list": "public.orders,public.signals",
            "incremental.snapshot.chunk.size": "200",
        }
        connector = debezium_connector.Connector(HOME / "connect", stage.bootstrap, database, settings)
        ending.callback(_end, connector)
        writers = Writers(database, options.seed, options.transactions, options.keys, options.rate)
        threads = [threading.Thread(target=writers.write, args=(number,)) for number in range(SESSIONS)]
        story = Story(stage, database, connector, writers, choose, say)
        for thread in threads:
            thread.start()
        since = 0
        try:
            since = story.play(options.rounds)
            say("the last transaction")
        except SandboxError as error:
            stalled = str(error)
        finally:
            writers.goal = 0
            for thread in threads:
                thread.join()
        wrong: dict[str, int] = {"stalled": 1}
        if not stalled:
            story.mark()
            rows, log = database.run(ROWS), postgres_random_transactions.logged(database)
            count = sent(stage.bootstrap)
            stage.until_landed(count)
            say(f"{count:,} records have landed")
            until = time.monotonic() + CAUGHT_UP_SECONDS
            while any((wrong := differences(stage, rows, log, since)).values()) and time.monotonic() < until:
                time.sleep(5)
            letters = Counter(row["_error"] for row in stage.rows("landed", "_error") if row["_error"])
            wrong["dead letters"] = letters.total()
            operations = Counter(
                row["_change"]["operation"] for row in stage.rows("landed", "_change") if row["_change"]
            )
            say(f"{dict(operations)}; {dict(letters)}")
            versions = sum(1 for _ in stage.rows("history", "id"))
    failed = bool(stalled) or any(wrong.values())
    if not failed:
        shutil.rmtree(HOME)
    sys.stdout.write(
        f"seed {options.seed}: {min(writers.done, options.transactions):,} transactions, {count:,} records, {len(rows):,} rows, "
        f"{versions:,} versions, {dict(story.done)}, {time.monotonic() - begun:.0f} s: differences {wrong}\n"
        if not stalled
        else f"seed {options.seed}: STALLED: {stalled}\n"
    )
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
