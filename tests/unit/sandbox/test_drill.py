"""Steps of a drill with a job that writes at once, and one that does not recover."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from millrace.config import Names, load
from millrace.sandbox.kill_and_restart_jobs import DrillError, DrillTimeLimits, JobRunner, JobsDrill
from millrace.sandbox.local_runs import LocalJobRunner
from millrace.sandbox.programs.child_processes import ChildProcess
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import LocalJob, SandboxSpark

TABLE = "rows"
ROW = pa.table({"_id": ["a"]})
NAMES = Names(load("minimal"), "000000000000")


class Runs(JobRunner):
    """Runs that commit a row at each start, as often as they may."""

    patience = DrillTimeLimits(start=1, end=1, recover=1, land=1, reshard=1, remove=1, vanish=1)

    def __init__(self, catalog: SqlCatalog, commits: int) -> None:
        self.held, self.commits, self.steps = catalog, commits, list[str]()
        self.why: str | None = None

    def catalog(self, _: Names) -> SqlCatalog:
        return self.held

    def start(self, names: Names, job: str) -> None:
        self.steps.append(f"start {job}")
        if self.commits:
            self.commits -= 1
            self.held.load_table(names.table(TABLE)).append(ROW)

    restart_killed_job = start

    def kill_run(self, _: Names, job: str) -> None:
        self.steps.append(f"kill {job}")

    def why_ended(self, _names: Names, _job: str) -> str | None:
        return self.why

    def stop(self, _: Names, job: str) -> None:
        self.steps.append(f"stop {job}")


@pytest.fixture
def drill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[int], tuple[JobsDrill, Runs]]]:
    """Make a drill whose job commits so many times."""
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace(NAMES.database)
    catalog.create_table(NAMES.table(TABLE), schema=ROW.schema)
    monkeypatch.setattr(JobsDrill, "moment_seconds", 0.0)

    def make(commits: int) -> tuple[JobsDrill, Runs]:
        runs = Runs(catalog, commits)
        return JobsDrill(runs, NAMES, ["job"], seed=1, say=lambda _: None), runs

    yield make
    catalog.engine.dispose()


def test_a_job_that_comes_back_is_waited_for_and_stopped(
    drill: Callable[[int], tuple[JobsDrill, Runs]],
) -> None:
    made, runs = drill(2)
    made.start()
    made.wait_for_first_rows(TABLE, "job")
    made.kill_and_restart_jobs("kill 1", {"job": [[TABLE]]})
    assert made.wait_for_rows_and_describe_missing({TABLE: 2}) == ""
    assert (
        made.wait_for_rows_and_describe_missing({TABLE: 3}) == f"no further row for 1 s: {TABLE} has 2 of 3"
    )
    made.stop()
    made.stop()
    assert runs.steps == ["start job", "kill job", "start job", "stop job"]
    (kill,) = made.kills
    assert (kill.job, kill.number) == ("job", 1)
    assert 0 <= kill.recovery_seconds < 1


def test_a_job_that_does_not_come_back_ends_the_drill(drill: Callable[[int], tuple[JobsDrill, Runs]]) -> None:
    made, runs = drill(1)
    made.start()
    with pytest.raises(DrillError, match=f"waiting for a commit to {TABLE} after kill 1"):
        made.kill_and_restart_jobs("kill 1", {"job": [[TABLE]]})
    runs.why = "its run ended by itself"
    with pytest.raises(DrillError, match="job job: its run ended by itself"):
        made.wait_for_rows_and_describe_missing({TABLE: 2})


@pytest.mark.parametrize(("status", "ends_well"), [(0, True), (143, True), (1, False)])
def test_a_run_of_local_spark_has_to_end_well(tmp_path: Path, status: int, *, ends_well: bool) -> None:
    script = f"trap 'exit {status}' TERM; touch {tmp_path}/ready; while :; do sleep 0.05; done"
    process = ChildProcess.start("driver", ["/bin/sh", "-c", script], environment={}, log=tmp_path / "log")
    process.wait_until((tmp_path / "ready").exists, seconds=10, what="ready")
    spark = SandboxSpark(stack=LocalStack("http://127.0.0.1:1", "us-east-1", None), kafka="")
    run = LocalJob(process, tmp_path)
    runs = LocalJobRunner(spark=spark, by_job={"job": [run]})
    with nullcontext() if ends_well else pytest.raises(DrillError, match="job job stopped with status 1"):
        runs.stop(NAMES, "job")
    assert run.ended is not None
    assert runs.why_ended(NAMES, "job") is None
