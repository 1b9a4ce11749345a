"""Simulations from logs with known costs agree with the runs under other conditions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from millrace.advisor.forecasts.what_if import ApplicationTwin, parse_what_if_changes, twin_of_application
from millrace.advisor.logs.query_observations import observed_batch_limit
from millrace.config import ConfigurationError
from tests.unit.advisor.event_logs_with_known_costs import Truth, history, run

CALM = Truth(swing=0.4, seed=1)
SKEWED = Truth(hot=0.4, seed=2)
FULL = Truth(swing=0.0, trigger=0.0, limit=3000, rate=6000.0, seconds=200.0, seed=3)

FALLS_BEHIND = {(CALM, "limit=2000"), (FULL, "cores=4")}


@pytest.fixture(scope="module")
def twins() -> dict[Truth, ApplicationTwin]:
    return {truth: twin_of_application(history([truth]), 0.44) for truth in (CALM, SKEWED, FULL)}


def test_costs_come_out_as_they_are(twins):
    found = twins[CALM].queries["land"]
    costs = found.fit_batch_durations(found.cores)
    assert (found.cores, found.partitions, found.trigger, found.limit, found.reads) == (2, 8, 10.0, None, 1)
    assert costs.overhead == pytest.approx(CALM.overhead, rel=0.03)
    assert costs.per_record == pytest.approx(CALM.per_record, rel=0.1)
    assert costs.wave == pytest.approx(CALM.wave, abs=0.01)
    assert found.sigma == pytest.approx(CALM.sigma, rel=0.1)
    pace = found.arrivals.records / found.arrivals.seconds
    assert pace == pytest.approx(CALM.rate, rel=0.05)


def test_a_hot_partition_and_a_limit_are_seen(twins):
    parts = twins[SKEWED].queries["land"].parts
    assert parts[0].share == pytest.approx(0.4 + 0.6 / 8, rel=0.02)
    full = twins[FULL].queries["land"]
    assert (full.trigger, full.limit) == (0.0, 3000.0)
    assert not full.told
    assert "cannot be told" in twins[FULL].notes[0]
    begin = float(full.arrivals.times[1])
    waited = full.arrivals.arrived_before(begin)
    pace = (full.arrivals.records - waited) / (full.arrivals.seconds - begin)
    assert waited > 10_000, "what was left before the first of the batches"
    assert pace == pytest.approx(FULL.rate, rel=0.05), "what waits has arrived too"


@pytest.mark.parametrize("truth", [CALM, SKEWED, FULL])
def test_what_ran_is_played_again(twins, truth):
    replayed = twins[truth].forecast_what_if((), draws=3)
    assert twins[truth].relative_duration_errors(replayed)["land"] < 0.05


@pytest.mark.parametrize(
    ("truth", "asked", "then"),
    [
        (CALM, "cores=4", {"cores": 4}),
        (CALM, "trigger=20s", {"trigger": 20.0}),
        (CALM, "limit=2000", {"limit": 2000}),
        (CALM, "traffic=1.5", {"rate": 1500.0}),
        (CALM, "partitions=16", {"partitions": 16}),
        (CALM, "cores=1,traffic=2", {"cores": 1, "rate": 2000.0}),
        (SKEWED, "cores=8", {"cores": 8}),
        (FULL, "cores=4", {"cores": 4}),  # 3,000 records in 0.9 s do not do, either
        (FULL, "limit=9000", {"limit": 9000}),
    ],
)
def test_what_if_comes_true(twins, truth, asked, then):
    foretold = twins[truth].forecast_what_if(parse_what_if_changes(asked, ["land"]), draws=9).queries["land"]
    true, ages = run(replace(truth, **then, seed=77))
    durations = np.array([each.duration for each in true.batches[2:]])
    # Another run under the same conditions differs by chance, too.
    assert (
        foretold.figures["duration"].low * 0.94
        <= np.median(durations)
        <= foretold.figures["duration"].high * 1.06
    )
    if truth is CALM and "limit" not in then:
        assert foretold.figures["slow"].value == pytest.approx(float(np.percentile(durations, 95)), rel=0.1)
        # Records of the last 5 % are younger than the oldest of each batch, by little.
        assert foretold.figures["oldest"].value == pytest.approx(float(np.median(ages)), rel=0.12)
    assert (foretold.grows.value > 0.1 * truth.rate) == ((truth, asked) in FALLS_BEHIND)


def test_costs_of_a_change_in_dollars_and_machines(twins):
    calm = twins[CALM]
    wider, split = (
        calm.forecast_what_if(parse_what_if_changes(asked, []), draws=1)
        for asked in ("worker=G.1X", "cores=4,split=2")
    )
    assert (wider.cores, wider.workers, wider.dollars_month) == (4, 2, pytest.approx(2 * 0.88 * 730))
    assert (split.cores, split.workers, split.dollars_month) == (2, 4, pytest.approx(4 * 0.44 * 730))
    # Half the partitions and half the records on as many cores as before.
    assert (
        split.queries["land"].figures["duration"].value
        < calm.forecast_what_if((), 1).queries["land"].figures["duration"].value
    )


def test_two_jobs_in_one_share_its_cores(twins):
    merged = twins[CALM].forecast_what_if(parse_what_if_changes("merge=2", []), draws=1).queries["land"]
    alone = twins[CALM].forecast_what_if(parse_what_if_changes("cores=1", []), draws=1).queries["land"]
    before = twins[CALM].forecast_what_if((), 1).queries["land"]
    # Where one of them waits, the other has its core too.
    assert before.figures["duration"].value < merged.figures["duration"].value
    assert merged.figures["duration"].value <= alone.figures["duration"].value * 1.02


def test_rows_that_are_held_are_read_once():
    twice = twin_of_application(history([replace(CALM, reads=2)]))
    assert twice.queries["land"].reads == 2
    once = twice.forecast_what_if(parse_what_if_changes("cache=on", []), draws=1).queries["land"]
    before = twice.forecast_what_if((), 1).queries["land"]
    true = np.median([each.duration for each in run(CALM)[0].batches])
    assert once.figures["duration"].value < before.figures["duration"].value
    assert once.figures["duration"].value == pytest.approx(float(true), rel=0.1)


def test_a_source_that_does_not_count_is_noted():
    found = twin_of_application(history([replace(CALM, offsets=False, counted=False)]))
    assert any("does not report its backlog" in note for note in found.notes)
    assert found.relative_duration_errors(found.forecast_what_if((), 1))["land"] < 0.05


def test_attempts_that_failed_are_time_lost():
    found = twin_of_application(history([replace(CALM, fails=0.7)]))
    costs = found.queries["land"].fit_batch_durations(2)
    assert costs.overhead == pytest.approx(CALM.overhead + 0.7, rel=0.03)
    assert costs.per_record == pytest.approx(CALM.per_record, rel=0.1)
    assert found.relative_duration_errors(found.forecast_what_if((), 1))["land"] < 0.05


@pytest.mark.parametrize(
    ("description", "most"),
    [("RateStreamV2[rowsPerSecond=9]", None), ("RatePerMicroBatchStream[rowsPerBatch=3000]", 3000)],
)
def test_sources_that_make_records_by_the_clock_have_no_limit(description, most):
    [query] = history([replace(FULL, offsets=False)]).queries
    batches = [
        replace(each, sources=(replace(each.sources[0], description=description),)) for each in query.batches
    ]
    assert observed_batch_limit(batches, 8) == most
    assert observed_batch_limit(query.batches, 8) == 3000


def test_queries_with_too_few_batches_are_left_out_and_noted():
    found = twin_of_application(history([CALM, replace(CALM, name="late", seconds=60.0)]))
    assert list(found.queries) == ["land"]
    assert "late: too few settled batches" in found.notes[-1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cores", "KEY=VALUE"),
        ("coers=4", "cores"),
        ("moon.limit=4", "a query of the log: land"),
        ("land.cores=4", "applies to all queries"),
        ("cores=0", "a whole number"),
        ("cores=2.5", "a whole number"),
        ("limit=many", "a whole number"),
        ("limit=1,000", "--what-if is limit=1,000; allowed: a whole number without commas, 1 or more"),
        ("traffic=1,5,cores=4", "--what-if is traffic=1,5; allowed: a factor"),
        ("cores=4,cores=8", "--what-if is cores=4,cores=8; allowed: each key once"),
        ("land.limit=4,cores=8,land.limit=4", "allowed: each key once"),
        ("trigger=10", "its unit"),
        ("traffic=-1", "a factor of the logged traffic, more than 0"),
        ("cache=off", "cache=on"),
        ("worker=G.3X", "the number of task slots per worker, 1 to 64, or one of G.025X, G.1X"),
        ("worker=0", "task slots per worker"),
    ],
)
def test_what_cannot_be_asked_is_told(text, told):
    with pytest.raises(ConfigurationError, match="--what-if") as wrong:
        parse_what_if_changes(text, ["land"])
    assert told in str(wrong.value)


def test_what_is_asked_is_written_as_it_is_read():
    for text in ("cores=4", "land.limit=5000", "trigger=2.5s", "traffic=1.5", "cache=on", "land.trigger=10s"):
        assert str(parse_what_if_changes(text, ["land"])[0]) == text
    assert list(map(str, parse_what_if_changes("limit=4, 1.limit=5,cores=2", ["land", "1"]))) == [
        *("limit=4", "1.limit=5", "cores=2"),
    ]
