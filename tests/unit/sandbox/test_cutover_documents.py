"""Documents of the cut-over rounds are valid, can be planned, and are read by the core."""

from __future__ import annotations

from pathlib import Path

import pytest
from ruamel.yaml import YAML

from millrace.advisor.existing.environment_of_imported_job import environment_document
from millrace.advisor.existing.read_job_to_import import RunningJob
from millrace.advisor.programs.library_functions import LaunchArguments
from millrace.config import Names, load
from millrace.infra.launch.launch_settings import job_settings
from millrace.sandbox.programs.localstack import ACCOUNT
from millrace.sizing import plan
from millrace.sizing.simulation import expected_cost
from tests.advisor.advice_loop import ENVIRONMENT, LIMIT
from tests.faults.import_cutover import NAME, OLD, SCHEMA, composed
from tests.faults.shop_project import prepare, write
from tests.unit.advisor.settings_of_program import settings_of_program


def test_the_loops_environment_has_the_limit_that_is_too_low(tmp_path: Path) -> None:
    made = write(tmp_path / "project", ENVIRONMENT)
    [query] = plan(made).jobs["orders"].queries.values()
    assert query.records_per_batch is not None
    assert query.records_per_batch.value == LIMIT


def test_the_old_job_is_read_and_taken_over_in_three_ways(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A day of batches of two seconds, simulated for what late workers cost, decides nothing here.
    monkeypatch.setattr(expected_cost, "plan_with_fixed_workers_where_late", lambda _, found: found)
    said = settings_of_program(OLD.read_text(), LaunchArguments(("--brokers", "127.0.0.1:9092")))
    assert (said.kind, said.name, said.trigger) == ("kafka", "orders", 2.0)
    job = {"engine": "glue", "version": "5.1", "worker": "G.1X", "max_workers": 3}
    running = RunningJob("glue:sales", ACCOUNT, "us-east-1", job, said)
    timed, exact = (
        environment_document(
            running,
            env="moved",
            project="imported",
            schema=SCHEMA,
            start="2026-12-01T08:00:00Z",
            rate=100,
            record_size="150B",
            twin=None,
            offsets=offsets,
            partitions=3,
        )
        for offsets in (None, {0: 7, 1: 8, 2: 9})
    )
    prepare(tmp_path)
    with (tmp_path / "environments" / f"{NAME}.yaml").open("w") as stream:
        YAML().dump(composed(timed, exact), stream)
    made = load(NAME, root=tmp_path)
    queries = job_settings(made, plan(made).jobs["sales"], Names(made, ACCOUNT)).queries
    assert {each.name: each.kind for each in queries} == {
        "land-orders": "land",
        "land-exact": "land",
        "replace": "derive",
    }
    assert queries[-1].sink.table == "theirs.orders"
