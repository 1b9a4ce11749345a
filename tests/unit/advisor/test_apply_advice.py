"""Changes of the advice are written into the environment file, or refused with nothing written."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from millrace.advisor.apply_changes import parse_dotted_key, try_changes
from millrace.advisor.findings.model import Change
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
    line = next(n for n, each in enumerate(prod.read_text().splitlines(), start=1) if "&speed" in each)
    with pytest.raises(ConfigurationError) as refused:
        try_changes(prod, [change("jobs.flights.rate.batch_overhead", "2s", "4s")], project)
    assert str(refused.value) == (
        f"environments/prod.yaml:{line}: jobs.flights.rate.batch_overhead is 2s; allowed: an edit by hand, as "
        "jobs.bookings.rate.batch_overhead would change with it, by a YAML anchor or a merge key"
    )
    assert texts(project) == before


MERGED = """\
project: hello
account: "111122223333"
streams:
  clicks: {kind: kinesis, traffic: {records_per_second: 800, record_size: 500B}}
jobs:
  first: &first
    engine: glue
    cores: 16
    rate: {records_per_second_per_core: 4000}
    queries: {land: {kind: land, source: clicks, table: t, schema: pipelines/clicks/schemas/click.ddl}}
  second:
    <<: *first
    cores: 12
    queries: {land-2: {kind: land, source: clicks, table: t2, schema: pipelines/clicks/schemas/click.ddl}}
  third:
    <<: *first
    queries: {land-3: {kind: land, source: clicks, table: t3, schema: pipelines/clicks/schemas/click.ddl}}
"""


@pytest.mark.parametrize(
    ("key", "old", "new", "told"),
    [
        ("jobs.first.run", None, "bounded", ":6: jobs.first.run is not set; {}jobs.second.run would change"),
        ("jobs.first.cores", 16, None, ":8: jobs.first.cores is 16; {}jobs.third.cores would change"),
        ("jobs.second.cores", 12, None, ":13: jobs.second.cores is 12; {}it would be 16, from environments/"),
        ("jobs.third.cores", 16, None, ":8: jobs.third.cores is 16; {}it comes by the merge key <<"),
        (
            "jobs.third.rate.basis",
            None,
            "measured",
            ":9: jobs.third.rate.basis is not set; {}jobs.third.rate.records_per_second_per_core would change",
        ),
    ],
)
def test_a_key_that_a_merge_key_shares_is_named_with_its_line(project, key, old, new, told):
    file = project / "environments" / "merged.yaml"
    file.write_text(MERGED)
    with pytest.raises(ConfigurationError) as refused:
        try_changes(file, [change(key, old, new)], project)
    assert f"environments/merged.yaml{told.format('allowed: an edit by hand, as ')}" in str(refused.value)


def test_a_key_beside_a_merge_key_is_changed(project):
    file = project / "environments" / "merged.yaml"
    file.write_text(MERGED)
    changes = [change("jobs.second.cores", 12, 8), change("jobs.third.cores", 16, 8)]
    expected = MERGED.replace("cores: 12", "cores: 8") + "    cores: 8\n"
    assert try_changes(file, changes, project).files[0].after == expected


def test_a_key_after_an_alias_is_added_and_an_alias_removed(project):
    file = project / "environments" / "merged.yaml"
    rate = "    rate: {records_per_second_per_core: 4000}\n"
    text = (
        MERGED.replace(rate, rate.replace("rate: ", "rate: &rate ")) + "    rate: *rate\n    version: '6.0'\n"
    )
    file.write_text(text.replace("    <<: *first\n    q", "    engine: glue\n    q"))
    before = file.read_text()
    found = try_changes(file, [change("jobs.third.latency", None, "5m")], project)
    assert found.files[0].after == before + "    latency: 5m\n"
    file.write_text(before.replace("    version: '6.0'\n", ""))
    before = file.read_text()
    found = try_changes(file, [change("jobs.third.latency", None, "5m")], project)
    assert found.files[0].after == before + "    latency: 5m\n"
    value = {"records_per_second_per_core": 4000}
    found = try_changes(file, [change("jobs.third.rate", value, None)], project)
    assert found.files[0].after == before.replace("    rate: *rate\n", "")


def test_a_pin_under_which_the_base_has_another_is_not_taken_away(project):
    base, prod = project / "environments" / "base.yaml", project / "environments" / "prod.yaml"
    assert "availability_zones: 3" in base.read_text()
    prod.write_text(prod.read_text() + "network: {availability_zones: 2}\n")
    with pytest.raises(
        ConfigurationError, match=r"an edit by hand, as it would be 3, from environments/base.yaml:\d+"
    ):
        try_changes(prod, [change("network.availability_zones", 2, None)], project)


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
