"""A batch of ``latest_by`` that meets a compaction of the same table, in both orders of their commits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from millrace.etl.record.tables import Table
from millrace.sandbox.programs.kafka import Kafka
from tests.spark.batches import Events
from tests.spark.sinks.test_unknown_commits import CATALOG, Commits, Keyed, _numbers
from tests.spark.sinks.test_unknown_commits import commits as commits
from tests.spark.upkept import compact

pytestmark = [pytest.mark.slow, pytest.mark.faults]


REFUSED = (CapturedException, Py4JJavaError)


@pytest.fixture
def keyed(spark: SparkSession, broker: Kafka, commits: Commits, tmp_path: Path) -> Iterator[Keyed]:
    """The last records of keys, in a few small files."""
    job = Keyed(spark, broker, tmp_path, next(_numbers), "latest", catalog=CATALOG)
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
    events, out = Events(), Table.of(CATALOG, keyed._table("out"))
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
