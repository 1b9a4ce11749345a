"""``millrace advise``: words, JSON, keys of the environment file, and every mistake in one message."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import cramjam
import pytest
from typer.testing import CliRunner

from millrace.advisor.advise import advise
from millrace.advisor.apply_changes import advice_with_planned_savings
from millrace.advisor.findings.advised_job_keys_and_cost import advised_environment_job
from millrace.advisor.findings.model import Change
from millrace.cli.app import app
from millrace.cli.watch.advise import advice_document
from millrace.config import ConfigurationError, load
from millrace.sizing import plan, total_cost
from tests.unit.advisor import event_logs_with_known_costs
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.healthy_query_history import batch, history, job, stage
from tests.unit.sizing.conftest import from_text, text

__all__ = ["from_text"]

REAL = str(Path(__file__).parent / "data" / "flights-3.5.zstd")
ROOT = Path(__file__).parents[3]


def run(*arguments: str):
    done = CliRunner().invoke(app, ["advise", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0
    return done.stdout


def test_it_says_what_was_read_and_what_was_not_judged():
    text = run(REAL)
    assert text.startswith("VERDICT  main.py, Spark 3.5.7 on local, 2 cores: 15 batches of 2 queries")
    assert "no change is recommended" in text
    assert "note: land-flights has 6 settled batches" in text


def test_a_log_without_batches_is_not_judged(tmp_path):
    log = tmp_path / "app-1"
    streaming = "org.apache.spark.sql.streaming.StreamingQueryListener$"
    events = (
        {"Event": "SparkListenerLogStart", "Spark Version": "3.5.7"},
        {
            "Event": "SparkListenerApplicationStart",
            "App ID": "app-1",
            "App Name": "a",
            "Timestamp": 1_800_000_000_000,
        },
        {
            "Event": f"{streaming}QueryStartedEvent",
            "id": "i",
            "runId": "r",
            "name": "land",
            "timestamp": "2027-01-15T08:00:00.000Z",
        },
        {"Event": "SparkListenerApplicationEnd", "Timestamp": 1_800_000_060_000},
    )
    log.write_text("".join(f"{json.dumps(each)}\n" for each in events))
    text = run(str(log))
    assert "no change is recommended" not in text
    told = "nothing was judged: the log has no micro-batch"
    assert f"note: {told}" in text
    assert any(each.startswith(told) for each in json.loads(run(str(log), "--json"))["notes"])


def test_json_has_all_of_it():
    found = json.loads(run(REAL, "--json"))
    assert found["application"]["spark"] == "3.5.7"
    assert [each["batches"] for each in found["queries"]] == [7, 8]
    assert found["findings"] == []
    assert found["disturbed"] is None


@pytest.mark.parametrize(
    ("arguments", "key"),
    [
        ((), "PATH is (missing)"),
        ((REAL, "--glue-job", "x"), "PATH is PATH, --glue-job"),
        ((REAL, "--run", "x"), "--run is x"),
        ((REAL, "--job", "flights"), "--job is flights"),
        ((REAL, "--env", "prod", "--job", "none"), "--job is none"),
        ((REAL, "--env", "minimal"), "--job is (missing)"),
        (("/none",), "PATH is /none"),
    ],
)
def test_what_is_wrong_is_told(arguments, key):
    with pytest.raises(ConfigurationError) as told:
        run(*arguments)
    [problem] = told.value.problems
    assert key in str(problem)


def test_a_job_of_an_environment_is_told_by_its_queries():
    assert "2 cores" in run(REAL, "--env", "local")


def flights_of_prod():
    environment = load("prod", root=ROOT)
    return advised_environment_job(environment, plan(environment), "flights")


def flights(make):
    """The direct query of environment prod's job flights, with what it is called there."""
    made = history(make)
    [query] = made.queries
    named = replace(made, queries=(replace(query, name="show-departures"),))
    return advise(named, flights_of_prod())


def limited(number, begun):
    at = stage(begun + 0.05, [0.4, 0.4], [500, 500])
    return batch(number, begun, [job(number, [at])], left=500 * (number + 1))


def test_changes_of_ours_are_keys_of_the_environment_file():
    [finding] = flights(limited).findings
    change = finding.best_change
    assert (change.kind, change.where) == ("environment", "environments/prod.yaml")
    assert change.key == "jobs.flights.queries.show-departures.records_per_batch"
    assert change.old is None  # the plan computes it
    environment = load("prod", root=ROOT)
    read = environment.jobs["flights"].queries["show-departures"]
    type(read).model_validate({**read.model_dump(by_alias=True), "records_per_batch": change.new})


def test_a_change_that_the_plan_refuses_is_not_advised():
    """The log's traffic asks for a limit with which the traffic in the file would never be read."""
    found = advice_with_planned_savings(flights(limited), flights_of_prod())
    [finding], [note] = found.findings, found.notes
    assert finding.changes == ()
    assert note.startswith(
        "silent-backlog: jobs.flights.queries.show-departures.records_per_batch stays not set: with 1875 the plan refuses it"
    )
    assert "allowed: 108001 to 140000" in note


TOPIC = """\
project: advice
account: "111122223333"
kafka: {main: {kind: msk, existing: "arn:aws:kafka:us-east-1:111122223333:cluster/c/0a1b2c3d-1111-2222-3333-444455556666-3"}}
streams:
  clicks:
    {kind: kafka, cluster: main, topic: t, existing: true, partitions: 8, retention: 3d,
     traffic: {records_per_second: 1500, peak_factor: 1.5, record_size: 500B, basis: measured}}
jobs:
  clicks:
    engine: emr
    latency: 2m
    cores: 4
    rate: {records_per_second_per_core: 4000, batch_overhead: 1s, basis: measured}
    queries:
      land: {kind: land, source: clicks, table: landed, schema: pipelines/clicks/schemas/click.ddl, trigger: 10s, records_per_batch: 30000}
"""
TOPIC_COST = event_logs_with_known_costs.Truth(cores=4, rate=5000, per_record=1e-3, limit=30000)


def test_cores_whose_tasks_need_a_change_of_the_program_stay_advised(from_text):
    """The key is tried, the line of the program is not; and the limit that the trigger asks for comes with the cores."""
    environment = from_text(TOPIC)
    subject = advised_environment_job(environment, plan(environment), "clicks")
    made = replace(event_logs_with_known_costs.history([TOPIC_COST]), engine="local")
    advice = advice_with_planned_savings(advise(made, subject), subject)
    [change] = [each.best_change for each in advice.findings if each.kind == "at-capacity"]
    assert change.key == "jobs.clicks.cores"
    program, limit = change.also
    assert isinstance(change.new, int)
    assert isinstance(limit.new, int)
    assert (program.kind, program.new) == ("code", f"repartition({change.new})")
    assert limit.key == "jobs.clicks.queries.land.records_per_batch"
    advised = replace(TOPIC_COST, cores=change.new, partitions=change.new, limit=limit.new)
    assert event_logs_with_known_costs.run(advised)[1][-1] < 20
    assert event_logs_with_known_costs.run(replace(advised, limit=30000))[1][-1] > 300


def test_a_finding_whose_best_change_is_refused_keeps_no_other():
    """The gain is that of the best change."""
    environment = load("prod", root=ROOT)
    subject = advised_environment_job(environment, plan(environment), "flights")
    [finding] = flights(limited).findings
    other = Change("code", "query", "after the source", None, "repartition(9)")
    several = replace(flights(limited), findings=(replace(finding, changes=(*finding.changes, other)),))
    [left] = advice_with_planned_savings(several, subject).findings
    assert left.changes == ()


def test_a_trigger_of_ours_leaves_room_for_the_latency():
    def slow(number, begun):
        at = job(number, [stage(begun + 31, [0.1, 0.1], [500, 500])])
        return batch(number, begun, [at], duration=31.9, parts={"queryPlanning": 31.0})

    [finding] = [each for each in flights(slow).findings if each.kind == "overhead-bound"]
    assert finding.best_change.key == "jobs.flights.queries.show-departures.trigger"
    assert int(finding.best_change.new.removesuffix("s")) <= 30


def one_task(number, begun):
    return batch(number, begun, [job(number, [stage(begun + 0.05, [1.2], [1000])])])


@pytest.mark.parametrize(("cores", "rate", "keep"), [(8, "400", 2), (8, "5000", 6), (2, "400", None)])
def test_dollars_of_ours_are_the_difference_of_two_plans(cores, rate, keep, from_text):
    """The log needs two cores, which the file has already, or which its own traffic does not allow."""
    yaml = text(rate=rate, sla="60s", job=f"scaling: fixed\n    cores: {cores}")
    environment = from_text(yaml)
    before = plan(environment)
    subject = advised_environment_job(environment, before, "clicks")
    made = history(one_task, executors=8)
    (query,) = made.queries
    found = advise(replace(made, queries=(replace(query, name="land"),)), subject)
    by_kind = {each.kind: each for each in advice_with_planned_savings(found, subject).findings}
    idle = by_kind.pop("idle-cores", None)
    assert [each.dollars_a_month for each in by_kind.values()] == [None], "no machine goes"
    if keep is None:
        assert idle is None
        return
    assert (idle.best_change.key, idle.best_change.new) == ("jobs.clicks.cores", keep)
    saved = (
        total_cost(before).value
        - total_cost(plan(from_text(yaml.replace("cores: 8", f"cores: {keep}")))).value
    )
    assert saved > 50
    assert idle.dollars_a_month == pytest.approx(saved, abs=0.011)


def test_findings_in_json_are_whole():
    found = advice_document(advise(history(limited)))
    [finding] = found["findings"]
    assert set(finding) == {
        "kind",
        "query",
        "severity",
        "words",
        "evidence",
        "batches",
        "changes",
        "effect",
        "dollars_a_month",
        "run",
    }
    json.dumps(found)


def test_findings_are_told_in_words(tmp_path, monkeypatch):
    monkeypatch.setattr("millrace.cli.watch.advise.read_history", lambda *_: history(limited))
    text = run(REAL)
    assert "1. silent-backlog" in text
    assert "change: query orders: maxOffsetsPerTrigger from 1000 to" in text
    assert "batches: 0, " in text or "batches: 1, " in text or "batches: 2, " in text
    assert "and " in text


def test_what_is_no_log_of_a_streaming_application_is_told(tmp_path: Path):
    """Nothing is to be changed in nothing: a batch application, and a file of a codec that Spark does not write."""
    none = write(
        replace(event_logs_with_known_costs.history([event_logs_with_known_costs.Truth()]), queries=()),
        tmp_path / "local-1",
    )
    framed = tmp_path / "local-2"
    framed.write_bytes(bytes(cramjam.lz4.compress((tmp_path / "local-1").read_bytes() * 300)))
    for file, told in ((none, "0 Spark jobs and no micro-batch"), (framed, "decompress it first")):
        for more in ((), ("--json",)):
            with pytest.raises(ConfigurationError, match=told):
                run(str(file), *more)
