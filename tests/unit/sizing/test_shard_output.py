"""The 2 MiB/s of a shard's output are shared by its readers, in plan, catch-up and simulator."""

from __future__ import annotations

import pytest

from millrace.config import ConfigurationError, Environment
from millrace.config.aws.resource_names import Names
from millrace.infra.launch.launch_settings import job_settings
from millrace.sizing import plan
from millrace.sizing.simulation import Arrivals, Outage, simulate
from millrace.sizing.simulation.plan_scenario import scenario_of_job
from tests.unit.sizing.conftest import Loader, text

TWO_MORE = "".join(
    f"""\
      {name}:
        kind: land
        source: clicks
        table: clicks_{name}
        schema: pipelines/clicks/schemas/click.ddl
"""
    for name in ("second", "third")
)


def of(from_text: Loader, rate: int, size: str, shards: int | None = None, **more: str) -> Environment:
    """One or several readers whose cores are no bound: 100,000 records/s each."""
    stream = "mode: provisioned" if shards is None else f"shards: {shards}"
    given = {"sla": "60s", "overhead": "0.001s", "per_core": "100000", **more}
    return from_text(text(rate=str(rate), size=size, stream=stream, **given))


def drained(environment: Environment, rate: float, away: float) -> tuple[float, float]:
    """Seconds that the job was away, and that it took until no batch found more than usual, as simulated."""
    begin, seconds = 300.0, 5_000.0
    played = scenario_of_job(
        environment,
        plan(environment),
        "clicks",
        {"clicks": Arrivals.constant(rate, seconds)},
        fixed=True,
        outages=[Outage(begin, away)],
        sigma=0.0,
    )
    found = simulate(played).queries["land"]
    usual = max(found.backlog[found.starts < begin])
    whole = away + played.driver_start
    return whole, max(found.starts[found.backlog > 1.01 * usual]) - begin - whole


def test_one_shard_catches_up_at_its_way_out(from_text: Loader) -> None:
    environment = of(from_text, 990, "1KiB")
    query = plan(environment).jobs["clicks"].queries["land"]
    assert query.catch_up_seconds is not None
    assert query.catch_up_seconds.value == pytest.approx(990 * 600 / (2048 - 990), abs=0.1)  # 561 s
    assert "as much as its shards hand over" in query.catch_up_seconds.why
    away, took = drained(environment, 990, 600)
    assert took == pytest.approx(990 * away / (2048 - 990), rel=0.1)


def test_nothing_is_read_during_a_fixed_cost(from_text: Loader) -> None:
    """Full batches of 30 s, of which 2 s are planning, hand over 28 s of a shard's way out: in plan and simulator."""
    environment = of(from_text, 990, "1KiB", overhead="2s")
    query = plan(environment).jobs["clicks"].queries["land"]
    assert query.records_per_batch is not None
    assert query.records_per_batch.value == 28 * 2048
    assert query.catch_up_seconds is not None
    assert query.catch_up_seconds.value == pytest.approx(990 * 600 / (28 * 2048 / 30 - 990), abs=0.1)  # 644 s
    away, took = drained(environment, 990, 600)
    assert took == pytest.approx(990 * away / (28 * 2048 / 30 - 990), rel=0.1)


def test_a_task_may_read_as_long_as_a_shard_takes_to_hand_its_limit_over(from_text: Loader) -> None:
    """Half of a trigger is enough where cores bind; a full batch of what shards hand over takes nearly all of it."""
    for size, per_core, wanted in (("1KiB", "100000", 28.0), ("10B", "2000", 15.0)):
        environment = of(from_text, 990, size, overhead="2s", per_core=per_core)
        settings = job_settings(
            environment, plan(environment).jobs["clicks"], Names(environment, "111122223333")
        )
        assert settings.queries[0].routes[0].source.fetch_seconds == pytest.approx(wanted, abs=0.1), size


def test_a_core_reads_one_shard_at_a_time(from_text: Loader) -> None:
    """3,000 records/s of 2 KiB in 6 shards: one core, in six waves, would read 1,024 a second."""
    found = plan(of(from_text, 3_000, "2KiB")).jobs["clicks"]
    assert found.cores.value == 3
    assert "a core one shard at a time" in found.cores.why
    with pytest.raises(ConfigurationError, match="at least 3"):
        plan(of(from_text, 3_000, "2KiB", 6, job="cores: 2"))


def test_large_records_need_a_core_for_every_two_shards(from_text: Loader) -> None:
    environment = of(from_text, 100, "1000KiB")
    found = plan(environment)
    shards = found.streams["clicks"].expected_partitions.value
    # 98 shards hand 98 MiB/s to 49 cores, and 97.7 arrive: a backlog would take two days.
    assert (shards, found.jobs["clicks"].cores.value) == (99, 50)
    played = scenario_of_job(
        environment, found, "clicks", {"clicks": Arrivals.constant(100, 3600)}, fixed=True, sigma=0.0
    )
    assert simulate(played).queries["land"].ages.oldest <= 60


def test_readers_share_a_shards_way_out(from_text: Loader) -> None:
    environment = of(from_text, 4_000, "1KiB", 8, more=TWO_MORE, overhead="1s")
    query = plan(environment).jobs["clicks"].queries["land"]
    assert query.catch_up_seconds is not None
    assert query.catch_up_seconds.value == pytest.approx(
        4_000 * 600 / (8 * 2048 / 3 - 4_000), abs=0.1
    )  # 1,642 s, whatever a batch's fixed cost: others read meanwhile


def test_shards_that_hand_over_less_than_arrives_are_refused(from_text: Loader) -> None:
    with pytest.raises(ConfigurationError, match="at least 6"):
        plan(of(from_text, 4_000, "1KiB", 5, more=TWO_MORE))


def test_fan_out_is_a_hint_where_readers_share_shards(from_text: Loader) -> None:
    four = TWO_MORE + TWO_MORE.replace("second", "fourth").replace("third", "fifth")
    # Five begin their batches together on one driver.
    for more, overhead in (("", "4.5s"), (four, "2.5s")):
        given = text(
            rate="2000",
            size="1KiB",
            stream="mode: on-demand",
            sla="10s",
            overhead=overhead,
            per_core="500",
            more=more,
        )
        with pytest.raises(ConfigurationError, match="provisioned with at least") as refused:
            plan(from_text(given))
        assert ("`fan_out: true`" in str(refused.value)) == bool(more), str(refused.value)


def test_the_simulator_falls_behind_where_shards_do(from_text: Loader) -> None:
    """The four cores of an executor read two shards at once: as much as both hand over, and twice as much arrives."""
    environment = of(from_text, 1_000, "1KiB", 2)
    played = scenario_of_job(
        environment,
        plan(environment),
        "clicks",
        {"clicks": Arrivals.constant(8_192, 600)},
        fixed=True,
        sigma=0.0,
    )
    found = simulate(played).queries["land"]
    assert found.waiting == pytest.approx(600 * (8_192 - 4_096), rel=0.1)


def test_pinned_shards_name_as_many_as_are_not_refused(from_text: Loader) -> None:
    """It said what the traffic needs without the fixed cost of batches, and refused that number."""
    more = {"sla": "5m", "overhead": "4s", "job": "catch_up: {outage: 4h, within: 2h}"}
    shards = plan(of(from_text, 30_000, "4KiB", 189, **more)).streams["clicks"].expected_partitions
    least = int(shards.why.split("the traffic needs ")[1].split(":")[0])
    plan(of(from_text, 30_000, "4KiB", least, **more))
    with pytest.raises(ConfigurationError, match=f"at least {least}"):
        plan(of(from_text, 30_000, "4KiB", least - 1, **more))
