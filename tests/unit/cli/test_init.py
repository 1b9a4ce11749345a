"""``millrace init``, and what a project that it writes is to every verb."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.config import environments, load
from millrace.config.schema import schema_text
from tests.unit.cli.test_commands import ROOT, millrace


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "my-streams"
    done = millrace("init", str(folder))
    assert done.returncode == 0, done.stderr
    return folder


def test_a_new_project_is_valid_and_named_after_its_folder(project: Path) -> None:
    assert environments(project) == ("dev",)
    environment = load("dev", root=project)
    assert (environment.project, environment.account) == ("my-streams", None)
    assert (project / "environments" / "schema.json").read_text() == schema_text()
    bound = json.loads((project / ".vscode" / "settings.json").read_text())["yaml.schemas"]
    assert bound == {"environments/schema.json": "environments/*.yaml"}


def test_its_app_is_the_clones(project: Path) -> None:
    for name in ("app.py", "cdk.json"):
        assert (project / name).read_text() == (ROOT / name).read_text()


def test_the_workflow_signs_in_without_a_key_and_comments(project: Path) -> None:
    text = (project / ".github" / "workflows" / "millrace.yaml").read_text()
    for wanted in ("id-token: write", "role-to-assume: ${{ vars.AWS_ROLE }}", '--diff "$BASE" --markdown'):
        assert wanted in text
    assert "aws-access-key" not in text


def test_the_environment_may_be_a_variable(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_ENV", "dev")
    done = millrace("validate", cwd=project / "pipelines")
    assert (done.returncode, done.stdout) == (0, "dev is valid: 1 stream, 1 job\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [(["Größe"], "lower-case letters"), (["x", "--name", "Our Streams"], "lower-case letters")],
)
def test_a_name_that_aws_would_not_take_is_refused(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = millrace("init", *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    done = millrace("init", str(tmp_path), "--name", "my-streams")
    assert done.returncode == 2
    assert "no file is overwritten" in done.stderr
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
