"""Edits of a deployed environment that would delete existing data, or take it away from jobs, are refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.config import Names
from millrace.config.model import Environment
from millrace.lifecycle.changes.data_loss import data_loss_lines
from tests.template.cloudformation_rules import Template
from tests.template.test_existing_resources import EXISTING
from tests.template.test_export_changes import PASSES, SAME, Change, changed, drop, full, put, templates

LAKE = "flights-dev-lake-111122223333-us-east-1"
CLUSTER = "arn:aws:kafka:us-east-1:111122223333:cluster/flights-dev-main/abcd1234-1"
RETAIN = put("removal", "retain")
NOT_DISPOSABLE = drop("storage.disposable")


def existing_stream(plain: dict[str, Any]) -> None:
    plain["streams"]["departures"] |= {"existing": "flights-dev-departures", "shards": 4, "disposable": False}


def existing_cluster(plain: dict[str, Any]) -> None:
    plain["kafka"]["main"] = {"kind": "msk", "existing": CLUSTER}


def existing_topic(plain: dict[str, Any]) -> None:
    plain["streams"]["flights"] |= {"existing": True, "partitions": 14, "disposable": False}


def cluster_of_somebody_else(plain: dict[str, Any]) -> None:
    """The topic of the same name on another cluster: the end of a cut-over."""
    plain["kafka"]["other"] = {"kind": "msk", "existing": CLUSTER.replace("flights-dev-main", "company")}
    plain["streams"]["flights"]["cluster"] = "other"
    existing_topic(plain)


def existing_bucket(kind: str, name: str) -> Change:
    return put("storage.buckets", {kind: name})


def key(data_class: str) -> Change:
    return put(f"storage.keys.{data_class}", EXISTING["keys"][data_class])


def refused(base: tuple[Change, ...], *changes: Change) -> list[str]:
    plain = full()
    for change in (*base, *changes):
        change(plain)
    environment = Environment.model_validate({"name": "dev", **plain})
    old, new = changed(*base), templates(json.dumps({"name": "dev", **plain}, default=str))
    return list(data_loss_lines(Names(environment, "111122223333"), old, new))


@pytest.mark.parametrize(
    ("data_class", "resources"),
    [
        ("data", ["Bucket flights-dev-checkpoints", "Bucket flights-dev-dead-letters", "Bucket flights-dev-lake"]),
        pytest.param("logs", ["Bucket flights-dev-event-logs"], marks=pytest.mark.slow),
        pytest.param("streams", ["Stream flights-dev-departures"], marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_a_key_of_existing_data_is_kept(data_class: str, resources: list[str]) -> None:
    own = key(data_class)
    for base, edit in (
        (SAME, own),
        ((own,), put("storage.keys", {})),
        ((own,), put(f"storage.keys.{data_class}", EXISTING["keys"]["kafka"])),
    ):
        lines = sorted(refused(base, edit))
        assert len(lines) == len(resources)
        for line, resource in zip(lines, resources, strict=True):
            assert resource in line
            assert "stays under the old key" in line


def test_a_key_of_messages_that_nobody_reads_later_can_change() -> None:
    assert refused(SAME, key("alerts")) == []


@pytest.mark.parametrize(
    ("edit", "title"),
    [
        (existing_stream, "AWS::Kinesis::Stream flights-dev-departures"),
        pytest.param(existing_topic, "AWS::MSK::Topic flights", marks=pytest.mark.slow),
        pytest.param(existing_bucket("lake", LAKE), f"AWS::S3::Bucket {LAKE}", marks=pytest.mark.slow),
        pytest.param(
            put("storage.database", "flights_dev"), "AWS::Glue::Database flights_dev", marks=pytest.mark.slow
        ),
    ],
)
def test_what_the_file_says_to_exist_is_not_deleted_by_the_deployment_that_says_so(
    edit: Change, title: str
) -> None:
    (line,) = refused(SAME, NOT_DISPOSABLE, edit)
    assert f": {title}: " in line
    assert "`removal: retain`" in line
    assert refused((RETAIN, NOT_DISPOSABLE), edit) == []


@pytest.mark.slow
def test_a_cluster_cannot_be_handed_over_as_jobs_would_lose_their_way_to_it() -> None:
    for base in (SAME, (RETAIN,)):
        (line,) = refused(base, existing_cluster)
        assert "AWS::MSK::Cluster flights-dev-main" in line
        assert "the rule that lets jobs in" in line


def test_a_stack_that_goes_with_what_exists_is_refused_too() -> None:
    stream = {"Type": "AWS::Kinesis::Stream", "Properties": {"Name": "flights-dev-departures"}}
    old: dict[str, Template] = {**changed(), "flights-dev-streams": {"Resources": {"A": stream}}}
    plain = full()
    existing_stream(plain)
    environment = Environment.model_validate({"name": "dev", **plain})
    new = {stack: each for stack, each in old.items() if stack != "flights-dev-streams"}
    assert len(list(data_loss_lines(Names(environment, "111122223333"), old, new))) == 1


def test_a_topic_of_the_same_name_on_another_cluster_is_another_one() -> None:
    assert refused(SAME, cluster_of_somebody_else) == []


@pytest.mark.parametrize(
    ("edit", "places"),
    [
        (existing_bucket("lake", "other-lake"), (LAKE, "other-lake")),
        (existing_bucket("checkpoints", "elsewhere"), (LAKE.replace("lake", "checkpoints"), "elsewhere")),
        (put("storage.database", "company"), ("flights_dev", "company")),
    ],
)
def test_tables_and_checkpoints_stay_where_they_are(edit: Change, places: tuple[str, str]) -> None:
    was, will = places
    for base, then in (((NOT_DISPOSABLE,), edit), ((NOT_DISPOSABLE, edit), put("storage", {}))):
        (line,) = refused(base, then)
        first, second = (was, will) if then is edit else (will, was)
        assert f"{first} becomes {second}" in line


@pytest.mark.slow
def test_buckets_that_jobs_do_not_read_can_be_somebody_elses() -> None:
    for kind in ("dead-letters", "event-logs", "access-logs"):
        assert refused((NOT_DISPOSABLE,), existing_bucket(kind, f"company-{kind}")) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_other_changes_are_not_refused(name: str) -> None:
    before, after = PASSES[name]
    lines = refused(before, *after) if before is SAME else []
    assert bool(lines) is (name in ("an existing database", "an existing lake"))
