"""A batch of ``latest_by`` that conflicts with a compaction or an erasure keeps the result, in both orders of the commits."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from millrace.etl.launch import settings
from millrace.etl.record.tables import Table
from millrace.etl.repair.erase_in_running_job import ErasureTask
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults.small_job_documents import COMPUTED
from tests.spark.maintained_table import compact
from tests.spark.sinks.test_lost_commit_answers import Commits, Keyed, _numbers
from tests.spark.sinks.test_lost_commit_answers import commits as commits
from tests.spark.source_batches import Events

pytestmark = [pytest.mark.slow, pytest.mark.faults]


REFUSED = (CapturedException, Py4JJavaError)


@pytest.fixture
def keyed(spark: SparkSession, broker: KafkaBroker, commits: Commits, tmp_path: Path) -> Iterator[Keyed]:
    """The last records of keys, in a few small files."""
    job = Keyed(spark, broker, tmp_path, next(_numbers), "latest", catalog=commits.catalog)
    job.retries = 2
    for _ in range(3):
        go_on(job)
    commits.table, commits.operation = job._table("out").partition(".")[2], b""
    yield job
    commits.meets = None
    job.drop()


def go_on(job: Keyed) -> list[str]:
    """Send and process a portion; the errors after which a batch was repeated."""
    job.send()
    ended = job.run()
    assert ended.status == 0, ended.message
    return [each["error"] for each in job.events if each["event"] == "retrying"]


def test_a_compaction_beside_a_batch(spark: SparkSession, commits: Commits, keyed: Keyed) -> None:
    """Both rewrite the same files: the second commit is refused, which is told, and its work is repeated."""
    events, out = Events(), Table.from_name(commits.catalog, keyed._table("out"))
    repeated: list[str] = []
    commits.meets, commits.operation = lambda: repeated.extend(go_on(keyed)), b'"replace"'
    with pytest.raises(REFUSED, match="1 rewrite commits failed"):
        compact(spark, out, events)
    assert commits.met()
    assert not repeated + events.all()
    assert not keyed.wrong()

    commits.meets, commits.operation = lambda: compact(spark, out, events), b""
    assert len(go_on(keyed)) == 1
    assert (events.last()["event"], events.last()["files_failed"]) == ("compacted", 0)
    assert not keyed.wrong()


def test_an_erasure_beside_a_batch(spark: SparkSession, commits: Commits, keyed: Keyed) -> None:
    """The second commit is refused and repeated; no older row comes back, and what nobody erased stays."""
    erasure = ErasureTask(settings.parse_job_settings(keyed._job()), Events().reporter)
    folder = keyed.checkpoints / "_millrace" / "erase"
    folder.mkdir(parents=True)

    def ask(name: str, where: str) -> None:
        asked = {"id": name, "where": where, "apply": True, "by": "me", "asked_at": "now"}
        asked |= {"keep_condition": False, "left_out": []}
        (folder / "request.json").write_text(json.dumps(asked))
        erasure(spark)  # of the landing table; the sink waits for the query to read it
        go_on(keyed)

    def finish(name: str) -> None:
        """A batch that was under way when rows were erased is waited for."""
        for _ in range(3):
            erasure(spark)
            answer = json.loads((folder / f"{name}.json").read_text())
            if answer["state"] == "done":
                return
            go_on(keyed)
        pytest.fail(str(answer["waiting"]))

    def others(rows: Counter[tuple[str, int]]) -> Counter[tuple[str, int]]:
        return Counter({row: rows[row] for row in rows if row[1] % 16 not in (3, 5)})

    ask("first", "n % 16 = 3")
    repeated: list[str] = []
    commits.meets = lambda: repeated.extend(go_on(keyed))
    with pytest.raises(REFUSED):
        erasure(spark)
    assert commits.met()
    assert not repeated
    finish("first")

    ask("second", "n % 16 = 5")
    commits.meets = lambda: erasure(spark)
    assert len(go_on(keyed)) == 1
    finish("second")
    wanted, held = COMPUTED["latest"](keyed._rows)
    assert others(wanted) == others(held)
    assert not held - wanted, "an older row stands in the place of a newer one"
    assert not go_on(keyed)
    wanted, held = COMPUTED["latest"](keyed._rows)
    assert wanted == held, "keys that were erased can be written again"
