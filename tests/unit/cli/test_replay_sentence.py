"""What `millrace replay` says of its result."""

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli.repair.replay import _replay_sentence
from millrace.sandbox import operate_running_sandbox

OUTCOME = {"query": "q", "letters": 3, "good": 2, "bad": 1, "already": 0, "unknown_ids": []}
SAID = "3 dead letters of q replayed: 2 are good now, 1 are still bad, 0 were replayed before"


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ({}, ""),
        ({"duplicates": 0}, ""),
        (
            {"duplicates": 4, "unknown_ids": ["a/0/1"]},
            "; the sink had 4 of their rows already and keeps those, also if this replay made others; "
            "no dead letter has the identity a/0/1",
        ),
    ],
)
def test_rows_that_the_sink_had_already_are_told(more: dict[str, object], end: str) -> None:
    assert _replay_sentence(OUTCOME | more) == SAID + end


@pytest.mark.parametrize("letters", [0, 3])
def test_a_kept_sandbox_without_dead_letters_tells_that_no_job_runs(
    monkeypatch: pytest.MonkeyPatch, letters: int
) -> None:
    for name, result in {
        "running_sandbox_deployment": "place",
        "spark_of_running_sandbox": "spark",
        "replay_dead_letters_locally": {**OUTCOME, "letters": letters},
    }.items():
        monkeypatch.setattr(operate_running_sandbox, name, lambda *_, result=result: result)
    done = CliRunner().invoke(app, ["replay", "flights", "--env", "local"])
    assert (done.exit_code, "about a minute" in done.stderr) == (0, True), done.output
    assert ("no job runs in a sandbox that was kept" in done.stderr) is (letters == 0)
