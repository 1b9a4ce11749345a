"""Every figure of every plan has a reason."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.cli.plan.plan_and_validate import simulated_plan_with_warnings
from millrace.cli.plan.report.plan_document import plan_document, worst_record_age_seconds
from millrace.cli.plan.report.plan_verdict import plan_verdict
from millrace.cli.shared.html_pages import html_page
from millrace.config import ConfigurationError, environment_names, load
from millrace.sizing import plan
from millrace.sizing.number_derivation import DerivationNode, _numbers_by_key, derivation_of_number
from millrace.sizing.plan_as_plain_data import plan_as_plain_data
from tests.page_without_browser import drawn
from tests.unit.cli.test_command_output import millrace
from tests.unit.sizing.conftest import Loader, text

ROOT = Path(__file__).resolve().parents[3]


def leaves(node: DerivationNode) -> Iterator[DerivationNode]:
    if not node.inputs:
        yield node
    for each in node.inputs:
        yield from leaves(each)


def test_a_share_of_another_jobs_sla_names_that_job(from_text: Loader) -> None:
    """A job of seconds that derives from another's table takes from the time in which that job lands."""
    second = """\
  quick:
    engine: glue
    latency: 20s
    rate: {records_per_second_per_core: 1000, batch_overhead: 2s, basis: measured}
    queries:
      newest:
        kind: derive
        source: clicks_landed
        sink: {kind: iceberg, table: newest}
"""
    environment = from_text(text(rate="900", sla="300s", more=second))
    found = derivation_of_number(environment, plan(environment), "jobs.clicks.queries.land.trigger_seconds")
    (share,) = (each for each in found.inputs if each.name == "S")
    assert share.how == "10 s (half of the 20 s SLA of job quick, deriving takes the rest)"
    assert [each.value for each in share.inputs] == ["20 s"]


@pytest.mark.parametrize("name", environment_names(ROOT))
def test_every_number_has_a_derivation_that_ends_in_its_sources(name: str) -> None:
    environment = load(name, root=ROOT)
    sized = plan(environment)
    known = _numbers_by_key(sized)
    for key in known:
        found = derivation_of_number(environment, sized, key)
        assert found.name == key
        assert found.value
        assert found.how or found.origin or found.inputs, key
        if key.startswith("jobs.") and key.endswith((".cores", ".max_workers", "_batch", ".executors")):
            for leaf in leaves(found):
                assert leaf.origin, f"{key}: {leaf} comes from nowhere"


def test_a_tree_names_file_and_line() -> None:
    environment = load("prod", root=ROOT)
    found = derivation_of_number(environment, plan(environment), "jobs.flights.max_workers")
    origins = [leaf.origin for leaf in leaves(found)]
    line = next(
        number
        for number, each in enumerate((ROOT / "environments/prod.yaml").read_text().splitlines(), start=1)
        if "records_per_second: 6000" in each
    )
    assert f"environments/prod.yaml:{line} streams.flights.traffic.records_per_second" in origins


def test_a_batch_that_its_shards_deliver_slowly_says_so() -> None:
    """Its work alone takes 5.84 s, which was the only formula of 7.72 s."""
    environment = load("minimal", root=ROOT)
    key = "jobs.clicks.queries.land-clicks.batch_seconds"
    found = derivation_of_number(environment, plan(environment), key)
    assert found.value.startswith("7.722 s")
    assert (
        "24,000 records on 1 core take 5.840 s; to deliver them takes longer, 1 shard at a time" in found.how
    )
    assert "λT·h/p" in found.how
    (each,) = (part for part in found.inputs if part.name == "h")
    assert 2 + 24_000 * float(each.value.split()[0]) / 1e6 == pytest.approx(7.722, abs=0.001)
    assert "limits.yaml: Kinesis quotas" in str(each)
    assert "1 cores" not in str(found)


def test_a_default_says_that_it_is_one(from_text: Loader) -> None:
    environment = from_text(text())
    origins = [
        leaf.origin
        for leaf in leaves(derivation_of_number(environment, plan(environment), "jobs.clicks.cores"))
    ]
    assert "default of streams.clicks.traffic.peak_factor" in origins


def test_a_pin_is_where_it_stands(from_text: Loader) -> None:
    environment = from_text(text(stream="shards: 40"))
    found = derivation_of_number(environment, plan(environment), "streams.clicks.expected_partitions")
    (leaf,) = leaves(found)
    assert leaf.origin.endswith("streams.clicks.shards")
    assert ":7 " in leaf.origin


def test_pins_of_a_job_are_where_they_stand(from_text: Loader) -> None:
    more = "        records_per_batch: 40000\n        trigger: 10s\n"
    environment = from_text(text(rate="900", job="cores: 64", sla="300s", more=more))
    sized = plan(environment)
    for key, path in (
        ("cores", "jobs.clicks.cores"),
        ("queries.land.cores", "jobs.clicks.cores"),
        ("queries.land.trigger_seconds", "jobs.clicks.queries.land.trigger"),
        ("queries.land.records_per_batch", "jobs.clicks.queries.land.records_per_batch"),
    ):
        (leaf,) = leaves(derivation_of_number(environment, sized, f"jobs.clicks.{key}"))
        assert leaf.origin.endswith(f" {path}")


def test_inputs_in_the_document_are_numbers_of_the_plan() -> None:
    environment = load("prod", root=ROOT)
    sized = plan(environment)
    document = plan_as_plain_data(sized)
    inputs = document["jobs"]["flights"]["executors"]["inputs"]
    assert inputs[0] in _numbers_by_key(sized)
    assert inputs[1]["path"] == ["jobs", "flights", "worker"]


def test_the_total_is_the_sum_of_its_parts() -> None:
    environment = load("prod", root=ROOT)
    found = derivation_of_number(environment, plan(environment), "total")
    parts = sum(float(each.value.strip("$").replace(",", "")) for each in found.inputs)
    assert parts == pytest.approx(float(found.value.split()[0].strip("$").replace(",", "")), abs=0.2)


def test_an_unknown_key_names_the_nearest() -> None:
    environment = load("prod", root=ROOT)
    with pytest.raises(ConfigurationError) as caught:
        derivation_of_number(environment, plan(environment), "jobs.flight.max_worker")
    assert caught.value.problems[0].hint == "did you mean jobs.flights.max_workers?"
    done = millrace("plan", "--env", "prod", "--explain", "nothing")
    assert done.returncode == 2
    assert "one of the plan's" in done.stderr


def test_the_command_prints_the_tree() -> None:
    done = millrace("plan", "--env", "minimal", "--explain", "streams.clicks.shards")
    assert done.returncode == 2
    done = millrace("plan", "--env", "minimal", "--explain", "streams.clicks.expected_partitions")
    assert done.returncode == 0
    assert "environments/minimal.yaml:8 streams.clicks.traffic.records_per_second" in done.stdout
    assert "limits.yaml: Kinesis quotas" in done.stdout


def test_the_page_has_all_ways_to_run_each_job_behind_a_summary() -> None:
    environment = load("prod", root=ROOT)
    found = simulated_plan_with_warnings(environment, plan(environment))
    page = drawn(html_page("plan", "plan", plan_document(found, plan_verdict(found))))
    for job in found.plan.jobs.values():
        folded = page.split(f'<details id="job-{job.name}">')[1].split("</details>")[0]
        assert folded.startswith(f"<summary>{job.name}: {job.choices()[0]}, ")
        for choice in job.choices():
            assert re.search(
                rf">{re.escape(str(choice))}</span></th><td[^>]*><span>{choice.workers}</span>", folded
            )
        assert worst_record_age_seconds(environment, job, job.choices()[0]) > 0
