"""Changes of the advice are written into the environment file, or refused with nothing written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from millrace.advisor.apply_changes import parse_dotted_key, try_changes
from millrace.advisor.findings import Change
from millrace.config import ConfigurationError, load
from millrace.sizing import plan

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    for folder in ("environments", "pipelines"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def change(key: str, old: object, new: object) -> Change:
    return Change("environment", "environments/prod.yaml", key, old, new)  # type: ignore[arg-type]


TRIGGER = change("jobs.departures.queries.land-departures.trigger", None, "8s")


def texts(project: Path) -> dict[str, str]:
    return {each.name: each.read_text() for each in (project / "environments").iterdir()}


def test_a_value_that_the_plan_computed_is_pinned_and_the_plan_carries_it(project):
    prod = project / "environments" / "prod.yaml"
    before = prod.read_text()
    found = try_changes(prod, [TRIGGER], project)
    assert prod.read_text() == before  # nothing until it is asked for
    added = "        schema: pipelines/flights/schemas/flight.ddl\n"
    assert [line for line in found.files[0].diff().splitlines() if line[:1] in "+-"] == [
        "--- a/environments/prod.yaml",
        "+++ b/environments/prod.yaml",
        "+        trigger: 8s",
    ]
    found.write()
    assert prod.read_text() == before.replace(added, f"{added}        trigger: 8s\n", 1)
    trigger = plan(load("prod", project)).jobs["departures"].queries["land-departures"].trigger_seconds
    assert (trigger.value, trigger.origin) == (8.0, "pinned")
    assert found.before.jobs["departures"].queries["land-departures"].trigger_seconds.origin == "computed"
    assert found.after.jobs["departures"].queries["land-departures"].trigger_seconds == trigger


def test_several_changes_of_one_file_and_one_that_takes_a_pin_away(project):
    prod = project / "environments" / "prod.yaml"
    before = prod.read_text()
    found = try_changes(
        prod,
        [
            TRIGGER,
            change("jobs.departures.latency", "30s", "45s"),
            change("jobs.positions.worker", "G.2X", None),
        ],
        project,
    )
    found.write()
    diff = found.files[0].diff().splitlines()
    assert [line for line in diff if line[:1] == "-"][1:] == ["-    latency: 30s", "-    worker: G.2X"]
    assert [line for line in diff if line[:1] == "+"][1:] == ["+    latency: 45s", "+        trigger: 8s"]
    assert prod.read_text() != before
    assert load("prod", project).jobs["positions"].worker == "G.1X"


@pytest.mark.parametrize("old", ["30s", "0.5m", 30, 30.0])
def test_a_value_may_be_written_in_another_unit(project, old):
    found = try_changes(
        project / "environments" / "prod.yaml", [change("jobs.departures.latency", old, "45s")], project
    )
    assert "+    latency: 45s" in found.files[0].diff()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            [change("jobs.departures.latency", "60s", "45s")],
            "environments/prod.yaml:LINE: jobs.departures.latency is 30s; allowed: 60s, the value from which the advice was made; make the advice again",
        ),
        (
            [change("jobs.departures.cores", 4, 8)],
            "jobs.departures.cores is not set; allowed: 4",
        ),
        (
            [TRIGGER, change("jobs.departures.latency", "30s", "soon")],
            "environments/prod.yaml:LINE: jobs.departures.latency is soon",
        ),
        (
            [change("jobs.departures.worker", None, "G.1X"), change("jobs.departures.max_workers", None, 2)],
            "environments/prod.yaml:LINE: jobs.departures.max_workers",
        ),
        ([change("jobs.departures.wings", None, 2)], "jobs.departures.wings"),
        ([change("jobs.departures.queries", None, 2)], "jobs.departures.queries is"),
        (
            [change("jobs.departures.latency.more", None, 2)],
            "jobs.departures.latency.more is not set; allowed: an edit by hand, as the value above more is not a mapping of keys to values",
        ),
    ],
)
def test_what_is_refused_writes_nothing(project, changes, told):
    before = texts(project)
    with pytest.raises(ConfigurationError) as refused:
        try_changes(project / "environments" / "prod.yaml", changes, project)
    assert told in re.sub(r":\d+: ", ":LINE: ", str(refused.value))
    assert texts(project) == before


def test_what_the_base_holds_for_others_too_is_overridden_in_the_environments_own_file(project):
    found = try_changes(
        project / "environments" / "prod.yaml", [change("network.availability_zones", 3, 2)], project
    )
    assert [each.name for each in found.files] == ["environments/prod.yaml"]
    found.write()
    assert load("prod", project).network.availability_zones == 2
    assert load("dev", project).network.availability_zones == load("dev", ROOT).network.availability_zones
    assert (project / "environments" / "base.yaml").read_text() == (
        ROOT / "environments" / "base.yaml"
    ).read_text()


def test_what_the_base_holds_for_this_one_alone_is_changed_there(project):
    for each in ("dev", "local"):
        (project / "environments" / f"{each}.yaml").unlink()
    found = try_changes(
        project / "environments" / "prod.yaml", [change("network.availability_zones", 3, 2)], project
    )
    assert [each.name for each in found.files] == ["environments/base.yaml"]
    assert "-  availability_zones: 3\n+  availability_zones: 2\n" in found.files[0].diff()


def test_a_value_that_others_share_by_an_anchor_is_left_to_people(project):
    prod = project / "environments" / "prod.yaml"
    text = prod.read_text()
    rate = "rate: {records_per_second_per_core: 5500, batch_overhead: 2s, basis: measured}"
    other = "rate: {records_per_second_per_core: 4000, batch_overhead: 3s}"
    prod.write_text(
        text.replace(rate, rate.replace("rate: ", "rate: &speed ")).replace(other, "rate: *speed")
    )
    before = texts(project)
    with pytest.raises(ConfigurationError, match=r"without a YAML anchor that other keys share"):
        try_changes(prod, [change("jobs.flights.rate.batch_overhead", "2s", "4s")], project)
    assert texts(project) == before


def test_a_file_that_somebody_changed_meanwhile_is_not_overwritten(project):
    prod = project / "environments" / "prod.yaml"
    found = try_changes(prod, [TRIGGER], project)
    prod.write_text(prod.read_text() + "# mine\n")
    before = texts(project)
    with pytest.raises(ConfigurationError, match="changed by another program"):
        found.write()
    assert texts(project) == before


def test_keys_are_taken_apart_as_they_are_put_together():
    from millrace.config.document.problems import dotted_path

    for path in (("jobs", "a-b", "spark", "spark.sql.shuffle.partitions"), ("a", 3, "b")):
        assert parse_dotted_key(dotted_path(path)) == path
