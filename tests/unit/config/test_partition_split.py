"""Partition lists cover each partition once and balance the jobs."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from millrace.config import ConfigurationError, load
from millrace.lifecycle.audits.balance_partitions_over_jobs import (
    TopicSplit,
    balance_partitions,
    names_of_jobs,
)
from tests.run import examples
from tests.unit.config.conftest import GOOD

NOW = datetime(2026, 1, 1, tzinfo=UTC)
traffic = st.lists(st.integers(0, 10**9), min_size=1, max_size=200).map(
    lambda counts: dict(enumerate(counts))
)


@settings(max_examples=examples(100))
@given(records=traffic, data=st.data())
def test_every_partition_is_in_one_list(records: dict[int, int], data: st.DataObject) -> None:
    jobs = data.draw(st.integers(1, len(records)))
    lists = balance_partitions(records, jobs)
    assert len(lists) == jobs
    assert all(lists)
    assert sorted(p for each in lists for p in each) == sorted(records)
    assert all(list(each) == sorted(each) for each in lists)


@settings(max_examples=examples(60))
@given(counts=st.lists(st.integers(0, 50), min_size=2, max_size=7), jobs=st.integers(1, 3))
def test_the_busiest_job_is_within_grahams_bound(counts: list[int], jobs: int) -> None:
    jobs = min(jobs, len(counts))
    loads = [sum(counts[p] for p in each) for each in balance_partitions(dict(enumerate(counts)), jobs)]
    best = min(
        max(sum(c for c, owner in zip(counts, owners, strict=True) if owner == job) for job in range(jobs))
        for owners in product(range(jobs), repeat=len(counts))
    )
    assert max(loads) <= best * (4 / 3 - 1 / (3 * jobs)) + 1e-9


def split_of(
    job: str, records: dict[int, int], lists: tuple[tuple[int, ...], ...], **sharing: tuple[int, ...]
) -> TopicSplit:
    """A split of a job, or of all jobs that share the topic."""
    had = {name.replace("_", "-"): listed for name, listed in sharing.items()}
    names = names_of_jobs(job, lists, had, had)
    return TopicSplit(
        job, "land-orders", tuple(had) or (job,), names, "orders", "orders", NOW, NOW, records, lists
    )


def written(project: Path, split: TopicSplit, name: str) -> Path:
    """The environment with the jobs of a split in the place of the one that is split."""
    yaml = YAML(typ="safe")
    document = yaml.load(GOOD)
    document["streams"]["orders"]["partitions"] = len(split.records)
    job = document["jobs"].pop("orders")
    document["jobs"] |= split.job_entries(job)
    path = project / "environments" / f"{name}.yaml"
    with path.open("w") as file:
        yaml.dump(document, file)
    return path


def test_what_is_written_is_loaded_and_checked(project: Path) -> None:
    records = {0: 900, 1: 10, 2: 500, 3: 480}
    split = split_of("orders", records, balance_partitions(records, 2))
    assert split.lists == ((0, 1), (2, 3))
    written(project, split, "two")
    environment = load("two", root=project)
    assert set(environment.jobs) == {"clicks", "orders-1", "orders-2"}
    result = [environment.jobs[name].queries["land-orders"].kafka for name in split.job_names]
    assert [each.partitions for each in result if each is not None] == [(0, 1), (2, 3)]
    again = split_of("orders-1", records, balance_partitions(records, 3), orders_1=(0, 1), orders_2=(2,))
    assert again.lists == ((0,), (2,), (1, 3))
    assert again.job_names == ("orders-3", "orders-2", "orders-4"), "0, 1 is no list any more"


def test_lists_that_were_changed_by_hand_are_refused(project: Path) -> None:
    records = dict.fromkeys(range(4), 1)
    for lists, wrong in ((((0, 1), (2,)), "no query lands 3"), (((0, 1, 2), (2, 3)), "no other query lands")):
        written(project, split_of("orders", records, lists), "odd")
        with pytest.raises(ConfigurationError, match=wrong):
            load("odd", root=project)
