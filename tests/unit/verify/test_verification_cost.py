"""What a verification costs, from what ran."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.sizing import plan
from millrace.sizing.prices_and_limits import price_table_of_region
from millrace.verify import aws_target, sandbox_target
from millrace.verify.environment_copy import VerificationSettings
from millrace.verify.expected_and_actual_cost import (
    BilledRun,
    VerificationUsage,
    billed_quantities,
    cost_items,
    put_units,
)
from millrace.verify.run import estimate_time_and_usage
from millrace.verify.scenario import order_disturbances
from tests.unit.verify.conftest import Make

TABLE = price_table_of_region("us-east-1")


def test_every_item_is_its_quantity_times_its_price(make: Make) -> None:
    copy = make("dev", without_kafka=True)
    sized = plan(copy.environment)
    glue, emr = copy.environment.jobs["glue"], copy.environment.jobs["emr"]
    runs = (
        BilledRun("glue", "1", 600, {"glue.dpu_hour": 0.4}, counted=True),
        BilledRun("glue", "2", 300, {"glue.dpu_hour": 0.1}, counted=True),
        BilledRun("emr", "1", 1800, billed_quantities(emr, 2, 1800)),
    )
    usage = VerificationUsage(
        runs, shard_seconds=2 * 3600, put_units=3_000_000, objects=4000, deployed_seconds=3600
    )
    items = {line.name: line for line in cost_items(copy.environment, sized, usage)}
    assert items["glue DPU"].usd == pytest.approx(0.5 * 0.44)
    assert "as the engine counted" in items["glue DPU"].why
    # Two workers of 2 vCPU and 8 GiB for half an hour.
    assert items["emr VCPU"].usd == pytest.approx(2 * TABLE.usd("emr.x86_64.vcpu_hour"))
    assert items["emr GiB"].usd == pytest.approx(8 * TABLE.usd("emr.x86_64.gib_hour"))
    assert items["shards"].usd == pytest.approx(2 * 0.015)
    assert items["puts"].usd == pytest.approx(3 * 0.014)
    assert items["S3 requests"].usd == pytest.approx(4 * 0.005)
    # An hour of a month of 730.
    for line in sized.shared:
        assert items[line.name].usd == pytest.approx(line.usd / 730)
    assert billed_quantities(glue, 3, 10) == pytest.approx({"glue.dpu_hour": 3 / 60}), (
        "a minute at least is billed"
    )


def test_nothing_that_was_not_made_is_billed(make: Make) -> None:
    copy = make("minimal")
    usage = VerificationUsage((), 0.0, 0, 0, 0.0)
    assert sum(line.usd for line in cost_items(copy.environment, plan(copy.environment), usage)) == 0


@pytest.mark.parametrize("by", [aws_target.EXPECTED, sandbox_target.EXPECTED])
def test_an_estimate_grows_with_what_is_wanted(make: Make, by: object) -> None:
    copy = make("minimal")
    sized = plan(copy.environment)

    def dollars(wanted: VerificationSettings) -> tuple[float, float]:
        seconds, usage = estimate_time_and_usage(by, copy, sized, wanted)  # type: ignore[arg-type]  # of both places
        return seconds, sum(line.usd for line in cost_items(copy.environment, sized, usage, expected=True))

    small, killed = (
        dollars(VerificationSettings(100, kills=1, reshards=0)),
        dollars(VerificationSettings(100, kills=9, reshards=0)),
    )
    assert small < killed < dollars(VerificationSettings(500_000, kills=9, reshards=0))
    assert small[1] > 0


@pytest.mark.parametrize(
    ("size", "units"), [(0, 1), (1, 1), (25_000, 1), (25_001, 2), (50_000, 2), (1_048_576, 42)]
)
def test_a_record_is_at_least_one_put_unit(size: int, units: int) -> None:
    assert put_units(bytes(size)) == units


@given(kills=st.integers(0, 15), reshards=st.integers(0, 10))
def test_all_kills_and_reshards_have_their_turn(kills: int, reshards: int) -> None:
    result = order_disturbances(kills, reshards)
    assert (result.count("kill"), result.count("reshard")) == (kills, reshards)
    followed = [after for turn, after in itertools.pairwise(result) if turn == "reshard"]
    # Each reshard is followed by a kill at once, as long as there is one left.
    assert followed.count("kill") == min(kills, reshards)
