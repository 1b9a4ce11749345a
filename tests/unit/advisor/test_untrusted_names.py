"""Names from event logs are escaped in terminal, page and file names."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.advisor.advise import advise
from millrace.advisor.forecasts.what_if import twin_of_application
from millrace.cli.app import app
from millrace.cli.shared.verdict import verdict_document as verdict_json
from millrace.cli.watch.advise import advice_document
from millrace.cli.watch.advise_page import advice_page
from millrace.cli.watch.advise_verdict import advice_verdict
from tests.page_without_browser import drawn
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.event_logs_with_known_costs import Truth
from tests.unit.advisor.event_logs_with_known_costs import history as costed
from tests.unit.advisor.healthy_query_history import batch, history, job, stage, twice

NAME, QUERY = "etl [/prod] of :x: [eu-west-1]", "land[/b]:x:[dim]"


def run(*arguments: object) -> str:
    done = CliRunner().invoke(app, ["advise", *map(str, arguments)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0
    return done.stdout


def limited(number, begun):
    at = stage(begun + 0.05, [0.4, 0.4], [500, 500])
    return batch(number, begun, [job(number, [at])], left=500 * (number + 1))


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (5, f"\nnote: {QUERY} has "),
        (24, f"\n{QUERY} takes 1,000 records a batch"),
    ],
)
def test_names_are_printed_as_they_are(tmp_path: Path, count, told):
    made = history(limited, count=count)
    [query] = made.queries
    log = write(replace(made, name=NAME, queries=(replace(query, name=QUERY),)), tmp_path / "local-1")
    text = run(log)
    assert text.startswith(f"VERDICT  {NAME}, Spark 3.5.7")
    assert told in text
    if count > 8:
        assert f"change: query {QUERY}: maxOffsetsPerTrigger" in text
        assert f"silent-backlog    {QUERY} " in text


def test_names_in_forecasts_and_scores_are_printed_as_they_are(tmp_path: Path):
    log = write(costed([Truth(name=QUERY, swing=0.0, seconds=200.0)]), tmp_path / "local-1")
    asked = ("--what-if", f"{QUERY}.trigger=20s")
    (tmp_path / "advice.json").write_text(run(log, *asked, "--json"))
    text = run(log, *asked, "--score", tmp_path / "advice.json")
    assert f"\n{QUERY}.trigger=20s" in text
    assert f"of this log (median duration): {QUERY} " in text
    assert f"\nnote: {QUERY}: " in text
    assert f"\nnot compared: {QUERY}.trigger=20s: {QUERY} began " in text
    assert f"\n{QUERY}    batch duration, median " in text


def again() -> str:
    """The page of an application in which a query was started again: each run with its own trouble."""
    first, second = (
        history(limited, count=12, every=2.0).queries[0],
        history(twice(cached=False), count=14, every=3.0).queries[0],
    )
    later = [replace(each, begun=each.begun + 3600, id=each.id + 6) for each in second.batches]
    runs = (
        replace(first, run_id="first"),
        replace(second, run_id="second", started=later[0].begun, batches=tuple(later)),
    )
    found = advise(replace(history(), queries=runs))
    assert [(each.kind, each.query, each.run) for each in found.findings] == [
        ("silent-backlog", "orders", "first"),
        ("missing-cache", "orders", "second"),
    ]
    document = advice_document(found) | {"verdict": verdict_json(advice_verdict(found))}
    return drawn(advice_page(document, found.history, twin_of_application(found.history)))


def test_runs_of_one_query_have_tables_and_charts_of_their_own():
    page = again()
    ids = re.findall(r' id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    assert [each for each in ids if each.startswith("batch-")] == [
        *(f"batch-1-{number}" for number in range(12)),
        *(f"batch-2-{number}" for number in range(6, 20)),
    ]
    backlog, cache = page.split('id="finding-1"')[1].split('id="finding-2"')
    assert set(re.findall(r'href="#batch-(\d)-', backlog)) == {"1"}
    assert set(re.findall(r'href="#batch-(\d)-', cache.split("<h2>Queries")[0])) == {"2"}
    for run in ("orders, run 1 of 2", "orders, run 2 of 2"):
        assert f"Query {run}" in page
        assert f"Batches of {run}" in page
        assert f"{run}: how long do batches last?" in page
    # The twin is of the last run: only that one has a latency.
    assert "run 2 of 2: how late are records?" in page
    assert "run 1 of 2: how late are records?" not in page
