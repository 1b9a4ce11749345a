"""Projects with a kind of somebody else's: two files in a folder and two registry entries, nothing of the product changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.job import build_queries
from millrace.etl.launch.settings import JobSettings
from millrace.etl.record.job_run_context import JobRun
from tests.spark.source_batches import Events, drained

ROOT = Path(__file__).parents[2]

SYNTHESISE = """
import json, sys
from pathlib import Path
from pkgutil import resolve_name
from aws_cdk import App
from millrace.infra.environment_stacks import build_stacks
from millrace.config import Names, load
from millrace.sizing import plan

environment = load("toy")
context = json.loads((Path(sys.argv[2]) / "cdk.json").read_text())["context"]
app = App(outdir=sys.argv[1], context=context, analytics_reporting=False)
names = Names(environment, environment.account)
numbers = plan(environment)
build_stacks(app, names=names, plan=numbers, root=Path(sys.argv[2]))
app.synth()
print(json.dumps({"services": numbers.network.services}))
"""


def project(
    folder: Path, *, environment: str, entry: str, asked: str, runs: str, launch: str = "", deployed: str = ""
) -> Path:
    """Write a project whose environment ``toy`` names the kind, and beside it the distribution ``held`` that brings it.

    Parameters
    ----------
    entry
        The entry point: group, kind and class, such as ``millrace.sinks toy toy_asked:ToySink``.
    asked, launch, runs
        The three modules, ``toy_asked``, ``toy_launch`` and ``toy_runs``.
    deployed
        One more that ``infra`` asks, ``toy_deployed``.
    """
    home = folder / "project"
    (home / "environments").mkdir(parents=True)
    (home / "pipelines").symlink_to(ROOT / "pipelines")
    (home / "environments" / "toy.yaml").write_text(environment)
    held = folder / "held"
    described = held / "toy-1.0.dist-info"
    described.mkdir(parents=True)
    (described / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    for each in entry.splitlines():
        group, kind, loader = each.split()
        with (described / "entry_points.txt").open("a") as points:
            points.write(f"[{group}]\n{kind} = {loader}\n")
    (held / "toy_asked.py").write_text(asked)
    (held / "toy_launch.py").write_text(launch)
    (held / "toy_runs.py").write_text(runs)
    (held / "toy_deployed.py").write_text(deployed)
    return home


def tool(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in the project, with the distribution installed."""
    path = os.pathsep.join([str(project.parent / "held"), str(ROOT)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def refused(home: Path) -> str:
    """What ``validate`` prints of an environment with mistakes."""
    done = tool(home, "-m", "millrace", "validate", "--env", "toy", "--no-spark")
    assert done.returncode == 2, done.stderr
    return done.stdout + done.stderr


@dataclass(frozen=True)
class Synthesised:
    """What came of a project: the plan as printed, the AWS services that it calls, templates by file name, the launch document."""

    plan: str
    services: list[str]
    templates: dict[str, str]
    launch_document: str

    @property
    def job(self) -> dict[str, Any]:
        """The template of the only job."""
        (text,) = (text for name, text in self.templates.items() if "-job-" in name)
        template: dict[str, Any] = json.loads(text)
        return template

    def statement(self, sid: str) -> dict[str, Any]:
        """A statement of the job's permissions."""
        found: list[dict[str, Any]] = [
            statement
            for each in self.job["Resources"].values()
            for statement in each.get("Properties", {}).get("PolicyDocument", {}).get("Statement", [])
            if statement.get("Sid") == sid
        ]
        (only,) = found
        return only


def synthesised(home: Path) -> Synthesised:
    """Validate, plan and synthesise the project."""
    for verb in ("validate", "plan"):
        planned = tool(home, "-m", "millrace", verb, "--env", "toy")
        assert planned.returncode == 0, planned.stderr
    out = home.parent / "out"
    done = tool(home, "-c", SYNTHESISE, str(out), str(ROOT))
    assert done.returncode == 0, done.stderr
    templates = {file.name: file.read_text() for file in out.glob("*.template.json")}
    services = json.loads(done.stdout.splitlines()[-1])["services"]
    made = Synthesised(planned.stdout, services, templates, "")
    document = made.job["Outputs"]["LaunchDocument"]["Value"].rsplit("/", 1)[1]
    return replace(made, launch_document=(out / f"asset.{document}").read_text())


def registered(
    monkeypatch: pytest.MonkeyPatch, home: Path, registry: dict[str, Any] | None = None, loader: str = ""
) -> None:
    """Let the core know the kind, in this process and for this test."""
    for module in ("toy_launch", "toy_runs"):
        monkeypatch.delitem(sys.modules, module, raising=False)  # of another toy
    monkeypatch.syspath_prepend(str(home.parent / "held"))
    if registry is not None:
        monkeypatch.setitem(registry, "toy", resolve_name(loader))


def ran(spark: SparkSession, job: JobSettings, events: Events) -> None:
    """Run the job's query over what is there, then end."""
    (query,) = build_queries.build_queries(JobRun(spark, job, {}, events.reporter))
    drained(query.rows, query.handle, query.checkpoint)
