"""Findings on repeated reads and small files, for each single fault."""

from __future__ import annotations

import pytest

from millrace.advisor.advise import advise
from millrace.advisor.logs.application_history_model import BatchSource, InitialRdd
from tests.unit.advisor.healthy_query_history import (
    again,
    batch,
    even,
    found,
    history,
    job,
    kinds,
    stage,
    twice,
)


def test_two_actions_that_read_the_source():
    finding = found("missing-cache", twice(cached=False))
    assert "persist" in finding.best_change.new
    assert finding.effect.likely == pytest.approx(0.4)
    assert finding.dollars_a_month is None  # a shorter batch removes no machine


def test_two_actions_on_a_source_whose_offsets_count_no_records():
    def two(number, begun):
        made = twice(cached=False)(number, begun)
        return again(
            made, rows=2000, sources=(BatchSource("RateStreamV2[rowsPerSecond=500]", None, None, None, 2000),)
        )

    finding = found("missing-cache", two)
    assert finding.effect.likely == pytest.approx(0.4)
    counted = next(each for each in finding.evidence if each.name == "rows counted for each record")
    assert counted.value == 2, (
        "offsets count none, so Spark's rows are taken for the records; each reader had half"
    )


@pytest.mark.parametrize("batches", [4, 7])
def test_a_few_batches_show_what_a_program_does_in_each(batches):
    advice = advise(history(twice(cached=False), count=batches))
    assert kinds(advice) == ["missing-cache"]


@pytest.mark.parametrize(("batches", "slow"), [(3, 1), (4, 2), (5, 3), (7, 5)])
def test_a_start_up_does_not_hide_what_is_counted(batches, slow):
    """Start-up is cut for times; that a batch is read twice shows in a slow one as well."""

    def begun_slowly(number, begun):
        made = twice(cached=False)(number, begun)
        return again(made, duration=made.duration * (20 - number)) if number < slow else made

    finding = found("missing-cache", begun_slowly, count=batches)
    assert len(finding.batches) == batches


def test_two_batches_show_no_way_of_a_program():
    assert kinds(advise(history(twice(cached=False), count=2))) == []


def test_a_table_that_is_read_beside_the_source_is_no_second_read():
    def joined(number, begun):
        made = even(number, begun)
        table = stage(
            begun + 0.01, [0.02], [made.records], 9, scans=(InitialRdd("BatchScan airlines", False, 3),)
        )
        return again(made, jobs=(job(500 + number, [table]), *made.jobs))

    assert kinds(advise(history(joined))) == []


def test_two_actions_on_what_is_held():
    assert kinds(advise(history(twice(cached=True)))) == []


def test_data_that_is_held_for_one_action():
    def one(number, begun):
        held = InitialRdd("InMemoryTableScan", True, 100 + number)
        at = stage(begun + 0.05, [0.4, 0.4], [500, 500], scans=(held,))
        return batch(number, begun, [job(number, [at])])

    finding = found("needless-cache", one)
    assert finding.effect.likely == 0
    assert finding.effect.high == pytest.approx(0.4)


def test_a_reference_table_that_all_batches_share_is_not_needless():
    def table(number, begun):
        held = InitialRdd("InMemoryTableScan", True, 7)
        at = stage(begun + 0.05, [0.4, 0.4], [500, 500], scans=(InitialRdd("MicroBatchScan", False, 1), held))
        return batch(number, begun, [job(number, [at])])

    assert kinds(advise(history(table))) == []


def test_rows_that_one_plan_counts_twice():
    def union(number, begun):
        at = stage(begun + 0.05, [0.2, 0.2, 0.2, 0.2], [500, 500, 500, 500])
        return batch(number, begun, [job(number, [at])], rows=2000)

    assert found("rows-counted-twice", union, cores=4).evidence[0].value == pytest.approx(2)


def test_small_files():
    def files(number, begun):
        at = stage(begun + 0.05, [0.1] * 16, [63] * 16, bytes_written=[20_000] * 16)
        return batch(number, begun, [job(number, [at])])

    finding = found("small-files", files, cores=16)
    assert finding.best_change.new == "repartition(1)"
    assert "16 files a batch" in finding.words


def test_failed_attempts_write_no_files_and_read_no_records():
    def files(number, begun):
        at = stage(
            begun + 0.05,
            [0.1] * 4,
            [333] * 4,
            bytes_written=[20_000] * 4,
            failed=[True, False, False, False],
            index=[0, 0, 1, 2],
            partitions=3,
        )
        return batch(number, begun, [job(number, [at])], 999)

    assert "small-files" not in kinds(advise(history(files, cores=16)))

    def twice_with_a_failure(number, begun):
        failed = {"failed": [True, False, False], "index": [0, 0, 1], "partitions": 2}
        jobs = [
            job(2 * number + n, [stage(begun + at, [0.4] * 3, [300, 500, 500], n, **failed)])
            for n, at in enumerate((0.05, 0.5))
        ]
        return batch(number, begun, jobs, rows=2000)

    assert "missing-cache" in kinds(advise(history(twice_with_a_failure)))
    assert "rows-counted-twice" not in kinds(advise(history(twice_with_a_failure)))


def test_files_of_two_tables_cannot_be_one():
    def both(files, number, begun):
        first, second = (
            stage(begun + at, [0.1] * files, [500] * files, place, bytes_written=[20_000] * files)
            for place, at in enumerate((0.05, 0.2))
        )
        return batch(number, begun, [job(0, [first]), job(1, [second])])

    assert "small-files" not in kinds(advise(history(lambda number, begun: both(2, number, begun))))
    finding = found("small-files", lambda number, begun: both(4, number, begun), cores=4)
    assert "8 files a batch" in finding.words
    assert "where 2 would do" in finding.words
    assert finding.best_change.new == "repartition(1)"
