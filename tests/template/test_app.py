"""The CDK app, as ``cdk`` runs it, writes the stacks of an environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App

from millrace.infra.app import synthesise_and_return_status
from tests.template.conftest import ENVIRONMENTS, ROOT

Run = Callable[[dict[str, str]], int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Give a function that runs the app with a context, without credentials."""
    for variable in [name for name in os.environ if name.startswith(("AWS_", "CDK_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.chdir(ROOT)

    def call(context: dict[str, str]) -> int:
        settings = json.loads((ROOT / "cdk.json").read_text())["context"]
        app = App(context=settings | context, outdir=str(tmp_path / "out"))
        return synthesise_and_return_status(app)

    return call


def test_without_an_environment_it_lists_them(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run({}) == 2
    message = capsys.readouterr().err
    assert "-c env=NAME" in message
    assert ", ".join(ENVIRONMENTS) in message
    assert "Traceback" not in message


def test_an_unknown_environment_is_a_message(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert run({"env": "prdo"}) == 2
    message = capsys.readouterr().err
    assert "prdo" in message
    assert "prod" in message


@pytest.mark.slow
def test_an_account_is_needed(
    run: Run, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nobody.yaml"
    text = (ROOT / "environments" / "minimal.yaml").read_text()
    file.write_text("\n".join(line for line in text.splitlines() if not line.startswith("account:")))
    assert run({"env": str(file)}) == 2
    assert "the account is unknown" in capsys.readouterr().err
    monkeypatch.setenv("CDK_DEFAULT_ACCOUNT", "999988887777")
    assert run({"env": str(file)}) == 0
    assert "999988887777" in (tmp_path / "out" / "manifest.json").read_text()


@pytest.mark.slow
def test_cdk_synthesises_without_credentials(tmp_path: Path) -> None:
    cdk = ROOT / "node_modules" / ".bin" / "cdk"
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("AWS_", "CDK_"))}
    environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment |= {"AWS_CONFIG_FILE": os.devnull, "AWS_SHARED_CREDENTIALS_FILE": os.devnull}
    environment |= {"AWS_EC2_METADATA_DISABLED": "true", "CDK_DISABLE_CLI_TELEMETRY": "true"}
    done = subprocess.run(
        [cdk, "synth", "--quiet", "-c", "env=minimal", "--output", tmp_path / "out"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "hello-minimal-storage.template.json").is_file()
