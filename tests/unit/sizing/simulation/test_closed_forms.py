"""The simulator agrees with closed forms of the sizing model."""

from __future__ import annotations

import math

import numpy as np
import pytest

from millrace.sizing.queries.partition_tasks import EqualTasks, divide_stream, schedule_seconds
from millrace.sizing.simulation import (
    Arrivals,
    DynamicAllocation,
    FixedExecutors,
    GlueAutoScaling,
    JobResult,
    Outage,
    QueryLoad,
    QueryResult,
    Reshard,
    Scenario,
    simulate,
)

HOUR = 3600.0


def land(arrivals: Arrivals, **changes: object) -> QueryLoad:
    asked: dict[str, object] = {
        "name": "land",
        "overhead": 2.0,
        "per_record": 1e-3,
        "trigger": 0.0,
        "source": arrivals,
        "parts": divide_stream(16),
    }
    return QueryLoad(**{**asked, **changes})  # type: ignore[arg-type]


def run(load: QueryLoad, executors: int = 4, seconds: float = HOUR, **changes: object) -> QueryResult:
    scenario = Scenario(seconds, (load,), 4, FixedExecutors(executors), **changes)  # type: ignore[arg-type]
    return simulate(scenario).queries["land"]


@pytest.mark.parametrize("rate", [800, 4000, 8000, 12_000])
def test_back_to_back_durations_settle(rate: float) -> None:
    """D* = a / (1 - rho)."""
    found = run(land(Arrivals.constant(rate, HOUR)))
    settled = 2.0 / (1 - rate * 1e-3 / 16)
    assert found.ends[-1] - found.starts[-1] == pytest.approx(settled, rel=1e-6)
    assert found.oldest_age_by_batch[-1] == pytest.approx(2 * settled, rel=1e-6), "worst age is two batches"
    assert found.ages.oldest == pytest.approx(2 * settled, rel=1e-6)


def test_ages_back_to_back_are_between_one_batch_and_two() -> None:
    """A record that arrives at any moment of a batch waits for its end, then for the next: uniform over D to 2D."""
    found = run(land(Arrivals.constant(8000, HOUR)))
    assert found.ages.percentile(50) == pytest.approx(6.0, rel=0.01)
    assert found.ages.percentile(95) == pytest.approx(7.8, rel=0.01)
    assert found.ages.mean == pytest.approx(6.0, rel=0.01)
    assert found.ages.share_within(7.0) == pytest.approx(0.75, abs=0.01)


@pytest.mark.parametrize("trigger", [10.0, 30.0, 60.0])
def test_worst_age_with_a_trigger_is_trigger_and_batch(trigger: float) -> None:
    rate = 8000.0
    found = run(land(Arrivals.constant(rate, HOUR), trigger=trigger))
    duration = 2.0 + rate * trigger * 1e-3 / 16
    assert duration < trigger
    assert found.ends[-1] - found.starts[-1] == pytest.approx(duration, rel=1e-6)
    assert found.ages.oldest == pytest.approx(trigger + duration, rel=1e-6)
    assert found.ages.percentile(50) == pytest.approx(trigger / 2 + duration, rel=0.01)


def test_a_limit_makes_the_capacity() -> None:
    """mu(L) = L / max(T, D(L)): more arrives, so that much is committed and the rest waits."""
    limit = 40_000.0
    found = run(land(Arrivals.constant(12_000, HOUR), limit=limit))
    capacity = limit / (2.0 + limit * 1e-3 / 16)
    assert capacity < 12_000
    assert found.committed / found.ends[-1] == pytest.approx(capacity, rel=0.01)
    assert found.waiting == pytest.approx((12_000 - capacity) * HOUR, rel=0.02)


@pytest.mark.parametrize(("rate", "outage"), [(4000.0, 600.0), (8000.0, 300.0), (10_000.0, 120.0)])
def test_the_backlog_of_an_outage_drains_as_the_model_says(rate: float, outage: float) -> None:
    """lambda R / (mu - lambda), within a twentieth and a batch."""
    limit = 192_000.0
    found = run(
        land(Arrivals.constant(rate, 4 * HOUR), limit=limit),
        seconds=4 * HOUR,
        outages=(Outage(HOUR, outage),),
    )
    capacity = limit / (2.0 + limit * 1e-3 / 16)
    expected = rate * outage / (capacity - rate)
    after = found.starts > HOUR
    full = found.ends[after & (found.records >= limit * 0.999)]
    drained = full[-1] - (HOUR + outage)
    assert drained == pytest.approx(expected, rel=0.05, abs=2 * limit / capacity)


def test_outages_that_overlap_are_one() -> None:
    """From the first one's beginning to the last one's end, with one start of the driver after it."""
    load = land(Arrivals.constant(4000.0, HOUR))
    given = tuple(Outage(at, length) for at, length in ((151.7, 39.5), (101.8, 41.6), (110.4, 14.1)))
    apart = (Outage(101.8, 41.6), Outage(151.7, 39.5))
    for driver_start, same in ((0.0, apart), (10.0, (Outage(101.8, 151.7 + 39.5 - 101.8),))):
        found, wanted = (
            simulate(
                Scenario(HOUR, (load,), 4, FixedExecutors(3), 0.5, outages=outages, driver_start=driver_start)
            )
            for outages in (given, same)
        )
        assert found.queries[load.name].ends.tolist() == wanted.queries[load.name].ends.tolist()
        assert found.usd == wanted.usd
    # One that begins as the job is back.
    follows = (Outage(100.0, 50.0), Outage(150.0, 50.0))
    away = run(load, outages=follows)
    assert not ((away.ends > 100.0) & (away.ends < 200.0)).any()


def test_waves() -> None:
    """Nine partitions on eight cores take two waves, nearly twice as long as eight."""
    eight = schedule_seconds([EqualTasks(1.0 / 8, 8)], 8)
    nine = schedule_seconds([EqualTasks(1.0 / 9, 9)], 8)
    assert (eight, nine) == (0.125, pytest.approx(2 / 9))
    for partitions in range(1, 40):
        for cores in range(1, 20):
            assert schedule_seconds([EqualTasks(1.0, partitions)], cores) == math.ceil(partitions / cores)


def test_a_wave_costs_its_share() -> None:
    arrivals = Arrivals.constant(8000, HOUR)
    found = run(land(arrivals, trigger=30.0, wave=0.5, parts=divide_stream(32)))
    assert found.ends[-1] - found.starts[-1] == pytest.approx(2.0 + 2 * (0.5 + 240_000 / 32 * 1e-3))


def test_a_hot_partition_is_the_batch() -> None:
    arrivals = Arrivals.constant(3000, HOUR)
    found = run(land(arrivals, trigger=30.0, parts=divide_stream(16, 4.0)))
    assert found.ends[-1] - found.starts[-1] == pytest.approx(2.0 + 90_000 * 4 / 16 * 1e-3)


def test_a_limit_for_each_shard_lets_the_hot_one_fall_behind() -> None:
    load = land(
        Arrivals.constant(4000, HOUR), trigger=30.0, parts=divide_stream(16, 4.0), limit_per_part=10_000.0
    )
    found = run(load)
    # The hot shard gets 1,000 records/s and gives 10,000 in 30 s, the others keep up.
    assert found.waiting == pytest.approx(HOUR * (1000 - 10_000 / 30), abs=4000 * 31)
    assert found.ages.oldest > 1000


def test_more_partitions_than_cores_after_a_repartition() -> None:
    load = land(Arrivals.constant(2000, HOUR), trigger=30.0, parts=divide_stream(1), repartition=16)
    found = run(load)
    assert found.ends[-1] - found.starts[-1] == pytest.approx(2.0 + 60_000 * 1.1 / 16 * 1e-3)


def test_a_derived_record_passes_two_triggers() -> None:
    """The ages add: landed by one query, then derived by another with a trigger of its own."""
    source = land(Arrivals.constant(4000, HOUR), trigger=20.0)
    derive = QueryLoad("derive", 1.0, 1e-3, 20.0, "land", tasks=16)
    both = Scenario(HOUR, (land(Arrivals.constant(4000, HOUR), trigger=20.0), derive), 4, FixedExecutors(8))
    found = simulate(both).queries
    alone = run(source)
    assert found["land"].ages.oldest == pytest.approx(alone.ages.oldest, rel=1e-6)
    landed = 2.0 + 80_000 / 16 * 1e-3
    derived = 1.0 + 80_000 / 16 * 1e-3
    assert found["derive"].ages.oldest == pytest.approx(2 * 20.0 + derived, rel=1e-6), (
        "lands at 7 s, read at 20 s"
    )
    assert landed < 20
    assert found["derive"].committed <= found["land"].committed


def test_a_reshard_is_followed_and_nothing_is_lost() -> None:
    arrivals = Arrivals.constant(2000, HOUR)
    load = land(arrivals, trigger=10.0, parts=divide_stream(4), limit_per_part=25_000.0)
    found = run(load, seconds=HOUR, reshards=(("land", Reshard(1800.0, divide_stream(16))),))
    assert found.committed + found.waiting == pytest.approx(found.arrived)
    before = found.ends[found.starts < 1790] - found.starts[found.starts < 1790]
    after = found.ends[found.starts > 1900] - found.starts[found.starts > 1900]
    assert before.max() == pytest.approx(2.0 + 20_000 / 4 * 1e-3), "four tasks on sixteen cores"
    assert after[-1] == pytest.approx(2.0 + 20_000 / 16 * 1e-3)


def spiky(scaling: object, seconds: float = 4 * HOUR, limit: float | None = 250_000) -> JobResult:
    load = land(
        Arrivals.spikes(100, 10_000, 1800, seconds),
        trigger=20.0,
        per_record=2e-3,
        parts=divide_stream(64),
        overhead=1.0,
        limit=limit,
    )
    return simulate(Scenario(seconds, (load,), 4, scaling, 1.0))  # type: ignore[arg-type]


def test_glue_grows_in_a_spike_and_shrinks_after_it() -> None:
    found = spiky(GlueAutoScaling(1, 16, 1, batches=3, shrink_below=0.5, worker_start=60))
    at = found.executors_at(np.asarray([1700.0, 3500.0, 5300.0]))
    assert at[0] == 1
    assert at[1] >= 6, "10,000 records/s at 2 ms need five executors of four cores, and overhead"
    assert at[2] == 1
    fixed = spiky(FixedExecutors(16))
    assert found.usd < 0.8 * fixed.usd
    assert found.queries["land"].ages.percentile(99) > fixed.queries["land"].ages.percentile(99)
    assert found.queries["land"].waiting < 10_000 * 60


def test_glue_shrinks_without_any_record_as_with_a_few() -> None:
    """No batch told it that there is nothing to do: four executors stayed for no record, and one for a few."""
    glue = GlueAutoScaling(1, 4, 4, batches=3, shrink_below=0.5, worker_start=60)
    usd = []
    for rate in (0.0, 0.001, 1.0):
        load = land(Arrivals.constant(rate, HOUR), trigger=30.0, overhead=1.0)
        usd.append(simulate(Scenario(HOUR, (load,), 4, glue, 1.0)).usd)
    assert usd == sorted(usd)
    assert usd[0] == pytest.approx(usd[1], rel=0.02)


def test_dynamic_allocation_grows_while_tasks_wait() -> None:
    policy = DynamicAllocation(1, 16, 1, 1.0, 1, 1, 60, 300, worker_start=45)
    found = spiky(policy)
    assert found.executors.max() == 16
    assert found.executors[0] == 1


def test_dynamic_allocation_keeps_executors_that_each_batch_uses() -> None:
    """64 tasks every 20 s reach each of 16 executors: none idles for a minute, so none ever goes."""
    policy = DynamicAllocation(1, 16, 16, 0.7, 1, 1, 60, 300, worker_start=45)
    assert set(spiky(policy).executors.tolist()) == {16}


def test_idle_executors_go_after_their_timeout() -> None:
    load = land(Arrivals.constant(10, HOUR), trigger=300.0, parts=divide_stream(4))
    policy = DynamicAllocation(1, 8, 8, 0.7, 1, 1, 60, 300, worker_start=45)
    found = simulate(Scenario(HOUR, (load,), 4, policy, 1.0))
    assert found.executors_at(np.asarray([330.0, 370.0, 550.0])).tolist() == [8, 1, 1]


def test_what_is_billed() -> None:
    load = land(Arrivals.constant(100, HOUR), trigger=10.0)
    found = simulate(Scenario(HOUR, (load,), 4, FixedExecutors(3), 0.5))
    assert found.usd == pytest.approx(4 * 0.5)
    assert found.dollars_spent_until(np.asarray([1800.0, 3600.0])).tolist() == pytest.approx([1.0, 2.0])
    away = simulate(Scenario(HOUR, (load,), 4, FixedExecutors(3), 0.5, outages=(Outage(0.0, 1800.0),)))
    assert away.usd == pytest.approx(4 * 0.5 / 2, rel=0.05)
