"""``millrace advise``: what if, forecasts that the next log scores, the page, and changes in the environment file."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.config import ConfigurationError
from tests.page_without_browser import drawn
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.event_logs_with_known_costs import Truth, history
from tests.unit.cli.test_command_output import ROOT, millrace

CALM = Truth(swing=0.4, seed=1, name="land-departures", trigger=4.0, seconds=200.0, partitions=4, wave=0.04)
SHORT = replace(CALM, limit=3000, rate=1500.0)
"""Its limit takes 750 records a second of 1,500."""


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("logs")
    for name, truth in (("calm", CALM), ("wider", replace(CALM, cores=4, seed=6)), ("short", SHORT)):
        (folder / name).mkdir()
        write(history([truth]), folder / name / "local-1")
    return folder


def test_the_next_log_scores_what_was_foretold(logs, tmp_path):
    asked = millrace(
        "advise", str(logs / "calm"), "--what-if", "cores=4", "--what-if", "trigger=8s", "--json"
    )
    assert asked.returncode == 0, asked.stderr
    advice = json.loads(asked.stdout)
    assert [each["changes"] for each in advice["forecasts"]] == [[], ["cores=4"], ["trigger=8s"]]
    assert advice["replay_missed"]["land-departures"] < 0.05
    (tmp_path / "advice.json").write_text(asked.stdout)
    told = millrace("advise", str(logs / "wider"), "--score", str(tmp_path / "advice.json"))
    assert told.returncode == 0, told.stderr
    assert "not compared: as it ran: it ran with 4 cores, not with 2" in told.stdout
    lines = told.stdout.split("scored: cores=4\n")[1].splitlines()
    missed = [float(each) for line in lines for each in re.findall(r"([\d.]+)%", line)]
    assert len(missed) == 4
    assert max(missed) < 10


def test_the_page_leads_from_findings_to_batches(logs, tmp_path):
    file = tmp_path / "advice.html"
    done = millrace("advise", str(logs / "short"), "--what-if", "limit=8000", "--html", str(file))
    assert done.returncode == 0, done.stderr
    assert "limit=8000" in done.stdout
    page = drawn(file.read_text())
    assert "as it ran" in page
    links = set(re.findall(r'href="#([^"]+)"', page))
    assert any(each.startswith("batch-1-") for each in links)
    assert links <= set(re.findall(r'id="([^"]+)"', page))
    for chart in (
        "does it keep up?",
        "how long do batches last?",
        "how late are records?",
        "does a backlog grow?",
        "how long do tasks take?",
        "is work spread evenly?",
    ):
        assert f"land-departures: {chart}" in page


def run_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "millrace", *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_change_is_written_shown_and_planned_and_then_no_longer_applies(logs, tmp_path):
    for name in ("environments", "pipelines"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    prod = tmp_path / "environments" / "prod.yaml"
    # A pin as of somebody who once thought that 3,000 records would do.
    low = "traffic: {records_per_second: 4000, peak_factor: 2.5,"
    text = prod.read_text().replace(low, "traffic: {records_per_second: 300, peak_factor: 1,")
    kind = "kind: land\n        source: departures\n"
    prod.write_text(text.replace(kind, f"{kind}        records_per_batch: 10000 # enough?\n"))
    before = prod.read_text()
    asked = ("advise", str(logs / "short"), "--env", "prod", "--job", "departures", "--apply")
    done = run_in(tmp_path, *asked)
    assert done.returncode == 0, done.stderr
    new = re.search(r"^\+        records_per_batch: (\d+) # enough\?$", done.stdout, re.M)
    assert new, done.stdout
    assert int(new[1]) > 6000
    assert prod.read_text() == before.replace("batch: 10000", f"batch: {new[1]}")
    assert "the plan: $" in done.stdout
    planned = run_in(tmp_path, "plan", "--env", "prod", "--json")
    query = json.loads(planned.stdout)["jobs"]["departures"]["queries"]["land-departures"]
    assert (query["records_per_batch"]["value"], query["records_per_batch"]["origin"]) == (
        int(new[1]),
        "pinned",
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--apply",), "--apply is (no --env)"),
        (("--what-if", "coers=4"), "--what-if is coers=4; allowed: KEY=VALUE"),
        (
            ("--what-if", "cores=0,moon=1", "--what-if", "foo"),
            "--what-if is cores=0; allowed: a whole number",
        ),
        (("--what-if", "cores=0,moon=1", "--what-if", "foo"), "--what-if is moon=1; allowed: KEY=VALUE"),
        (("--what-if", "cores=0,moon=1", "--what-if", "foo"), "--what-if is foo; allowed: KEY=VALUE"),
        (("--score", "/nowhere.json"), "--score is /nowhere.json"),
        (("--finding", "1"), "--finding is 1; allowed: only with --apply"),
        (("--env", "prod", "--job", "departures", "--apply", "--finding", "9"), "--finding is 9"),
        (("--env", "prod", "--job", "departures", "--apply", "--finding", "9", "--finding", "8"), "is 9, 8;"),
        (("--html", "/nowhere/page.html"), "a file that you have permission to write"),
    ],
)
def test_mistakes_are_one_message_about_one_option(logs, arguments, told):
    done = CliRunner().invoke(app, ["advise", str(logs / "calm"), *arguments])
    assert isinstance(
        done.exception, ConfigurationError
    )  # which the program turns into a message and status 2
    assert told in str(done.exception)
    assert done.output == ""
