"""Findings on the number of tasks of a stage, and the options that change it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from millrace.advisor.advise import NOBODY, advise
from millrace.advisor.apply_changes import try_changes
from millrace.advisor.findings.advised_job_keys_and_cost import SHUFFLE, AdvisedJob, advised_environment_job
from millrace.advisor.findings.count_kafka_range_tasks import (
    range_tasks_by_partition,
    smallest_min_partitions,
)
from millrace.advisor.forecasts.forecast_scores import changes_to_simulate_by_finding
from millrace.advisor.logs.application_history_model import BatchSource
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.config import load
from millrace.sizing import plan
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.event_logs_with_known_costs import Truth, run
from tests.unit.advisor.event_logs_with_known_costs import history as history_of
from tests.unit.advisor.healthy_query_history import KAFKA, batch, even, found, history, job, stage
from tests.unit.advisor.test_advise_command import ROOT, flights


def varied(records: int, tasks: int) -> list[int]:
    """Records of tasks; many take equally long with more and with fewer."""
    return [records + (tasks == 100) * (2 * (n % 2) - 1) for n in range(tasks)]


def of_topic(own: int, count: int, seconds: float, cores: int):
    """Batches whose ``count`` tasks of so many seconds read a topic of ``own`` partitions."""

    def made(number, begun):
        launched = [seconds * (n // cores) for n in range(count)]
        at = stage(begun + 0.05, [seconds] * count, varied(1200 // count, count), launched=launched)
        start, end = ({f"orders:{n}": (number + more) * 1200 // own for n in range(own)} for more in (0, 1))
        return batch(
            number, begun, [job(number, [at])], 1200, source=BatchSource(KAFKA, start, end, end, 1200)
        )

    return made


def told(finding):
    return [(each.kind, each.key, each.old, each.new) for each in finding.changes]


def test_a_topic_with_too_many_partitions_is_joined_after_it_is_read():
    finding = found("too-many-partitions", of_topic(100, 100, 0.02, 2))
    assert told(finding) == [("code", "after the source", None, "coalesce(2)")]
    assert finding.changes[0].where == "query orders of job orders"
    assert changes_to_simulate_by_finding([finding], ["orders"]) == {}


def test_partitions_that_the_reader_split_are_as_many_as_the_topics_again():
    finding = found("too-many-partitions", of_topic(8, 100, 0.02, 2))
    assert told(finding) == [
        ("argument", "minPartitions", 100, 8),
        ("code", "after the source", None, "coalesce(2)"),
    ]
    assert told(found("too-many-partitions", of_topic(1, 100, 0.02, 2))) == [
        ("argument", "minPartitions", 100, 2)
    ]


def test_of_ours_no_key_is_named_that_would_do_nothing():
    [finding] = flights(of_topic(100, 100, 0.02, 2)).findings
    assert [each.kind for each in finding.changes] == ["code"]
    [finding] = flights(of_topic(8, 100, 0.02, 2)).findings
    assert finding.changes[0].key == "jobs.flights.queries.show-departures.kafka.min_partitions"
    assert finding.changes[0].new == 8


@pytest.mark.parametrize(
    ("own", "count", "cores", "change"),
    [
        (3, 3, 2, ("argument", "minPartitions", 3, 6)),  # four would leave each of three whole
        (1, 3, 2, ("argument", "minPartitions", 3, 4)),
        (5, 5, 4, ("code", "after the source", None, "repartition(8)")),  # 10 or 15, never 8, 12 or 16
    ],
)
def test_a_full_last_wave_is_asked_for_in_numbers_that_kafka_can_give(own, count, cores, change):
    finding = found("queued-partitions", of_topic(own, count, 0.6, cores), cores=cores)
    assert told(finding) == [change]


def test_too_few_partitions_are_split_evenly():
    assert told(found("too-few-partitions", of_topic(3, 3, 1.2, 3), cores=4)) == [
        ("argument", "minPartitions", 3, 12)
    ]


def shuffled(count: int, seconds: float, cores: int, *, adaptive: bool = False, bytes_read: int = 4000):
    """Batches whose ``count`` tasks read a shuffle."""

    def made(number, begun):
        launched = [seconds * (n // cores) for n in range(count)]
        at = stage(
            begun + 0.05, [seconds] * count, [0] * count, number, launched=launched, scans=(),
            shuffle_records_read=varied(1200 // count, count), shuffle_bytes_read=[bytes_read] * count,
        )  # fmt: skip
        return batch(number, begun, [job(number, [replace(at, adaptive=adaptive)])], 1200)

    return made


def of(kind: str, make, cores: int, properties: dict[str, str], subject: AdvisedJob = NOBODY):
    advice = advise(replace(history(make, cores=cores), properties=properties), subject)
    [finding] = [each for each in advice.findings if each.kind == kind]
    return finding


LOCAL = {"spark.master": "local[8]"}
MERGED = "--conf spark.sql.adaptive.coalescePartitions.minPartitionSize"


@pytest.mark.parametrize(
    ("properties", "change"),
    [
        (LOCAL, (MERGED, None, "1000b")),
        ({**LOCAL, MERGED.removeprefix("--conf "): "1m", SHUFFLE: "16"}, (MERGED, "1m", "1000b")),
        (
            {**LOCAL, "spark.sql.adaptive.coalescePartitions.parallelismFirst": "false"},
            ("--conf spark.sql.adaptive.advisoryPartitionSizeInBytes", None, "1000b"),
        ),
        ({**LOCAL, SHUFFLE: "4"}, (f"--conf {SHUFFLE}", "4", 8)),  # there are no more to merge
    ],
)
def test_tasks_that_spark_merged_itself_are_told_by_their_size(properties, change):
    finding = of("too-few-partitions", shuffled(2, 0.9, 2, adaptive=True), 8, properties)
    assert told(finding) == [("argument", *change)]


@pytest.mark.parametrize(
    ("properties", "change"),
    [
        ({**LOCAL, SHUFFLE: "100"}, ("argument", f"--conf {SHUFFLE}", "100", 2)),
        ({}, ("argument", f"--conf {SHUFFLE}", None, 2)),  # of a log without its settings
        (LOCAL, ("code", f"repartition, or {SHUFFLE} where the program sets it", None, 2)),
    ],
)
def test_tasks_that_nobody_merged_are_as_many_as_is_set(properties, change):
    assert told(of("too-many-partitions", shuffled(100, 0.012, 2), 2, properties)) == [change]


def test_what_merged_them_is_read_from_the_log(tmp_path):
    for adaptive in (True, False):
        log = write(history(shuffled(2, 0.9, 2, adaptive=adaptive)), tmp_path / f"local-{adaptive:d}")
        found = read_history(find_event_logs(str(log))[0])
        stages = [s for b in found.queries[0].batches for j in b.jobs for s in j.stages]
        assert {(each.adaptive, each.scans) for each in stages} == {(adaptive, ())}
        assert int(stages[0].tasks.shuffle_bytes_read.sum()) == 8000


def test_of_ours_sparks_settings_are_keys_that_can_be_written(tmp_path):
    for folder in ("environments", "pipelines"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    environment = load("prod", root=tmp_path)
    subject = advised_environment_job(environment, plan(environment), "flights")
    few = of("too-few-partitions", shuffled(2, 0.9, 2, adaptive=True), 8, LOCAL, subject)
    many = of("too-many-partitions", shuffled(100, 0.012, 2), 2, {}, subject)
    merged = MERGED.removeprefix("--conf ")
    assert [*told(few), *told(many)] == [
        ("environment", f"jobs.flights.spark[{merged}]", None, "1000b"),
        ("environment", f"jobs.flights.spark[{SHUFFLE}]", None, "2"),
    ]
    file = tmp_path / "environments" / "prod.yaml"
    try_changes(file, [few.changes[0], many.changes[0]], tmp_path).write()
    assert load("prod", root=tmp_path).jobs["flights"].spark == {
        **environment.jobs["flights"].spark,
        merged: "1000b",
        SHUFFLE: "2",
    }


def test_of_ours_nothing_is_named_that_no_key_reaches():
    environment = load("prod", root=ROOT)
    jobs = {name: advised_environment_job(environment, plan(environment), name) for name in environment.jobs}
    seen = set()
    for name, subject in jobs.items():
        made = replace(history(), engine=subject.engine)
        for query, said in environment.jobs[name].queries.items():
            source = "KinesisV2[x]" if said.kind == "land" else "IcebergSource[x]"
            [run] = history(
                lambda n, b, d=source: replace(even(n, b), sources=(BatchSource(d, None, None, None, 9),))
            ).queries
            for setting in ("limit", "least", "partitions"):
                for each in subject.changes_for(replace(run, name=query), made, setting, 2, 4):
                    assert each.kind != "argument", (query, setting, each)
                    seen.add((said.kind, setting, each.kind))
    assert ("derive", "limit", "environment") not in seen
    assert ("land", "limit", "environment") in seen
    assert ("derive", "partitions", "code") in seen


def equal(number, begun):
    """As many records in every batch, of a table, and half of the time at rest."""
    source = BatchSource("IcebergSource[lake.orders]", None, None, None, 4000)
    at = stage(begun + 0.05, [0.4, 0.4], [2000, 2000])
    return batch(number, begun, [job(number, [at])], 4000, source=source)


def test_where_a_limit_is_nobodys_to_set_batches_come_sooner():
    environment = load("prod", root=ROOT)
    name, query = next(
        (name, query)
        for name, made in environment.jobs.items()
        for query, said in made.queries.items()
        if said.kind == "derive"
    )
    made = history(equal)
    [run] = made.queries
    advice = advise(
        replace(made, queries=(replace(run, name=query),)),
        advised_environment_job(environment, plan(environment), name),
    )
    [finding] = advice.findings
    assert finding.kind == "silent-backlog"
    [change] = finding.changes
    assert (change.kind, change.key) == ("environment", f"jobs.{name}.queries.{query}.trigger")
    assert change.new == "1.6s"


def test_batches_without_records_wait_longer_where_no_option_makes_them():
    def some(number, begun):
        made = even(number, begun)
        rows = 0 if number % 3 else made.rows
        return replace(made, rows=rows, sources=(BatchSource("FileStreamSource[x]", None, None, None, rows),))

    assert told(found("empty-batches", some)) == [
        ("argument", "trigger(processingTime)", None, "6 seconds"),
    ]


def test_ranges_are_split_as_spark_does():
    even, hot = np.array([100.0] * 3), np.array([1000.0, 10.0, 10.0])
    assert [range_tasks_by_partition(even, least).sum() for least in (1, 3, 4, 5, 6, 7, 8, 9)] == [
        3,
        3,
        3,
        6,
        6,
        6,
        9,
        9,
    ]
    # The hot one takes what the small ones leave: six less two.
    assert [range_tasks_by_partition(hot, least).sum() for least in (3, 4, 6)] == [3, 4, 6]
    assert smallest_min_partitions([even] * 9 + [hot], 4, 2, 8) == 6
    assert smallest_min_partitions([even] * 5 + [hot] * 5, 10, 5, 10) is None


def test_a_number_that_splits_only_some_of_the_partitions_is_none():
    """24 of 16 partitions of 100 and 101 records: the larger half is split, and the others take as long as before."""
    near = np.array([100.0, 101.0] * 8)
    assert range_tasks_by_partition(near, 24).sum() == 24
    assert smallest_min_partitions([near], 24, 24, 96) == 48


def settled_median(made) -> float:
    lasted = [each.duration for each in made.batches]
    return float(np.median(lasted[len(lasted) // 5 :]))


@pytest.mark.parametrize(
    ("kind", "truths"),
    [
        (
            "too-many-partitions",
            [
                Truth(cores=c, partitions=16 * c, overhead=0.3, wave=w, rate=640 * c, seconds=600, sigma=s, seed=n)
                for n, (c, w, s) in enumerate(product([1, 2, 4], [0.02, 0.04], [0.05, 0.2]))
            ],
        ),
        (
            "too-few-partitions",
            [
                Truth(cores=c, partitions=p, wave=w, rate=1000 * p, swing=swing, seconds=600, sigma=0.05, seed=n)
                for n, (c, p, w, swing) in enumerate(product([4, 8], [1, 2], [0.005, 0.1], [0.0, 0.3]))
            ],
        ),
    ],
)  # fmt: skip
def test_another_number_of_tasks_gains_what_is_promised(kind, truths):
    """The same traffic again, with as many tasks as cores: the gain is in the interval in nine of ten logs."""
    told = inside = 0
    for truth in truths:
        effects = [each.effect for each in advise(history_of([truth])).findings if each.kind == kind]
        for effect in effects:
            fewer = replace(truth, partitions=truth.cores)
            gained = settled_median(run(truth)[0]) - settled_median(run(fewer)[0])
            told += 1
            inside += effect.low <= gained <= effect.high
    assert told >= len(truths) / 2
    assert inside >= 0.9 * told


def test_equal_batches_do_not_tell_what_a_task_costs_without_records():
    """Nearly all of each task is its records: fewer tasks gain nothing."""
    full = Truth(cores=1, partitions=16, wave=0.005, per_record=1e-4, rate=800, swing=0.0, sigma=0.05)
    assert [each.kind for each in advise(history_of([full])).findings] == []
