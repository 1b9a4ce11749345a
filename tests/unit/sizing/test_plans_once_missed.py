"""Plans keep what they promise for environments in which they once did not."""

from __future__ import annotations

import pytest

from tests.unit.sizing.plan_relations import (
    a_pin_changes_nothing,
    an_easier_environment_is_no_worse,
    contradictions_of_plan,
    several,
    sized,
)
from tests.unit.sizing.random_environments import Document

pytestmark = pytest.mark.usefixtures("without_remedies")


@pytest.mark.parametrize("outage", ["1s", "10m", "30m"])
def test_all_cores_of_the_executors_read_shards(outage: str) -> None:
    """Of 36 shards, one was to be read after those of 35 cores, but 18 executors have 36 cores: the backlog grew."""
    job = {"engine": "glue", "latency": "5000ms", "catch_up": {"outage": outage, "within": "3h"}}
    document = several(job, one={"records_per_second": 4800, "record_size": "4KiB"})
    environment, found = sized(document, simulated=True)
    assert found is not None
    assert contradictions_of_plan(environment, found) == []
    an_easier_environment_is_no_worse(document, 1.01)
    a_pin_changes_nothing(document)


def test_a_backlog_of_two_shards_that_one_executor_reads_at_once_is_gone_as_planned() -> None:
    """Limits were those of one core, which reads one shard after the other; batches of 59 records of each were late."""
    rate = {"records_per_second_per_core": 3375, "batch_overhead": "1175ms", "basis": "measured"}
    traffic = {"records_per_second": 18.3, "peak_factor": 1.5, "record_size": "30KiB", "basis": "measured"}
    document = several({"engine": "emr", "latency": "3471ms", "rate": rate}, one=traffic)
    environment, found = sized(document, simulated=True)
    assert found is not None
    assert contradictions_of_plan(environment, found) == []


@pytest.mark.parametrize("more", [{}, {"worker": "G.1X"}])
def test_too_few_pinned_workers_of_a_bounded_run_are_refused(more: Document) -> None:
    """One executor was planned for 79 cores: no record was in time."""
    job = {"engine": "glue", "latency": "1300000ms", "run_every": "5m", "max_workers": 2} | more
    document = several(job, one={"records_per_second": 14_884, "record_size": "4KiB"})
    assert sized(document)[1] is None
    document["jobs"]["job"]["max_workers"] = 60
    environment, found = sized(document, simulated=True)
    assert found is not None
    assert contradictions_of_plan(environment, found) == []
