"""Formulas of the sizing model agree with known answers and with each other."""

import math
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from millrace.config.engines.emr import EMR_MEMORY_GIB
from millrace.config.engines.glue import glue_tasks_per_worker, glue_workers
from millrace.sizing.queries.partition_tasks import EqualPartitions, SourcePartitions
from millrace.sizing.queries.sizing_formulas import (
    CoreSpread,
    InfeasibleError,
    QueryWork,
    choose_core_spread,
    cores_needed,
    fewest_partitions_for_busy_cores,
    least_limit_to_keep_up,
    limit_per_partition,
    spread_over_cores_or_none,
    whole_cores,
)

OVERHEAD = 0.1
EQUAL = SourcePartitions.of_equal


@pytest.mark.parametrize(
    ("version", "worker", "vcpu", "tasks"),
    [
        ("1.0", "G.1X", 4, 8),
        ("2.0", "G.1X", 4, 8),
        ("2.0", "G.2X", 8, 16),
        ("3.0", "G.025X", 2, 2),
        ("3.0", "G.1X", 4, 4),
        ("4.0", "G.2X", 8, 8),
        ("5.1", "G.1X", 4, 4),
        ("5.1", "G.4X", 16, 16),
        ("5.1", "G.8X", 32, 32),
        ("6.0", "G.16X", 64, 64),
        ("5.1", "R.2X", 8, 8),
    ],
)
def test_tasks_of_a_worker(version: str, worker: str, vcpu: int, tasks: int) -> None:
    assert glue_workers(version)[worker].vcpu == vcpu
    assert glue_tasks_per_worker(version, worker) == tasks


def test_versions_lack_worker_types() -> None:
    assert "G.025X" not in glue_workers("2.0")
    assert "R.1X" not in glue_workers("3.0")
    assert "R.1X" in glue_workers("5.1")


def test_emr_steps() -> None:
    assert EMR_MEMORY_GIB[8] == (16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60)
    assert EMR_MEMORY_GIB[16][-1] == 120


def test_cores_have_the_denominator() -> None:
    assert cores_needed(QueryWork(10_000, 1 / 1000, overhead=2, sla=16)) == pytest.approx(
        10 / (1 - 2 * 2 / 16)
    )


def test_equality_is_not_enough() -> None:
    work = QueryWork(24_000, 1 / 1000, overhead=2, sla=16)
    assert cores_needed(work) == 32
    assert whole_cores(32.0) == 33, "at 32 the capacity is the load and no backlog drains"


@pytest.mark.parametrize(
    ("sla", "trigger", "term", "least"),
    [
        (4, None, "overhead", 2),
        (3, 1, "overhead", 2),
        (10, 8.5, "trigger", 2),
        (5.9, None, "record", 3),
        (10, 7.5, "trigger", 3),
    ],
)
def test_infeasible_names_its_term(sla: float, trigger: float | None, term: str, least: float) -> None:
    with pytest.raises(InfeasibleError) as caught:
        cores_needed(QueryWork(1, 1, overhead=2, sla=sla, trigger=trigger))
    assert (caught.value.term, caught.value.seconds) == (term, least)
    assert cores_needed(QueryWork(1, 1, overhead=2, sla=6)) == 3, "a record of a second, a second for it"


def test_nine_partitions_on_eight_cores_take_two_waves() -> None:
    assert EQUAL(9).effective_cores(8) == 4.5
    assert EQUAL(8).effective_cores(8) == 8


def test_one_foreign_shard_and_eight_cores() -> None:
    found = choose_core_spread(EQUAL(1), 7.0, OVERHEAD)
    assert (found.cores, found.repartition) == (8, 8)
    assert found.effective == pytest.approx(8 / 1.1)


def test_shards_that_stay_are_read_in_waves_where_that_saves_cores() -> None:
    assert choose_core_spread(EQUAL(8), 3.9, OVERHEAD).cores == 4
    assert choose_core_spread(EQUAL(8), 3.9, OVERHEAD).repartition is None
    assert choose_core_spread(EQUAL(7), 3.6, OVERHEAD).repartition == 4, (
        "7 cores for one wave, 4 with a repartition"
    )


def test_unequal_partitions_do_not_fill_waves_of_the_fullest() -> None:
    """20 tasks of 6 s and 11 of 13 s on 10 cores: as 20 like the fullest they would take 26 s, and take 31."""
    whole = 20 * 6 + 11 * 13
    parts = EqualPartitions(6 / whole, 20), EqualPartitions(13 / whole, 11)
    found = SourcePartitions(20, whole / 13, unequal=parts)
    assert whole / found.effective_cores(10) == pytest.approx(31)
    assert whole / found.all_at_once == pytest.approx(13)


LOADS = st.floats(0.01, 500)
COUNTS = st.integers(1, 600)


@st.composite
def unequal_partitions(draw: st.DrawFn) -> SourcePartitions:
    """Partitions of two or three streams of which each partition has another share of the records."""
    streams = draw(st.lists(st.tuples(st.floats(0.1, 10), st.integers(1, 60)), min_size=2, max_size=3))
    whole = sum(size * number for size, number in streams)
    parts = tuple(EqualPartitions(size / whole, number) for size, number in streams)
    like_the_fullest = 1 / max(each.share for each in parts)
    return SourcePartitions(math.floor(like_the_fullest + 1e-9), like_the_fullest, unequal=parts)


SOURCES = (
    st.builds(lambda number, steady: EQUAL(number)._replace(steady=steady), COUNTS, st.booleans())
    | unequal_partitions()
)


@given(source=SOURCES, above=st.floats(0.01, 100))
def test_the_fewest_busy_cores_are_those_of_a_search(source: SourcePartitions, above: float) -> None:
    assume(above < source.all_at_once)
    searched = next(each for each in range(1, source.tasks + 1) if source.effective_cores(each) > above)
    assert source.fewest_cores_with_busy(above) == searched


@given(needed=LOADS, source=SOURCES)
def test_a_spread_always_carries_the_load(needed: float, source: SourcePartitions) -> None:
    found = choose_core_spread(source, needed, OVERHEAD)
    assert found.effective > needed
    assert found.effective <= found.cores
    if found.repartition is None and found.cores > 1:
        assert source.tasks >= found.cores


@given(needed=LOADS, more=LOADS, source=SOURCES)
def test_more_work_never_takes_fewer_cores(needed: float, more: float, source: SourcePartitions) -> None:
    before = choose_core_spread(source, needed, OVERHEAD)
    assert choose_core_spread(source, needed + more, OVERHEAD).cores >= before.cores


@given(needed=LOADS, at_least=COUNTS)
def test_own_partitions_suit_the_cores(needed: float, at_least: int) -> None:
    cores = whole_cores(needed)
    found = fewest_partitions_for_busy_cores(cores, needed, at_least)
    assert found >= max(cores, at_least)
    assert EQUAL(found).effective_cores(cores) > needed
    assert found <= cores * math.ceil(max(cores, at_least) / cores), "never beyond the next multiple"


@given(partitions=COUNTS, cores=st.integers(1, 300), needed=LOADS)
def test_given_cores_fit_or_are_refused(partitions: int, cores: int, needed: float) -> None:
    found = spread_over_cores_or_none(EQUAL(partitions), cores, needed, OVERHEAD)
    if found is not None:
        assert found.cores == cores
        assert needed < found.effective <= cores
    else:
        assert max(
            EQUAL(partitions).effective_cores(cores) if partitions >= cores else 0, cores / 1.1
        ) <= max(needed, 1)


WORKS = st.builds(
    QueryWork,
    rate=st.floats(1, 200_000),
    per_record=st.floats(1e-6, 1e-2),
    overhead=st.floats(0.05, 5),
    sla=st.floats(1, 600),
    trigger=st.none() | st.floats(0.1, 60),
)


@given(work=WORKS, shards=st.integers(1, 100), full=st.floats(0, 0.999), waves=st.integers(1, 3))
@example(work=QueryWork(1.0, 0.0078125, 1.0, 8.0, 6.0), shards=1, full=0.5, waves=2)
@example(
    work=QueryWork(1.0, 0.0078125, 1.0, 2.015625), shards=1, full=0.0, waves=1
)  # half has no whole milliseconds
def test_the_range_of_the_limit_is_never_empty(work: QueryWork, shards: int, full: float, waves: int) -> None:
    """Whatever share of what its shards hand over is full, where they must hand over between fixed costs or all the time."""
    try:
        needed = cores_needed(work)
    except InfeasibleError:
        assume(False)
    cores = whole_cores(needed)
    assume(cores - needed > 1e-6)  # nearer than floats can tell
    # A pinned trigger above the longest batch brings more than that has time for.
    pinned = max(1.0, work.most_arrival_seconds / work.longest_batch_seconds)
    least = work.rate * (work.overhead_factor if waves == 1 else pinned)
    work = replace(work, hand_over=full * shards / least)
    spread_ = CoreSpread(cores, float(cores), None, float(shards), waves)
    most = spread_.records_of_largest_batch(work, work.longest_batch_seconds)
    assert least_limit_to_keep_up(work, spread_) < most
    duration = spread_.batch_seconds(work, most)
    assert duration <= work.longest_batch_seconds * (1 + 1e-9)
    assert work.planned_trigger_seconds + duration <= work.sla * (1 + 1e-9), (
        "waiting and working stay within the SLA"
    )
    keeps_up = spread_.batch_seconds(work, work.rate * work.planned_trigger_seconds)
    assert keeps_up <= work.longest_batch_seconds * (1 + 1e-9)


@given(limit=st.integers(1, 10**7), partitions=COUNTS, share=st.floats(0, 0.999))
def test_the_limit_of_a_shard_keeps_up_and_is_never_zero(limit: int, partitions: int, share: float) -> None:
    above = limit * share
    found = limit_per_partition(limit, partitions, above)
    assert found >= 1
    assert found * partitions > above
    assert found * partitions < limit + partitions + 1
