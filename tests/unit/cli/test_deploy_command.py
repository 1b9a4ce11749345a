"""``millrace deploy``: one deployment at a time, and one JSON document for scripts."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from typer.testing import CliRunner, Result

from millrace.cli import app
from millrace.cli.run import changes_report, shared_cdk_steps
from millrace.cli.run import deploy as deploy_command
from millrace.cli.shared import console
from millrace.config import Names, load
from millrace.config.aws.deployed_sizes_to_keep import DeployedSizes
from millrace.config.network_storage_governance_observability import Governance
from millrace.lifecycle import upgrade_or_rollback_job as upgrade_steps
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.changes.deployment_changes import JobChange, StackChange
from millrace.lifecycle.deploy import DeploymentChanges
from millrace.sandbox.programs import cdk
from millrace.sandbox.rehearse_job_table_changes import StartRehearsal

ROOT = Path(__file__).parents[3]


@pytest.fixture
def synthesised(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Folders that were written; what is compared is one job that starts from the beginning and a table that grows."""
    paths: list[Path] = []
    change = DeploymentChanges(
        (), (JobChange("clicks", "leave", "restart", ("its launch document changes",)),), {}
    )
    names = Names(load("minimal", root=ROOT), "111122223333")
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(shared_cdk_steps, "state_folder", lambda: tmp_path)
    monkeypatch.setattr(
        shared_cdk_steps,
        "connect_to_account",
        lambda _: DeployedEnvironment(names, lambda _: None),
    )
    monkeypatch.setattr(shared_cdk_steps, "compare_with_deployed", lambda *_: change)
    monkeypatch.setattr(shared_cdk_steps, "read_deployed_sizes", lambda _: DeployedSizes())
    monkeypatch.setattr(cdk, "synthesise_assembly", lambda _env, folder, *_, **__: paths.append(folder))
    monkeypatch.setattr(
        changes_report, "rehearse_table_changes", lambda *_: StartRehearsal({"db.t": ("+ c bigint",)}, ())
    )
    monkeypatch.setattr(changes_report, "checkpoint_lines_of_jobs", lambda *_: [])
    return paths


def test_an_upgrade_tells_a_script_of_the_tables_too(synthesised: list[Path]) -> None:
    done = CliRunner().invoke(app, ["upgrade", "--env", "minimal", "clicks", "--diff", "--json"])
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["tables"] == {"db.t": ["+ c bigint"]}
    assert document["jobs"]["clicks"]["after"] == "restart"
    shown = CliRunner().invoke(app, ["upgrade", "--env", "minimal", "clicks", "--diff"])
    assert shown.stdout.splitlines()[-1] == "table db.t: + c bigint"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["deploy", "--env", "minimal", *arguments])


def test_each_command_has_a_folder_of_its_own_until_it_has_ended(
    synthesised: list[Path], tmp_path: Path
) -> None:
    """Another one that begins while the first waits for an answer would write over what it has shown."""
    own, waiting, done = (tmp_path / "deploy/minimal" / str(n) for n in (os.getpid(), os.getppid(), 2**30))
    earlier = done.with_name(f"{done.name}-clicks-earlier")
    for folder in (waiting, done, earlier):
        folder.mkdir(parents=True)
    assert run("--diff").exit_code == 0
    assert synthesised == [own]
    assert [folder.exists() for folder in (waiting, done, earlier)] == [True, False, False]


def test_a_script_reads_one_document_with_the_tables_that_change(
    synthesised: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "sys", SimpleNamespace(stdin=SimpleNamespace(isatty=lambda: True)))
    monkeypatch.setattr(typer, "confirm", lambda text, *, err: typer.echo(text, err=err))
    done = run("--json")
    assert done.exit_code == 1
    document = json.loads(done.stdout)
    assert document["tables"] == {"db.t": ["+ c bigint"]}
    assert document["jobs"]["clicks"]["after"] == "restart"
    assert "Deploy this?" in done.stderr


def test_a_plan_above_its_limit_is_shown_and_deployed_by_nobody(
    synthesised: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    limited = Governance(max_month=10)
    environment = load("minimal", root=ROOT).model_copy(update={"governance": limited})
    monkeypatch.setattr(deploy_command, "load", lambda _: environment)
    assert run("--diff").exit_code == 0
    assert len(synthesised) == 1
    done = run("--yes")
    assert done.exit_code == 2
    assert "more than the $10.00 of governance.max_month; nothing was deployed" in done.output
    assert len(synthesised) == 1


def test_a_rollback_that_nobody_watches_gives_nobody_more(
    synthesised: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    wider = StackChange("job", False, (), ("+ Allow s3:GetObject on arn:aws:s3:::others/*",))
    url = Names(load("minimal", root=ROOT), "111122223333").checkpoints_url("clicks")
    settings = {"checkpoints": url}
    version = SimpleNamespace(
        at="then", document_url="s3://a/1.json", read_launch_document=lambda _: {"settings": settings}
    )
    done = []
    monkeypatch.setattr(deploy_command, "find_previous_version", lambda *_: version)
    monkeypatch.setattr(upgrade_steps, "rollback_changes", lambda *_: DeploymentChanges((wider,), (), {}))
    monkeypatch.setattr(
        upgrade_steps, "roll_back_job_and_tell_if_started", lambda *_, **__: not done.append(1)
    )
    monkeypatch.setattr(deploy_command, "checkpoint_refusals", lambda *_: [])
    command = ["rollback", "--env", "minimal", "clicks", "--yes"]
    refused = CliRunner().invoke(app, command)
    assert (refused.exit_code, done) == (2, [])
    assert "job: + Allow s3:GetObject on arn:aws:s3:::others/*" in refused.output
    assert CliRunner().invoke(app, [*command, "--wider"]).exit_code == 0
    assert done == [1]
    settings["checkpoints"] = "s3://x/first"
    other = CliRunner().invoke(app, [*command, "--wider"])
    assert (other.exit_code, done) == (1, [1]), "the name was another job's before"
    assert "with the checkpoints s3://x/first" in other.output


def test_updates_that_aws_takes_one_by_one_are_deployed_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assembly = tmp_path / "7"
    assembly.mkdir()
    hashes = {"a": "aaaa", "b": "bbbb"}
    for stack, digest in hashes.items():
        (assembly / f"{stack}.template.json").write_text('{"Resources": {"n": 3}}')
        files = {
            digest: {"source": {"path": f"{stack}.template.json"}, "destinations": {"x": f"{digest}.json"}}
        }
        (assembly / f"{stack}.assets.json").write_text(json.dumps({"files": files}))
    (assembly / "manifest.json").write_text(json.dumps({k: f"s3://x/{v}.json" for k, v in hashes.items()}))
    calls: list[tuple[list[str], dict[str, str], bool]] = []

    def note(arguments: list[str], _: object, *, shown: bool) -> None:
        folder = Path(arguments[arguments.index("-a") + 1])
        templates = {stack: (folder / f"{stack}.template.json").read_text() for stack in hashes}
        manifest = json.loads((folder / "manifest.json").read_text())
        named = all(
            manifest[stack].split("/")[-1].removesuffix(".json")
            in json.loads((folder / f"{stack}.assets.json").read_text())["files"]
            for stack in hashes
        )
        calls.append(([each for each in arguments[1:3] if each in ("--all", *hashes)], templates, named))

    monkeypatch.setattr(cdk, "run_cdk", note)
    whole = {"Resources": {"n": 3}}
    steps = [(f"{n} shards", {"Resources": {"n": n}}) for n in (1, 2)]
    shared_cdk_steps.cdk_deploy_all(
        assembly,
        ("b",),
        {"a": [*steps, ("3 shards", whole)], "b": [steps[0], ("x", whole)]},
        imports=False,
    )
    shown = [
        (stacks, json.loads(templates["a"])["Resources"]["n"], json.loads(templates["b"])["Resources"]["n"])
        for stacks, templates, _ in calls
    ]
    assert shown == [(["b"], 1, 1), (["--all"], 1, 1), (["a", "b"], 2, 3), (["a"], 3, 3)]
    assert all(named for *_, named in calls)
    calls.clear()
    shared_cdk_steps.cdk_deploy_all(assembly, (), {}, imports=False)
    assert [(stacks, json.loads(t["a"])) for stacks, t, _ in calls] == [(["--all"], whole)]
