"""``millrace plan --diff`` shows sizes and dollars that differ from another version of the project."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli.plan.plan_diff import KeyChange, changed_keys, changed_keys_as_markdown
from millrace.config import ConfigurationError

ROOT = Path(__file__).parents[3]


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=T", "-c", "user.email=t@example.com", *arguments], cwd=folder, check=True
    )


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with one commit, in which a link leads out of it, and a change on top: five times the records, and a second job."""
    for name in ("environments", "pipelines"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    (tmp_path / "linked").symlink_to("/nowhere/at/all")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "as it was")
    file = tmp_path / "environments" / "minimal.yaml"
    text = file.read_text()
    assert "records_per_second: 800" in text
    file.write_text(text.replace("records_per_second: 800", "records_per_second: 8000"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> str:
    done = CliRunner().invoke(app, ["plan", "--env", "minimal", *arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.stdout


def test_what_a_change_costs_and_which_sizes_it_moves(project: Path) -> None:
    result = json.loads(run("--diff", "HEAD", "--json"))["differences"]
    by_key = {each["key"]: each for each in result}
    assert list(by_key)[:3] == ["total", "streams.clicks", "jobs.clicks"]
    assert by_key["total"]["more"] == pytest.approx(by_key["total"]["after"] - by_key["total"]["before"])
    shards = by_key["streams.clicks.expected_partitions"]
    assert (shards["before"], shards["after"], shards["unit"]) == (1, 8, "shards")
    assert by_key["jobs.clicks.cores"]["more"] > 0
    assert not any(".cost" in key or "choices" in key for key in by_key)
    assert "| `streams.clicks.expected_partitions` | 1 shard | 8 shards | +7 |" in run(
        "--diff", "HEAD", "--markdown"
    )
    assert "streams.clicks.expected_partitions" in run("--diff", "HEAD")


def test_what_guards_something_is_told_first_where_no_size_changes(project: Path) -> None:
    """A boundary that goes, another role, disposable buckets, a field that is no longer cut out: none costs anything."""
    file = project / "environments" / "minimal.yaml"
    text = git_show(project, "environments/minimal.yaml")
    guarded = (
        text.replace("        kind: land\n", "        kind: land\n        redact: [referrer, page]\n", 1)
        + "\ngovernance: {permissions_boundary: 'arn:aws:iam::111122223333:policy/limits'}\ntags: {team: a}\n"
    )
    assert guarded.count("redact") == 1
    file.write_text(guarded)
    git(project, "commit", "-qam", "guarded")
    opened = text.replace(
        "    engine: glue", "    role: arn:aws:iam::111122223333:role/admin\n    engine: glue", 1
    )
    file.write_text(opened + "\nremoval: destroy\ntags: {team: b}\n")
    table = run("--diff", "HEAD", "--markdown")
    assert table.startswith("No size and no cost differs from the plan of `HEAD`.\n")
    rows = [line.split(" | ") for line in table.splitlines() if line.startswith("| `")]
    assert [row[0].strip("| `") for row in rows if "security" in row[3]] == [
        "jobs.clicks.queries.land-clicks.redact[0]",
        "jobs.clicks.queries.land-clicks.redact[1]",
        "governance.permissions_boundary",
        "jobs.clicks.role",
        "removal",
    ]
    assert [row[0].strip("| `") for row in rows][-1] == "tags.team"
    odd = changed_keys_as_markdown([KeyChange("k", "a ` | **b** |\n| c", None, guards=False)]).splitlines()
    assert odd[3:] == ["| `k` | `a     **b**     c` | - |  |"], "a value makes no cell and no text of its own"
    said = run("--diff", "HEAD").splitlines()
    assert "  governance.permissions_boundary: arn:aws:iam::111122223333:policy/limits → - (security)" in said
    assert json.loads(run("--diff", "HEAD", "--json"))["keys"][-1]["key"] == "tags.team"


def test_who_is_told_and_which_key_is_used_guard_something() -> None:
    keys = [
        "observability.channel_role", "observability.channels[0]", "streams.clicks.existing_key", "kafka.theirs.arn",
        "jobs.clicks.queries.q.sink.table_key", "jobs.clicks.queries.q.sink.endpoint", "storage.lake_formation",
        "storage.database", "jobs.clicks.queries.q.format.registry", "governance.bootstrap_key",
        "tables.pages.key", "storage.keys.data", "jobs.clicks.queries.q.sink.secret_key",
    ]  # fmt: skip
    assert [each.key for each in changed_keys({}, dict.fromkeys(keys, "x")) if each.guards] == keys
    plain = ["streams.clicks.topic", "jobs.clicks.latency", "jobs.clicks.queries.q.sink.table", "tags.roles"]
    plain += [f"jobs.clicks.queries.q.{each}" for each in ("sink.key", "latest_by.key[0]", "state.key[1]")]
    assert not any(each.guards for each in changed_keys({}, dict.fromkeys(plain, "x")))


def test_a_file_outside_of_the_project_is_in_no_commit(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("elsewhere") / "minimal.yaml"
    shutil.copy(project / "environments" / "minimal.yaml", outside)
    done = CliRunner().invoke(app, ["plan", "--env", str(outside), "--diff", "HEAD"])
    assert isinstance(done.exception, ConfigurationError)
    assert "lies outside of the project" in str(done.exception)


@pytest.mark.slow
def test_what_the_templates_permit_is_compared_without_an_account(project: Path) -> None:
    """A boundary that goes, a stream of somebody else's that is read, buckets that are deleted: each costs nothing."""
    file = project / "environments" / "minimal.yaml"
    text = file.read_text().replace("records_per_second: 8000", "records_per_second: 800")
    boundary = "\ngovernance: {permissions_boundary: 'arn:aws:iam::111122223333:policy/limits'}\n"
    file.write_text(text + boundary)
    git(project, "commit", "-aqm", "guarded")
    assert json.loads(run("--diff", "HEAD", "--json", "--templates"))["templates"] == []
    assert "No permission, data, key, bucket or network of the templates differs." in run(
        "--diff", "HEAD", "--markdown", "--templates"
    )
    disposable = "removal: destroy\nstorage: {disposable: [lake]}\nobservability: {notify: [a@example.com]}\n"
    file.write_text(text + disposable)
    lines = json.loads(run("--diff", "HEAD", "--json", "--templates"))["templates"]
    job = "hello-minimal-job-clicks"
    assert any(
        line.startswith(f"- {job}: AWS::IAM::Role") and line.endswith("policy/limits (wider)")
        for line in lines
    )
    assert [line.endswith("(wider)") for line in lines] == sorted(
        (line.endswith("(wider)") for line in lines), reverse=True
    )
    assert any(line.startswith("~ hello-minimal-storage: AWS::S3::Bucket Lake") for line in lines)
    shown = run("--diff", "HEAD", "--markdown", "--templates")
    assert "```diff\n- hello-minimal" in shown
    assert shown.count("```") == 2


def git_show(folder: Path, file: str) -> str:
    return subprocess.run(
        ["git", "show", f"HEAD:{file}"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout


def test_the_same_plan_and_a_file_of_one(project: Path) -> None:
    kept = project / "plan.json"
    kept.write_text(run("--json"))
    assert run("--diff", str(kept)) == f"sizes and costs are the same as in the plan of {kept}\n"
    assert json.loads(run("--diff", str(kept), "--json"))["differences"] == []
    assert (
        run("--diff", str(kept), "--markdown") == f"No size and no cost differs from the plan of `{kept}`.\n"
    )


def test_a_job_that_is_new_is_told_by_its_dollars(project: Path) -> None:
    kept = project / "plan.json"
    document = json.loads(run("--json"))
    other = {**document, "jobs": {}}
    kept.write_text(json.dumps(other))
    result = json.loads(run("--diff", str(kept), "--json"))["differences"]
    assert [(each["key"], each["before"]) for each in result] == [("jobs.clicks", None)]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--diff", "nowhere"), "--diff is nowhere; allowed: a commit, branch or tag"),
        (("--diff", "--output=x"), "--diff is --output=x"),
        (("--diff", "broken.json"), "broken.json"),
        (("--markdown",), "only with --diff"),
    ],
)
def test_what_is_no_plan_is_told(project: Path, arguments: tuple[str, ...], told: str) -> None:
    (project / "broken.json").write_text("{}")
    with pytest.raises(ConfigurationError) as error:
        run(*arguments)
    assert told in str(error.value)
    assert not (project / "x").exists()


def test_an_environment_that_was_not_there(project: Path) -> None:
    (project / "environments" / "young.yaml").write_text(
        (project / "environments" / "minimal.yaml").read_text()
    )
    with pytest.raises(ConfigurationError, match="at that version young cannot be planned"):
        CliRunner().invoke(app, ["plan", "--env", "young", "--diff", "HEAD"], catch_exceptions=False)
