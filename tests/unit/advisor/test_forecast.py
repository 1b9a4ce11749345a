"""Forecasts are stored and compared with the next run's log."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from millrace.advisor.advise import advise
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.findings.model import Advice, Change, Effect, Finding
from millrace.advisor.forecasts.forecast_figures import Forecast, QueryForecast
from millrace.advisor.forecasts.forecast_scores import (
    changes_to_simulate_by_finding,
    observed_figures,
    read_forecasts,
    score_forecasts,
)
from millrace.advisor.forecasts.what_if import parse_what_if_changes, twin_of_application
from millrace.advisor.logs.application_history_model import History, Query
from millrace.cli.watch.advised_changes_with_forecasts import (
    TwinForecasts,
    advice_without_harmful_findings,
    backlog_text,
    forecast_cells,
    forecast_changes,
)
from millrace.config import ConfigurationError
from tests.unit.advisor.event_logs_with_known_costs import Truth, history, run

TRUTH = Truth(swing=0.4, seed=1, seconds=600.0)


@pytest.fixture(scope="module")
def forecasts() -> tuple[Forecast, ...]:
    twin = twin_of_application(history([TRUTH]), 0.44)
    return tuple(
        twin.forecast_what_if(parse_what_if_changes(text, ["land"]) if text else ())
        for text in ("", "cores=4", "trigger=20s")
    )


def test_the_one_that_was_tried_is_scored_and_the_others_say_why_not(forecasts):
    then = twin_of_application(history([replace(TRUTH, cores=4, seed=9)]))
    as_it_ran, wider, slower = score_forecasts(forecasts, then)
    assert as_it_ran.why_not == "it ran with 4 cores, not with 2"
    assert slower.why_not == "it ran with 4 cores, not with 2"
    assert [each.figure for each in wider.scores] == [
        "batch duration, median",
        "batch duration, p95",
        "record age, median",
        "record age, p95",
    ]
    assert all(each.relative_error < 0.1 for each in wider.scores)
    assert wider.scores[0].inside


def test_a_machine_that_became_slower_is_outside(forecasts):
    slower = twin_of_application(history([replace(TRUTH, cores=4, per_record=2e-4, overhead=1.2, seed=9)]))
    assert [each.inside for each in score_forecasts(forecasts, slower)[1].scores][:2] == [False, False]


def test_a_limit_that_is_gone_is_another_condition():
    limited = replace(TRUTH, rate=800.0, swing=0.0, limit=7000)
    twin = twin_of_application(history([limited]))
    assert twin.queries["land"].limit == 7000
    told = twin.forecast_what_if(())
    [found] = score_forecasts(
        [told], twin_of_application(history([replace(limited, limit=None, rate=1000.0)]))
    )
    assert "records a batch, not 7,000 at most" in str(found.why_not)


@pytest.mark.parametrize(
    ("then", "why"),
    [
        ({"rate": 1300.0}, "land got 1,2"),
        ({"trigger": 15.0}, "land began a batch each 15 s, not each 10 s"),
        ({"partitions": 6}, "land had 6 partitions, not 8"),
        ({"limit": 8000, "rate": 1080.0}, "land had a limit of 8,000, not no limit"),
        ({"seconds": 60.0}, "the log has too little of land"),
    ],
)
def test_other_conditions_are_no_score(forecasts, then, why):
    found = score_forecasts(forecasts, twin_of_application(history([replace(TRUTH, seed=4, **then)])))[0]
    assert found.scores == ()
    assert why in str(found.why_not)


@pytest.fixture(scope="module")
def doubled() -> tuple[Forecast, ...]:
    """Of a query whose batches read their records twice."""
    twin = twin_of_application(history([replace(TRUTH, reads=2)]))
    return tuple(
        twin.forecast_what_if(parse_what_if_changes(text, ["land"]), draws=3)
        for text in ("cache=on", "land.cache=on", "merge=2", "land.merge=2")
    )


def test_rows_that_are_held_are_scored_by_a_log_that_reads_them_once(doubled):
    still = twin_of_application(history([replace(TRUTH, reads=2, seed=9)]))
    once = twin_of_application(history([replace(TRUTH, seed=9)]))
    for held in doubled[:2]:
        [missed], [scored] = score_forecasts([held], still), score_forecasts([held], once)
        assert missed.why_not == "land read its records 2 times in a batch: nothing held them"
        assert (missed.scores, scored.why_not) == ((), None)
        assert scored.scores[0].relative_error < 0.1


def test_jobs_in_one_are_not_scored_by_the_log_of_one_job(doubled):
    for seed in (9, 10):
        then = twin_of_application(history([replace(TRUTH, reads=2, seed=seed)]))
        assert [(each.scores, each.why_not) for each in score_forecasts(doubled[2:], then)] == [
            ((), "no log shows which jobs were brought into one")
        ] * 2


def test_ages_are_those_of_the_records():
    query, oldest = run(TRUTH)
    found = observed_figures(twin_of_application(history([TRUTH])).queries["land"])
    # Records arrive evenly over a trigger and wait for its batch.
    assert found["age"] == pytest.approx(TRUTH.trigger / 2 + found["duration"], rel=0.1)
    assert found["oldest"] == pytest.approx(sorted(oldest)[len(oldest) // 2], rel=0.1)
    assert query.name == "land"


def test_what_is_kept_is_read_again(forecasts, tmp_path: Path):
    file = tmp_path / "advice.json"
    file.write_text(
        json.dumps({"version": 1, "more": 1, "forecasts": [each.model_dump() for each in forecasts]})
    )
    assert read_forecasts(file) == forecasts


@pytest.mark.parametrize("text", [None, "{", '{"version": 1}', '{"version": 1, "forecasts": [{}]}'])
def test_a_file_without_forecasts_is_told(tmp_path: Path, text):
    file = tmp_path / "advice.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(
        ConfigurationError, match=r"--score is .*advice\.json; allowed: what `millrace advise"
    ):
        read_forecasts(file)


def found(key: str, new: object, query: str | None = "land") -> Finding:
    change = Change("environment", "environments/prod.yaml", key, None, new)  # type: ignore[arg-type]
    return Finding("at-capacity", query, "", (), (), (change,), Effect("batch duration", "s", 0, 1, 2))


def test_changes_of_findings_that_can_be_played():
    asked = [
        found("jobs.orders.queries.land.trigger", "12s"),
        found("trigger(processingTime)", "12 seconds"),
        found("maxOffsetsPerTrigger", 5000),
        found("jobs.orders.cores", 8, None),
        found("maxFetchRecordsPerShard", 100),
        found("jobs.orders.queries.moon.trigger", "12s", "moon"),
        found("jobs.orders.queries.land.trigger", None),
    ]
    played = {place: str(each[0]) for place, each in changes_to_simulate_by_finding(asked, ["land"]).items()}
    assert played == {0: "land.trigger=12s", 1: "land.trigger=12s", 2: "land.limit=5000", 3: "cores=8"}


@pytest.fixture(scope="module")
def busy():
    return twin_of_application(history([replace(TRUTH, swing=0.0, rate=1000.0)]), 0.44)


def test_a_backlog_that_grows_is_foretold_and_not_an_age(busy):
    told = busy.forecast_what_if(parse_what_if_changes("limit=5000", ["land"]), draws=3).queries["land"]
    assert not told.keeps_up
    assert told.grows.value == pytest.approx(500, rel=0.1), "1,000 arrive, 5,000 are taken each 10 s"
    assert told.waiting.value == pytest.approx(told.grows.value * TRUTH.seconds, rel=0.3)
    assert backlog_text(told).startswith("grows by ")
    assert forecast_cells(told)[2:] == ["grows", "grows"]
    calm = busy.forecast_what_if((), draws=3).queries["land"]
    assert (calm.keeps_up, backlog_text(calm)) == (True, "stays")


def test_a_batch_that_never_ends_is_no_duration(busy):
    told = busy.forecast_what_if(parse_what_if_changes("partitions=100000", ["land"]), draws=3).queries[
        "land"
    ]
    assert not told.ended
    assert forecast_cells(told)[0].startswith("no batch ends in ")
    assert not any(forecast_cells(told)[1:])


@pytest.mark.parametrize(
    ("text", "allowed"), [("merge=3", "at most 2"), ("split=3", "at most 2"), ("land.merge=9", "at most 2")]
)
def test_no_more_jobs_than_cores(busy, text, allowed):
    with pytest.raises(ConfigurationError, match=allowed):
        busy.forecast_what_if(parse_what_if_changes(text, ["land"]), draws=1)


def test_what_is_scored_is_wider_than_the_models_interval_which_is_printed():
    told = twin_of_application(history([TRUTH]), 0.44).forecast_what_if(())
    duration = told.queries["land"].figures["duration"]
    assert duration.low >= TRUTH.overhead * 0.9, "a batch takes its fixed cost"
    [scored] = score_forecasts([told], twin_of_application(history([replace(TRUTH, seed=9)])))
    wide = scored.scores[0].foretold
    assert wide.high - wide.low > 1.3 * (duration.high - duration.low)


def test_a_query_whose_traffic_changed_stops_no_others_score():
    pair = [TRUTH, replace(TRUTH, name="other", seed=2)]
    told = twin_of_application(history(pair)).forecast_what_if(())
    [scored] = score_forecasts(
        [told], twin_of_application(history([TRUTH, replace(TRUTH, name="other", rate=1300.0, seed=3)]))
    )
    assert {each.query for each in scored.scores} == {"land"}
    assert scored.why_not is None
    assert [each.split(" got")[0] for each in scored.left_out] == ["other"]


@pytest.mark.parametrize("trigger", [4.0, 10.0])
def test_where_a_steady_log_is_cut_does_not_make_its_backlog_grow(trigger: float) -> None:
    whole = history([Truth(trigger=trigger, seconds=50 * trigger, swing=0.2, seed=4)])
    for cut in range(12, 44):
        (query,) = whole.queries
        short = replace(query, batches=query.batches[:cut])
        told = twin_of_application(replace(whole, queries=(short,))).forecast_what_if((), 3).queries["land"]
        assert told.keeps_up, cut


def replayed(whole: History, batches: int | None = None) -> QueryForecast:
    """The forecast of the run as it was, from its first batches."""
    (query,) = whole.queries
    short = replace(query, batches=query.batches[:batches])
    return twin_of_application(replace(whole, queries=(short,))).forecast_what_if((), 3).queries["land"]


CATCHING_UP = Truth(limit=15_000, swing=0.0, waiting=300_000, per_record=1e-5, seconds=900.0)
"""It takes 1,500 records a second while 1,000 arrive: the outage is over after ten minutes."""


def test_a_query_that_works_off_an_outage_does_not_fall_behind_wherever_its_log_is_cut() -> None:
    whole = history([CATCHING_UP])
    for cut in (13, 21, 31, 46):
        told = replayed(whole, cut)
        assert told.keeps_up, cut
        assert told.grows.value == pytest.approx(-500, rel=0.05), cut
        assert backlog_text(told).startswith("falls by 5"), cut
        assert "grows" not in forecast_cells(told)
    assert backlog_text(replayed(whole)) == "stays"


@pytest.mark.parametrize(
    ("truth", "growth"),
    [
        (replace(CATCHING_UP, limit=3000, waiting=400_000, trigger=0.0, seconds=160.0), -2400),
        (replace(CATCHING_UP, limit=5000), 500),
        (replace(CATCHING_UP, limit=10_000), 0),
        (replace(CATCHING_UP, limit=None, waiting=0, per_record=1e-4, rate=21_000.0), 1550),
    ],
    ids=["drains back to back", "grows above what waited", "waits and stays", "grows without a limit"],
)
def test_the_backlog_grows_by_its_records(truth: Truth, growth: int) -> None:
    assert replayed(history([truth])).grows.value == pytest.approx(growth, rel=0.15, abs=5)


def test_a_finding_whose_change_lets_the_backlog_grow_is_left_out(busy) -> None:
    advice = Advice(
        history([TRUTH]), (found("maxOffsetsPerTrigger", 5000), found("maxOffsetsPerTrigger", 20_000))
    )
    told = tuple(
        busy.forecast_what_if(parse_what_if_changes(text, ["land"]) if text else (), 3)
        for text in ("", "limit=5000")
    )
    worse = told[1].model_copy(update={"changes": ("land.limit=5000",)})
    left = advice_without_harmful_findings(
        advice, TwinForecasts(busy, (told[0], worse), {}, ()), AdvisedJob()
    )
    assert [each.best_change.new for each in left.findings if each.best_change] == [20_000]
    assert "the backlog of land grows faster with it" in left.notes[-1]


@dataclass(frozen=True)
class JobWithSla(AdvisedJob):
    sla: float | None = None

    def latency_limit_seconds(self, query: Query) -> float | None:
        return self.sla


@pytest.mark.parametrize(
    ("sla", "seconds_saved", "left_out"),
    [(None, 3.0, True), (None, 0.0, False), (60.0, 3.0, False), (30.0, 3.0, True), (30.0, 0.0, True)],
)
def test_a_finding_whose_change_makes_records_older_needs_an_sla_that_is_kept(
    sla: float | None, seconds_saved: float, left_out: bool
) -> None:
    """The oldest records (p95) are 11 s old as it ran, and 31 s with the longer trigger."""
    ran = history([TRUTH])
    twin = twin_of_application(ran)
    effect = Effect("batch duration", "s", seconds_saved, seconds_saved, seconds_saved)
    longer = replace(found("trigger(processingTime)", "30 seconds"), effect=effect)
    advice, subject = Advice(ran, (longer,)), JobWithSla(sla=sla)
    told = tuple(
        twin.forecast_what_if(parse_what_if_changes(text, ["land"]) if text else (), 3)
        for text in ("", "trigger=30s")
    )
    (change,) = changes_to_simulate_by_finding(advice.findings, ["land"]).values()
    changed = told[1].model_copy(update={"changes": tuple(map(str, change))})
    left = advice_without_harmful_findings(advice, TwinForecasts(twin, (told[0], changed), {}, ()), subject)
    assert left.findings == (() if left_out else (longer,))
    assert [note for note in left.notes if "become older" in note] == list(left.notes)
    assert bool(left.notes) == left_out


def test_a_log_that_is_too_short_for_a_forecast_keeps_its_advice() -> None:
    advice = advise(history([replace(TRUTH, seconds=25.0)]))
    told = forecast_changes(advice, AdvisedJob(), ("cores=8",), None)
    assert told.forecasts == ()
    assert told.twin.notes
    assert advice_without_harmful_findings(advice, told, AdvisedJob()) == advice


HOT = Truth(cores=8, hot=0.4, per_record=1e-3, trigger=20.0, seed=2)
"""One of its eight partitions has 47.5 % of the records."""


def test_min_partitions_splits_the_hot_partition_as_its_finding_says() -> None:
    whole = history([HOT])
    (finding,) = (each for each in advise(whole).findings if each.kind == "skewed-tasks")
    ((change,),) = changes_to_simulate_by_finding([finding], ["land"]).values()
    assert str(change) == "land.partitions=16"
    before, after = (
        twin_of_application(whole).forecast_what_if(each, 3).queries["land"] for each in ((), (change,))
    )
    assert (before.partitions, after.partitions) == (8, 16)
    gain = before.figures["duration"].value - after.figures["duration"].value
    assert gain == pytest.approx(finding.effect.likely, rel=0.1)
    spread = np.median([each.duration for each in run(replace(HOT, hot=0.0, partitions=16))[0].batches])
    assert after.figures["duration"].value == pytest.approx(float(spread), rel=0.1)


@pytest.mark.parametrize(
    ("truth", "asked", "tasks", "gain"),
    [
        (replace(HOT, hot=0.0), 9, 8, 0.0),  # an eighth of nine parts is one part
        (replace(HOT, hot=0.0), 13, 16, 0.0),
        (HOT, 6, 6, 0.0),  # tasks that are joined keep the hot partition
        (replace(HOT, offsets=False), 16, 16, 0.0),  # its shards are no ranges of offsets
    ],
)
def test_partitions_are_split_as_their_source_can(truth: Truth, asked: int, tasks: int, gain: float) -> None:
    twin = twin_of_application(history([truth]))
    change = parse_what_if_changes(f"partitions={asked}", ["land"])
    before, after = (twin.forecast_what_if(each, 1).queries["land"] for each in ((), change))
    assert after.partitions == tasks
    durations = [each.figures["duration"].value for each in (before, after)]
    assert durations[0] - durations[1] == pytest.approx(gain, abs=0.1 * durations[0])
