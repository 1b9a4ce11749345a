"""Commits whose answer is lost are recognised, and no record is doubled."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests import rest_catalog
from tests.faults import s3_proxy
from tests.faults.crashed_job import PORTION, portion
from tests.faults.in_process_job import Job
from tests.faults.s3_proxy import Faults

pytestmark = pytest.mark.slow

_numbers = iter(range(1000))


@dataclass
class Commits(Faults):
    """What befalls commits of rows to one table; everything else passes.

    Attributes
    ----------
    table
        Its name.
    fates
        Of its next commits, in order.
    meets, operation
        Done before the next commit of an operation takes effect, which is based on the state before.
    catalog
        Name of the catalog.
    """

    table: str = ""
    fates: list[str] = field(default_factory=list)
    meets: Callable[[], object] | None = None
    operation: bytes = b""
    catalog: str = ""

    def met(self) -> bool:
        """Whether that was done."""
        return self.meets is None

    def fate(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """See :class:`tests.faults.s3_proxy.Faults`."""
        if not (method == "POST" and path.endswith(f"/tables/{self.table}") and b'"add-snapshot"' in body):
            return "passed"
        if self.meets is not None and self.operation in body:
            meets, self.meets = self.meets, None
            meets()
        kind = self.fates.pop(0) if self.fates else "passed"
        self.done[kind] += 1
        return kind


class Keyed(Job):
    """A job whose records have few keys."""

    def send(self) -> None:
        """Send a portion."""
        self._producer.send(portion(self._first), sent=lambda _: None)
        self._first += PORTION


@pytest.fixture(scope="module")
def commits(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commits]:
    """A catalog behind the proxy."""
    home = tmp_path_factory.mktemp("rest")
    with rest_catalog.running(home) as address, s3_proxy.before(address, Commits("")) as faults:
        assert isinstance(faults, Commits)
        # Spark keeps a catalog for the whole session by its name, and several modules bring theirs.
        faults.catalog = f"rest_{next(_numbers)}"
        settings = {
            "": "org.apache.iceberg.spark.SparkCatalog",
            ".type": "rest",
            ".uri": faults.endpoint,
            ".io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
            # As for the other catalogs (docs/design/tables.md).
            ".cache-enabled": "false",
        }
        for key, value in settings.items():
            spark.conf.set(f"spark.sql.catalog.{faults.catalog}{key}", value)
        yield faults


@pytest.mark.faults
@pytest.mark.parametrize(
    ("kind", "table", "fate"),
    [("land", "landed", "lost"), ("land", "landed", "timed_out"), ("latest", "out", "lost")],
)
def test_a_commit_that_is_not_known_to_be_made_is_neither_lost_nor_doubled(
    spark: SparkSession,
    broker: KafkaBroker,
    commits: Commits,
    tmp_path: Path,
    kind: str,
    table: str,
    fate: str,
) -> None:
    job = Keyed(spark, broker, tmp_path, next(_numbers), kind, catalog=commits.catalog)
    job.retries = 2
    job.send()
    assert job.run().status == 0
    commits.done.clear()
    commits.table = job._table(table).partition(".")[2]
    for _ in range(2):
        # Of a later Iceberg the client itself finds out that a commit was made, and nothing is repeated.
        commits.fates = [fate]
        job.send()
        ended = job.run()
        assert ended.status == 0, ended.message
    assert commits.done[fate] == 2
    assert not job.wrong()
    # Every file that the table names is there: no clean-up has taken one for that of a failed commit.
    assert spark.table(job._full(table)).count() == len(job._rows(table, "_id"))
    job.drop()
