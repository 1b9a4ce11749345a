"""Keyed and windowed results agree with a plain computation over the ledger.

Each history has a split or merge of a stream, or an added partition; commits that a limit cuts; a kill between a sink's commit and the
checkpoint; a replay of a repaired record; a backfill of records that a connector had missed; and a driver whose clock is set back.
"""

from __future__ import annotations

import io
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.job import build_queries
from millrace.etl.job.supervise import RetryLimits, Supervisor
from millrace.etl.launch import settings
from millrace.etl.record import batch_accounts
from millrace.etl.record.batch_accounts import EventReporter
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.etl.sinks import iceberg_keyed
from millrace.etl.sinks.delivery import record_order
from millrace.etl.sinks.delivery.kept_deletes import KeptDeletes
from tests.faults import small_job_documents
from tests.run import in_turn
from tests.spark.source_batches import EPOCH, KAFKA, KINESIS, Events, frame, good, kafka_rows, lander

Names = Callable[[str], Table]
MARK = {"time": "_arrived_at", "delay_seconds": 30, "ahead_seconds": 3600 * 24 * 365}
KEYS, RECORDS, LIMIT = 8, 240, 12


def latest(records: DataFrame) -> DataFrame:
    """The last flight of a key; every seventh deletes its key."""
    return records.select(
        "_landed_at", "_position", (F.col("flight") % 7 == 6).alias("_deleted"),
        F.col("_key").cast("string").alias("k"), "flight",
    )  # fmt: skip


def by_minute(records: DataFrame) -> DataFrame:
    counted = records.groupBy(F.window("_arrived_at", "1 minute").alias("w")).agg(
        F.count("*").alias("records")
    )
    return counted.select(F.col("w.start").alias("minute"), "records")


def query(landing: Table, out: Table, transform: str, **others: Any) -> dict[str, Any]:
    name = {table: f"{table.database}.{table.name}" for table in (landing, out)}
    return {
        "kind": "derive", "name": "derive", "enrich": [], "transform": f"{__name__}:{transform}",
        "trigger_seconds": 0, "sink": {"kind": "iceberg", "table": name[out]}, "source_table": name[landing],
        "state": None, "dead_letters": None, "route": None, "latest_by": [], **others,
    }  # fmt: skip


def played(
    spark: SparkSession, what: dict[str, Any], home: Path, *, dies: int | None = None
) -> list[dict[str, Any]]:
    """Run a derive query until it has read all, or until it dies between the commit of a batch and the checkpoint."""
    said = io.StringIO()
    report = EventReporter("order", said)
    job = settings.parse_job_settings(
        small_job_documents.settings("order", [what], str(home / "checkpoints"), None)
    )
    built = build_queries.build_queries(JobRun(spark, job, {}, report))

    def killed(batch: DataFrame, number: int) -> None:
        built[0].handle(batch, number)
        if number == dies:
            raise RuntimeError("killed")

    queries = (replace(built[0], handle=killed),)
    supervisor = Supervisor(spark, report, retries=RetryLimits(0, 1.0))
    over = threading.Event()

    def end() -> None:
        while not over.wait(0.1):
            for active in spark.streams.active:
                try:
                    active.processAllAvailable()
                    supervisor.request_stop()
                except StreamingQueryException:
                    continue

    watch = threading.Thread(target=end, daemon=True)
    watch.start()
    status = supervisor.run_to_exit_status(queries)
    over.set()
    watch.join()
    assert status == (0 if dies is None else status), said.getvalue()
    return [json.loads(line) for line in said.getvalue().splitlines()]


@dataclass
class Story:
    """Records in the order in which they were sent, and the commits in which they land."""

    seed: int
    kafka: bool
    commits: list[list[tuple[Any, ...]]] = field(default_factory=list)
    last: dict[str, int] = field(default_factory=dict)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        choose = random.Random(self.seed)
        shards: dict[str, list[tuple[Any, ...]]] = {}
        repaired, missed = [], []
        for n in range(RECORDS):
            key, half = choose.randrange(KEYS), n >= RECORDS // 2
            shard = self._shard(key, half)
            queue = shards.setdefault(shard, [])
            row = self._row(n, key, shard, sum(len(each) for each in shards.values()))
            self.last[f"k{key}"] = n
            fate = choose.random()
            if fate < 0.05:
                repaired.append((f"{row[0]}#replay1", *row[1:]))
            elif fate < 0.12:
                missed.append(row)
            else:
                queue.append(row)
        self.done["added partition" if self.kafka else "split and merge"] += 1
        # Each commit takes from each shard what comes next: children may be far before their parents.
        while any(shards.values()):
            commit = []
            for queue in shards.values():
                take = choose.choice((0, 10, 40))
                commit += queue[:take]
                del queue[:take]
            if commit:
                self.commits.append(commit)
        self.done["replay"] += len(repaired)
        self.done["backfill"] += len(missed)
        self.commits += [repaired, missed]

    def _shard(self, key: int, half: bool) -> str:
        if self.kafka:
            return str(key % 3 if half else key % 2)
        # Two shards become one, and one becomes two.
        return ("merged" if key < 4 else f"split-{key % 2}") if half else ("a", "b", "c", "c")[key // 2]

    def _row(self, n: int, key: int, shard: str, before: int) -> tuple[Any, ...]:
        at, key_bytes = EPOCH + timedelta(seconds=n), bytearray(f"k{key}".encode())
        if self.kafka:
            # Offsets of a partition say nothing of those of another.
            offset = {"0": 5000, "1": 100, "2": 0}[shard] + n
            ((identity, source, part, position, _, headers, _, payload),) = kafka_rows(
                int(shard), offset, [good(n)]
            )
            return (identity, source, part, position, key_bytes, headers, at, payload)
        number = str(9_900 + n)  # gains a digit
        return (f"flights-stream/{number}", "flights", None, number, key_bytes, None, at, bytearray(good(n)))

    def wanted(self) -> dict[str, int]:
        return {key: n for key, n in self.last.items() if n % 7 != 6}


def told(
    spark: SparkSession, table: Names, home: Path, story: Story, patch: pytest.MonkeyPatch
) -> dict[str, int]:
    """Play a story; the last flight of each key as the sink has it."""
    landing, out = table("landing"), table("latest")
    write = lander(spark, landing, Events(), source=KAFKA if story.kafka else KINESIS)
    write.settings = replace(write.settings, repartition=3)
    # A limit of rows is counted in files, of which each commit has several.
    what = query(landing, out, "latest", latest_by=["k"], rows_per_batch=LIMIT)
    clock = batch_accounts.utc_now
    for number, commit in enumerate(story.commits):
        if number == len(story.commits) // 2:
            patch.setattr(batch_accounts, "utc_now", lambda: clock() - timedelta(hours=2))
            story.done["clock set back"] += 1
        write(frame(spark, commit), number)
        if number % 2 or number == len(story.commits) - 1:
            dies = number // 2 if number < 4 else None
            story.done["kill"] += dies is not None
            events = played(spark, what, home, dies=dies)
            story.done["batches"] += sum(e["event"] == "batch" for e in events)
    patch.setattr(batch_accounts, "utc_now", clock)
    story.done["cut"] += story.done["batches"] > len(story.commits)
    return {r["k"]: r["flight"] for r in spark.table(str(out)).collect()}


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("kafka", [False, True], ids=["kinesis", "kafka"])
def test_the_last_record_of_a_key_is_the_last_that_was_sent(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kafka: bool
) -> None:
    story = Story(seed=7, kafka=kafka)
    assert told(spark, table, tmp_path, story, monkeypatch) == story.wanted()
    assert all(story.done[what] for what in ("replay", "backfill", "clock set back", "kill", "cut")), (
        story.done
    )


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("seed", in_turn(range(20, 28), 1))
def test_other_histories(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    story = Story(seed=seed, kafka=bool(seed % 2))
    assert told(spark, table, tmp_path, story, monkeypatch) == story.wanted()
    print(f"seed {seed}: {dict(story.done)}")  # noqa: T201 - counts of what was played


@pytest.mark.slow
@pytest.mark.parametrize("without", ["comparison", "lane", "deletes"])
def test_without_a_mechanism_of_order_it_would_be_noticed(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    if without == "comparison":
        monkeypatch.setattr(iceberg_keyed, "not_older_sql", lambda *_: "true")
    elif without == "lane":
        monkeypatch.setattr(record_order, "_LANE_NUMBER", "1")
    else:
        monkeypatch.setattr(KeptDeletes, "without_rows_older_than_deletes", lambda _, rows: rows)
    # Positions are compared in one lane for all, which a stream's numbers allow.
    story = Story(seed=7, kafka=without == "lane")
    assert told(spark, table, tmp_path, story, monkeypatch) != story.wanted()


@pytest.mark.slow
def test_windows_count_all_of_a_commit_that_a_limit_would_cut(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """One shard in perfect order, which lands an hour in one commit of several files."""
    landing, out = table("landing"), table("counted")
    write = lander(spark, landing, Events(), source=KINESIS)
    write.settings = replace(write.settings, repartition=4)
    story = Story(seed=3, kafka=False)
    rows = [story._row(n, 0, "a", 0) for n in range(900)]
    for number in range(3):
        write(frame(spark, rows[300 * number : 300 * (number + 1)]), number)
    state = {"watermark": MARK, "distinct": [], "key": ["minute"], "join": None, "output_mode": "update"}
    events = played(spark, query(landing, out, "by_minute", state=state, rows_per_batch=100), tmp_path)
    batches = [each for each in events if each["event"] == "batch" and each["written"]]
    assert len(batches) == 3, "one commit is above the limit"
    result = {r["minute"]: r["records"] for r in spark.table(str(out)).collect()}
    assert sum(result.values()) == 900
    assert len(result) == 15
    assert set(result.values()) == {60}


@pytest.mark.slow
def test_windows_count_all_of_a_table_whose_first_commits_have_expired(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    """Iceberg lists the files of the newest commit first; a limit cuts them, and no record of them is late."""
    landing, out = table("landing"), table("counted")
    write = lander(spark, landing, Events(), source=KINESIS)
    story = Story(seed=3, kafka=False)
    rows = [story._row(n, 0, "a", 0) for n in range(1500)]
    for number in range(3):
        write(frame(spark, rows[300 * number : 300 * (number + 1)]), number)
    expired = landing.load_java_table(spark).expireSnapshots().expireOlderThan(2**62).retainLast(1)
    expired.cleanExpiredFiles(False).commit()
    state = {"watermark": MARK, "distinct": [], "key": ["minute"], "join": None, "output_mode": "update"}
    what = query(landing, out, "by_minute", state=state, rows_per_batch=300)

    def counted() -> dict[str, int]:
        return {r["minute"]: r["records"] for r in spark.table(str(out)).collect()}

    events = played(spark, what, tmp_path)
    result, told_ = counted(), Counter(each["event"] for each in events)
    assert (len(result), set(result.values())) == (15, {60}), result
    assert told_["batch"] >= 3, "no batch has all of them"
    assert told_["started_from_full_table"] == 1
    # Later the watermark moves: a window that it has passed counts no more.
    for number, more in ((3, rows[900:]), (4, [(f"{rows[30][0]}-late", *rows[30][1:])])):
        write(frame(spark, more), number)
        events = played(spark, what, tmp_path)
        assert "watermark" not in str([each.get("why") for each in events])
    assert {at: n for at, n in counted().items() if at in result} == result


@dataclass
class Sides:
    """Two landing tables for a join within ten seconds, by flight."""

    spark: SparkSession
    table: Names

    def put(self, batch: int, mine: range, theirs: range) -> None:
        for name, numbers in (("landing", mine), ("other", theirs)):
            write = lander(self.spark, self.table(name), Events())
            write(frame(self.spark, kafka_rows(0, numbers[0], [good(n) for n in numbers])), batch)


def all_of_the_second(flights: DataFrame, others: DataFrame) -> DataFrame:
    near = F.expr("at BETWEEN _arrived_at - INTERVAL 10 SECONDS AND _arrived_at + INTERVAL 10 SECONDS")
    theirs = others.select(F.col("flight").alias("other"), "_joined_id", F.col("_arrived_at").alias("at"))
    joined = flights.join(theirs, (F.col("flight") == F.col("other")) & near, "right_outer")
    return joined.select(*CARRIED, "_joined_id", "flight", "other")


@pytest.mark.slow
@pytest.mark.faults
def test_rows_of_the_second_stream_alone_are_there_once_after_a_kill(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    sides, out = Sides(spark, table), table("out")
    other = table("other")
    join = {
        "source_table": f"{other.database}.{other.name}",
        "watermark": MARK | {"delay_seconds": 5},
        "route": None,
    }
    state = {
        "watermark": MARK | {"delay_seconds": 5},
        "distinct": [],
        "key": [],
        "join": join,
        "output_mode": "update",
    }
    sides.put(0, range(10), range(5, 15))
    what = query(table("landing"), out, "all_of_the_second", state=state)
    played(spark, what, tmp_path)
    sides.put(1, range(100, 105), range(102, 108))  # moves the watermark: rows of the first come out
    played(spark, what, tmp_path, dies=3)
    played(spark, what, tmp_path)
    rows = Counter((r["_id"], r["flight"], r["other"]) for r in spark.table(str(out)).collect())
    assert {other for _, flight, other in rows if flight is None} >= {10, 11, 12, 13, 14}
    assert set(rows.values()) == {1}


def distinct(records: DataFrame) -> DataFrame:
    return records.select(*CARRIED, "flight")


def test_what_is_unknown_is_no_repetition(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    landing, out = table("landing"), table("out")
    write = lander(spark, landing, Events(), ddl="flight INT, ord STRING")
    payloads = [json.dumps({"flight": n, "ord": None if n % 2 else f"o{n // 4}"}).encode() for n in range(20)]
    write(frame(spark, kafka_rows(0, 0, payloads)), 0)
    state = {"watermark": MARK, "distinct": ["ord"], "key": [], "join": None, "output_mode": "update"}
    played(spark, query(landing, out, "distinct", state=state), tmp_path)
    assert sorted(r["flight"] for r in spark.table(str(out)).collect()) == sorted(
        [*range(1, 20, 2), *range(0, 20, 4)]
    )
