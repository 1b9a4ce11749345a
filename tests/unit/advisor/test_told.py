"""What the command prints of logs whose names hold what a console, a page or a file could stumble over."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.cli.app import app
from tests.unit.advisor.made import batch, history, job, stage
from tests.unit.advisor.runs import Truth
from tests.unit.advisor.runs import history as costed
from tests.unit.advisor.written import write

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
    assert text.startswith(f"{NAME}, Spark 3.5.7")
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
    assert f"misses the median duration by: {QUERY} " in text
    assert f"\nnote: {QUERY}: " in text
    assert f"\nnot tried: {QUERY}.trigger=20s: {QUERY} began " in text
    assert f"\n{QUERY}    batch duration, median " in text
