"""The wheel outside the clone: its content, a new project, and the same templates as from the clone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from millrace.sandbox.programs.toolchain import ROOT, node_bin_folder, state_folder

MOST_BYTES = 300_000_000
"""Of the base installation, without what Python compiles."""

LEFT_OUT = ("toolchain/policy/", "toolchain/browser/", "toolchain/dev.txt", "toolchain/mkdocs.yml")
LOG = ROOT / "tests" / "unit" / "advisor" / "data"
ACCOUNT = "111122223333"


SETUP_SECONDS = 900
"""For programs that fetch a gigabyte, and for Spark behind them."""


def run(
    command: list[str | Path], cwd: Path, seconds: int = 280, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a program that finds nothing of the clone by its environment."""
    own = {
        name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_", "PYTHON"))
    }
    return subprocess.run(
        command,
        cwd=cwd,
        env={**own, **variables},
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
    )


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel in it."""

    home: Path

    @property
    def python(self) -> Path:
        return self.home / "bin" / "python"

    @property
    def packages(self) -> Path:
        return self.home / "lib" / "python3.11" / "site-packages"

    def millrace(self, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        return run([self.home / "bin" / "millrace", *arguments], cwd)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    uv = state_folder() / "uv" / "bin" / "uv"
    done = run(
        [
            *(uv, "build", "--quiet", "--wheel", "--out-dir", folder),
            *("--build-constraints", ROOT / "requirements.txt"),
            ROOT,
        ],
        ROOT,
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("*.whl")
    return built


def install(project: Path, extra: str = "") -> Installed:
    """Install a project's requirements into an environment of its own: everything is held against its hash."""
    home, uv = project.parent / f"python-{extra or 'base'}", state_folder() / "uv" / "bin" / "uv"
    lock = f"requirements-{extra}.txt" if extra else "requirements.txt"
    for command in (
        ["venv", "--quiet", "--python", "3.11", home],
        ["pip", "install", "--quiet", "--python", home / "bin" / "python", "--require-hashes", "-r", lock],
    ):
        done = run([uv, *command], project)
        assert done.returncode == 0, done.stderr
    return Installed(home)


@pytest.fixture(scope="module")
def base(project: Path) -> Installed:
    return install(project)


@pytest.fixture(scope="module")
def deploying(project: Path) -> Installed:
    return install(project, "deploy")


@pytest.fixture(scope="module")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("outside") / "my-streams"
    done = run([sys.executable, "-m", "millrace", "init", folder], folder.parent, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    (vendored,) = (folder / "vendor").iterdir()
    assert files(vendored) == files(wheel)
    assert done.stdout.splitlines()[-1] == f"next step: cd {folder} && millrace plan --env dev"
    return folder


def files(wheel: Path) -> Mapping[str, bytes]:
    with zipfile.ZipFile(wheel) as packed:
        return {name: packed.read(name) for name in packed.namelist() if not name.endswith("/RECORD")}


@pytest.mark.slow
def test_an_installed_millrace_puts_its_own_wheel_into_a_project(
    base: Installed, wheel: Path, tmp_path: Path
) -> None:
    done = base.millrace("init", tmp_path / "more", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (vendored,) = (tmp_path / "more" / "vendor").iterdir()
    assert files(vendored) == files(wheel)
    # Installed with its hash, it is the same program, and packs itself again into the same bytes.
    again = install(tmp_path / "more").millrace("init", tmp_path / "again", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    (second,) = (tmp_path / "again" / "vendor").iterdir()
    assert second.read_bytes() == vendored.read_bytes()
    changed = base.packages / "millrace" / "cli" / "app.py"
    text = changed.read_bytes()
    try:
        changed.write_bytes(text + b"\n")
        refused = base.millrace("init", tmp_path / "third", cwd=tmp_path)
    finally:
        changed.write_bytes(text)
    assert refused.returncode == 2
    assert "was changed since its installation from the wheel" in refused.stderr


def test_the_wheel_holds_every_file_of_the_package_and_no_other_at_the_top(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
    here = set()
    for folder, folders, files in os.walk(ROOT / "millrace", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        here |= {(Path(folder) / name).relative_to(ROOT).as_posix() for name in files}
    wanted = {
        name
        for name in here
        if not name.removeprefix("millrace/").startswith(LEFT_OUT) and not name.endswith((".in", ".sh"))
    }
    assert held - wanted == {
        f"millrace/toolchain/node/{name}" for name in ("package.json", "package-lock.json")
    }
    assert wanted <= held
    assert {"millrace/etl/main.py", "millrace/infra/app.py", "millrace/toolchain/jars.lock.json"} <= held


@pytest.mark.slow
def test_the_base_is_small_and_decides(base: Installed, project: Path) -> None:
    files = [each for each in base.packages.rglob("*") if each.is_file() and each.suffix != ".pyc"]
    assert sum(each.stat().st_size for each in files) < MOST_BYTES
    for absent in ("pyspark", "aws_cdk", "etl", "infra", "pipelines", "tests"):
        assert not (base.packages / absent).exists(), absent
    valid = base.millrace("validate", "--env", "dev", cwd=project)
    assert valid.stdout == "dev is valid: 1 stream, 1 job\n", valid.stderr
    # From a folder below, as any verb: the project is found upwards.
    plan = base.millrace("plan", "--env", "dev", "--json", cwd=project / "pipelines" / "orders")
    assert json.loads(plan.stdout)["jobs"]["orders"], plan.stderr
    assert base.millrace("simulate", "--env", "dev", cwd=project).returncode == 0
    assert base.millrace("cost", "--env", "dev", cwd=project).returncode == 0
    advice = base.millrace("advise", LOG, cwd=project)
    assert advice.returncode == 0, advice.stderr
    assert "batches" in advice.stdout


@pytest.mark.slow
def test_a_verb_whose_part_is_left_out_says_which(base: Installed, project: Path) -> None:
    for extra, *verb in (
        ("deploy", "deploy"),
        ("sandbox", "bench", "orders"),
    ):
        done = base.millrace(*verb, "--env", "dev", cwd=project)
        assert done.returncode == 2, (verb, done.stderr)
        (line,) = done.stderr.splitlines()
        assert f"pip install --require-hashes -r requirements-{extra}.txt" in line


@pytest.mark.slow
def test_a_folder_that_holds_something_is_left_alone(base: Installed, project: Path) -> None:
    before = (project / "environments" / "dev.yaml").read_bytes()
    done = base.millrace("init", project, cwd=project)
    assert done.returncode == 2
    assert "a new or empty folder" in done.stderr
    assert (project / "environments" / "dev.yaml").read_bytes() == before


def templates(python: Path, folder: Path, environment: str, out: Path) -> Mapping[str, bytes]:
    """Run ``app.py`` as ``cdk`` does; templates and files of jobs by name."""
    context = {**json.loads((folder / "cdk.json").read_text())["context"], "env": environment}
    done = run(
        [python, "app.py"],
        folder,
        CDK_CONTEXT_JSON=json.dumps(context),
        CDK_OUTDIR=str(out),
        CDK_DEFAULT_ACCOUNT=ACCOUNT,
        PATH=os.pathsep.join([str(node_bin_folder()), os.environ["PATH"]]),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {file.name: file.read_bytes() for file in out.iterdir() if file.name.endswith(".template.json")}


@pytest.mark.slow
def test_templates_are_those_of_the_clone(deploying: Installed, project: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for name in ("environments", "pipelines"):
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("app.py", "cdk.json"):
        shutil.copy(ROOT / name, copy / name)
    ours = templates(Path(sys.executable), ROOT, "minimal", tmp_path / "clone")
    assert templates(deploying.python, copy, "minimal", tmp_path / "wheel") == ours
    own = templates(deploying.python, project, "dev", tmp_path / "own")
    assert "my-streams-dev-job-orders.template.json" in own
    archives = [zipfile.ZipFile(file) for file in (tmp_path / "own").glob("asset.*.zip")]
    (names,) = [each.namelist() for each in archives if "millrace/etl/main.py" in each.namelist()]
    # The project's transforms travel, not the examples of the clone.
    assert {name for name in names if name.startswith("pipelines/")} == {
        file.relative_to(project).as_posix() for file in (project / "pipelines").rglob("*") if file.is_file()
    }


@pytest.mark.slow
def test_two_environments_of_another_day_make_the_same_archive(
    deploying: Installed, project: Path, tmp_path: Path
) -> None:
    """Also where libraries travel with a job: on EMR Serverless boto3 is that of the lock."""
    text = "extends: dev\njobs: {orders: {engine: emr}}\n"
    again = tmp_path / "my-streams"
    shutil.copytree(project, again)
    made = []
    for place, installed in ((project, deploying), (again, install(again, "deploy"))):
        (place / "environments" / "emr.yaml").write_text(text)
        out = tmp_path / f"assembly-{len(made)}"
        result = templates(installed.python, place, "emr", out)
        made.append((result, {file.name: file.read_bytes() for file in out.glob("asset.*.zip")}))
    assert made[0] == made[1]
    names = [
        n for file in (tmp_path / "assembly-0").glob("asset.*.zip") for n in zipfile.ZipFile(file).namelist()
    ]
    assert "carried/boto3/session.py" in names
