"""``millrace init`` writes a project that every command accepts."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from millrace.config import environment_names, load
from millrace.config.environment_json_schema import schema_text
from tests.unit.cli.test_command_output import ROOT, millrace


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new") / "my-streams"
    done = millrace("init", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    assert all(str(folder) in line for line in done.stdout.splitlines()), "no other folder is the reader's"
    return folder


def test_a_new_project_is_valid_and_named_after_its_folder(project: Path) -> None:
    assert environment_names(project) == ("dev", "prod")
    dev, prod = (load(name, root=project) for name in environment_names(project))
    assert dev.project == prod.project == "my-streams"
    assert None not in {dev.account, prod.account}
    assert dev.account != prod.account
    assert (project / "environments" / "schema.json").read_text() == schema_text()
    bound = json.loads((project / ".vscode" / "settings.json").read_text())["yaml.schemas"]
    assert bound == {"environments/schema.json": "environments/*.yaml"}


def test_its_app_is_the_clones(project: Path) -> None:
    for name in ("app.py", "cdk.json"):
        assert (project / name).read_text() == (ROOT / name).read_text()


def test_the_workflow_gives_credentials_to_no_test_and_pins_what_it_runs(project: Path) -> None:
    texts = {each.stem: each.read_text() for each in (project / ".github" / "workflows").iterdir()}
    main, called = (YAML(typ="safe").load(texts[name]) for name in ("millrace", "deploy"))
    assert main["permissions"] == called["permissions"] == {"contents": "read"}
    jobs = main["jobs"]
    assert [n for n, job in jobs.items() if "id-token" in job.get("permissions", {})] == ["dev", "prod"]
    assert "aws-access-key" not in "".join(texts.values())
    steps = {name: job["steps"] for name, job in {**jobs, **called["jobs"]}.items() if "steps" in job}
    tested = [n for n, own in steps.items() if any("pytest" in step.get("run", "") for step in own)]
    assert tested == ["test"]
    for step in (each for own in steps.values() for each in own):
        if "uses" in step:
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", step["uses"]), step
        assert "pip install" not in step.get("run", "") or "--require-hashes -r" in step["run"], step
        # Nobody writes a pull request's title or branch into a shell.
        assert "${{" not in step.get("run", ""), step
    assert '--diff "$BASE" --markdown --templates' in texts["millrace"]
    assert "--edit-last" not in texts["millrace"]
    assert texts["millrace"].count("<!-- millrace plan $MILLRACE_ENV -->") == 2


def test_the_workflow_deploys_dev_and_after_an_approval_prod(project: Path) -> None:
    folder = project / ".github" / "workflows"
    jobs = YAML(typ="safe").load((folder / "millrace.yaml").read_text())["jobs"]
    assert jobs["plan"]["strategy"]["matrix"]["env"] == ["dev", "prod"] == list(environment_names(project))
    assert (jobs["dev"]["needs"], jobs["prod"]["needs"]) == ("test", "dev")
    called = YAML(typ="safe").load((folder / "deploy.yaml").read_text())
    (deploying,) = called["jobs"].values()
    assert deploying["environment"] == "${{ inputs.env }}"  # whose reviewers GitHub asks
    (inputs,) = called["on"].values()
    for name in ("dev", "prod"):
        assert jobs[name]["uses"] == "./.github/workflows/deploy.yaml"
        assert jobs[name]["with"]["env"] == name
        assert jobs[name]["with"].keys() == inputs["inputs"].keys()


def test_the_workflow_takes_account_and_region_from_the_file(project: Path, tmp_path: Path) -> None:
    """The step's own line, with a command line that prints what `millrace validate --json` prints."""
    called = YAML(typ="safe").load((project / ".github" / "workflows" / "deploy.yaml").read_text())
    steps = called["jobs"]["deploy"]["steps"]
    (line,) = (step["run"] for step in steps if step.get("id") == "target")
    asked, _, program = line.partition(" | ")
    assert asked == "millrace validate --json"
    keys = re.search(r"IN\((.*?)\)", program)
    assert keys is not None
    named = json.loads(f"[{keys[1]}]")
    for name, account in (("dev", "111122223333"), ("prod", "444455556666")):
        done = millrace("validate", "--env", name, "--no-spark", "--json", cwd=project)
        found = json.loads(done.stdout)
        assert [found[key] for key in named] == ["aws", account, "us-east-1"]
    used = "\n".join(str(step.get("with", "")) for step in steps)
    assert set(re.findall(r"steps\.target\.outputs\.(\w+)", used)) == set(named)


def test_nothing_that_is_written_installs_millrace_by_its_name(project: Path) -> None:
    """On the public index the name of the command is somebody else's, and any name may become so."""
    written = [file for file in project.rglob("*") if file.is_file() and file.suffix != ".whl"]
    pages = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "Makefile", *(ROOT / "docs").rglob("*.md")]
    code = [*(ROOT / "millrace").rglob("*.py"), *(ROOT / "millrace" / "cli" / "plan").rglob("*.template")]
    asked = re.compile(
        r"(pip|pipx|uv|poetry)\b[^\n]*\b(install|add|run|tool)\b[^\n]*|^millrace[\w-]*\s*(\[[^\]]*\])?\s*[=~<>@].*",
        re.M,
    )
    named = re.compile(r"(?<![\w./-])millrace(-streams)?(\[[\w,]+\])?(?=['\"\s=<>~]|$)(?! (vendor|init))")
    for file in (*written, *pages, *code):
        for found in asked.finditer(file.read_text(encoding="utf-8")):
            line = found.group().partition(" && ")[0].partition("#")[0]
            assert not named.search(line.partition("install")[2] or line), (file, line)


def test_the_wheel_that_runs_is_the_projects_and_pinned(project: Path) -> None:
    (wheel,) = (project / "vendor").iterdir()
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    with zipfile.ZipFile(wheel) as packed:
        names = set(packed.namelist())
        record = packed.read(next(name for name in names if name.endswith("/RECORD"))).decode()
    assert names == {line.split(",")[0] for line in record.splitlines()}
    assert {"millrace/cli/plan/init_project.py", "millrace/etl/main.py"} <= names
    for name, extras in (
        ("", ""),
        ("-deploy", "[deploy]"),
        ("-sandbox", "[sandbox]"),
    ):
        lines = (project / f"requirements{name}.txt").read_text().replace("\\\n", "").splitlines()
        wanted, *others = (line for line in lines if not line.startswith("#"))
        assert wanted.split() == [f"./vendor/{wheel.name}{extras}", f"--hash=sha256:{digest}"]
        for line in others:
            assert re.match(r"[\w.-]+==\S+ +--hash=sha256:[0-9a-f]{64}", line), line
    assert "pytest==" in (project / "requirements-sandbox.txt").read_text()


def test_the_locks_of_a_project_are_the_clones() -> None:
    """Its parts are in the bill of materials and are asked about, as the clone's are."""
    pinned = {
        block.partition(" ")[0]: block
        for f in ("requirements.txt", "toolchain/dev.txt")
        for block in blocks(ROOT / f)
    }
    for file in (ROOT / "toolchain" / "locks").iterdir():
        for block in blocks(file):
            assert pinned[block.partition(" ")[0]] == block


def blocks(file: Path) -> list[str]:
    return [each.strip() for each in re.split(r"\n(?=\S)", file.read_text())]


def test_another_wheel_takes_the_place_of_the_one_that_is_there(project: Path, tmp_path: Path) -> None:
    here = tmp_path / "copy"
    shutil.copytree(project, here)
    (old,) = (here / "vendor").iterdir()
    newer = tmp_path / old.name.replace("0.1.0", "0.2.0")
    shutil.copy(old, newer)
    done = millrace("vendor", str(newer), cwd=here)
    assert done.returncode == 0, done.stderr
    assert [each.name for each in (here / "vendor").iterdir()] == [newer.name]
    assert f"./vendor/{newer.name}" in (here / "requirements.txt").read_text()
    other = tmp_path / "other.whl"
    with zipfile.ZipFile(other, "w") as packed:
        packed.writestr("stranger/__init__.py", "")
    refused = millrace("vendor", str(other), cwd=here)
    assert refused.returncode == 2
    assert "a wheel of Millrace with its locks" in refused.stderr
    assert [each.name for each in (here / "vendor").iterdir()] == [newer.name]


def test_the_environment_may_be_a_variable(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_ENV", "dev")
    done = millrace("validate", "--no-spark", cwd=project / "pipelines")
    assert (done.returncode, done.stdout) == (0, "dev is valid: 1 stream, 1 job\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["Größe"], "lower-case letters"),
        (["x", "--name", "Our Streams"], "lower-case letters"),
        (["aws-thing"], "FOLDER is aws-thing; allowed: a name that does not begin with aws or ssm"),
        (["x", "--name", "ssm-x"], "--name is ssm-x; allowed: a name that does not begin with aws or ssm"),
        (["my-company-streaming-platform"], "project and environment together up to 27 characters"),
    ],
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
