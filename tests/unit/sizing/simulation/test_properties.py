"""Invariants of every scenario: records are conserved, more cores never hurt, seeds reproduce."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.sizing.queries.partition_tasks import EqualTasks, divide_stream, schedule_seconds
from millrace.sizing.simulation import (
    Arrivals,
    DynamicAllocation,
    FixedExecutors,
    GlueAutoScaling,
    Outage,
    QueryLoad,
    Reshard,
    Scaling,
    Scenario,
    simulate,
)

SECONDS = 300.0


@st.composite
def arrivals(draw: st.DrawFn) -> Arrivals:
    rates = draw(st.lists(st.integers(0, 5000), min_size=1, max_size=6))
    made = Arrivals.of_rates(np.linspace(0, SECONDS, len(rates) + 1), rates)
    return made.poisson(draw(st.integers(0, 9)), step=10.0) if draw(st.booleans()) else made


@st.composite
def scalings(draw: st.DrawFn) -> Scaling:
    most = draw(st.integers(1, 8))
    kind = draw(st.sampled_from(["fixed", "glue", "emr"]))
    if kind == "fixed":
        return FixedExecutors(most)
    initial = draw(st.integers(1, most))
    if kind == "glue":
        return GlueAutoScaling(1, most, initial, batches=2, shrink_below=0.5, worker_start=20.0)
    return DynamicAllocation(1, most, initial, 0.7, 1.0, 1.0, 60.0, 300.0, 20.0)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    count = draw(st.integers(1, 24))
    load = QueryLoad(
        "land",
        overhead=draw(st.floats(0.5, 5)),
        per_record=draw(st.floats(1e-5, 5e-3)),
        trigger=draw(st.sampled_from([0.0, 5.0, 20.0])),
        source=draw(arrivals()),
        parts=divide_stream(count, draw(st.floats(1, count))),
        limit=draw(st.none() | st.floats(100, 1e5)),
        limit_per_part=draw(st.none() | st.floats(100, 1e5)),
        repartition=draw(st.none() | st.integers(1, 24)),
    )
    queries = (load, QueryLoad("derive", 0.5, 1e-4, 7.0, "land"))
    return Scenario(
        SECONDS,
        queries if draw(st.booleans()) else (load,),
        4,
        draw(scalings()),
        1.0,
        reshards=(("land", Reshard(100.0, divide_stream(draw(st.integers(1, 24))))),)
        if draw(st.booleans())
        else (),
        outages=tuple(
            Outage(draw(st.floats(0, 290)), draw(st.floats(1, 100))) for _ in range(draw(st.integers(0, 3)))
        ),
        sigma=draw(st.sampled_from([0.0, 0.3])),
        seed=draw(st.integers(0, 99)),
    )


@settings(max_examples=30)
@given(scenario=scenarios())
def test_records_are_conserved_and_every_seed_reproduces(scenario: Scenario) -> None:
    found, again = simulate(scenario), simulate(scenario)
    assert found.usd == again.usd
    for name, query in found.queries.items():
        assert query.committed + query.waiting == pytest.approx(query.arrived, abs=1e-3, rel=1e-9)
        assert query.records.sum() == pytest.approx(query.committed, abs=1e-3, rel=1e-9)
        assert query.ages.records.sum() == pytest.approx(query.committed, abs=1e-3, rel=1e-9)
        assert np.all(query.ages.low > 0), "nothing is committed before it arrives"
        assert np.all(query.ends >= query.starts)
        assert np.all(query.starts[1:] >= query.ends[:-1] - 1e-9), "one batch at a time"
        assert np.array_equal(query.ends, again.queries[name].ends)
        assert np.array_equal(query.ages.low, again.queries[name].ages.low)
    policy = scenario.scaling
    assert found.executors.max() <= policy.most
    assert found.executors.min() >= 0
    assert found.usd >= 0


@settings(max_examples=30)
@given(
    source=arrivals(),
    count=st.integers(1, 24),
    trigger=st.sampled_from([0.0, 5.0, 20.0]),
    per_record=st.floats(1e-5, 5e-3),
    executors=st.integers(1, 6),
    more=st.integers(1, 6),
)
def test_more_cores_never_give_older_records(
    source: Arrivals, count: int, trigger: float, per_record: float, executors: int, more: int
) -> None:
    load = QueryLoad("land", 1.0, per_record, trigger, source, divide_stream(count))
    # Long enough for both to take everything, even on one core: who is slower must not look younger by what it left.
    seconds = SECONDS + 2 * (source.records * per_record + 50)
    few, many = (
        simulate(Scenario(seconds, (load,), 4, FixedExecutors(number))).queries["land"]
        for number in (executors, executors + more)
    )
    assert few.waiting < 1e-3
    assert many.waiting < 1e-3
    if few.committed:
        slack = max(trigger, 1.0) + 1.0  # batches fall otherwise: by one trigger and one overhead at most
        assert many.ages.mean <= few.ages.mean + slack
        assert many.ages.oldest <= few.ages.oldest + slack


@given(
    sizes=st.lists(st.tuples(st.floats(0.01, 10), st.integers(1, 30)), min_size=1, max_size=4),
    cores=st.integers(1, 40),
)
def test_a_schedule_is_within_its_bounds(sizes: list[tuple[float, int]], cores: int) -> None:
    tasks = [EqualTasks(seconds, count) for seconds, count in sizes]
    work = sum(each.seconds * each.count for each in tasks)
    longest = max(each.seconds for each in tasks)
    found = schedule_seconds(tasks, cores)
    assert found >= max(work / cores, longest) * (1 - 1e-9)
    assert found <= work / cores + longest * (1 + 1e-9), "list scheduling (Graham)"
    assert schedule_seconds(tasks, cores + 1) <= found * (1 + 1e-9) + longest


@given(source=arrivals(), count=st.floats(0, 1))
def test_a_moment_and_a_count_are_each_others_inverse(source: Arrivals, count: float) -> None:
    wanted = count * source.records
    if source.records and wanted > 0:
        assert source.arrived_before(source.arrival_time(wanted)) == pytest.approx(wanted, rel=1e-6, abs=1e-6)


def test_chance_has_the_seeds_mean() -> None:
    made = Arrivals.constant(100, 10_000).poisson(7)
    assert made.records == pytest.approx(1_000_000, rel=0.005)
    assert made.records == Arrivals.constant(100, 10_000).poisson(7).records
    assert made.records != Arrivals.constant(100, 10_000).poisson(8).records


def test_a_sum_has_both() -> None:
    both = Arrivals.constant(5, 100).plus(Arrivals.spikes(0, 10, 10, 50))
    assert both.records == pytest.approx(500 + 200)
    assert both.scaled(2).arrived_before(50) == pytest.approx(2 * (250 + 200))
