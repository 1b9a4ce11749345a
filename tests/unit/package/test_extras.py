"""Each imported package is installed by default, or the message names its extra."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from millrace.cli import extras
from millrace.cli.app import main
from millrace.cli.run import setup
from millrace.sandbox.programs import setup as installing

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
ENGINES_OWN = {"awsglue", "millrace", "pipelines"}
LOADS_US = {"pytest"}
"""Loads the plugin of projects; without it nobody imports that."""

COMES_WITH = {
    "py4j": "pyspark",
    "botocore": "boto3",
    "click": "typer",
    "pydantic_core": "pydantic",
    "_ruamel_yaml": "ruamel.yaml",
}
"""Packages of others that need them, by import."""


def named(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[=<>~!; ]", each)[0].lower() for each in requirements}


def imported() -> dict[str, Path]:
    """Third parties that the tool and the infrastructure import, and a file that does; the core runs on engines."""
    result: dict[str, Path] = {}
    for folder in ("millrace", "infra"):
        for file in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []
                names += [each.name for each in node.names] if isinstance(node, ast.Import) else []
                result |= {name.partition(".")[0]: file for name in names}
    return {name: file for name, file in result.items() if name not in sys.stdlib_module_names}


@pytest.mark.slow
def test_every_import_is_installed_or_named_by_its_extra() -> None:
    base, optional = named(PROJECT["dependencies"]), PROJECT["optional-dependencies"]
    brought = packages_distributions()
    for module, file in imported().items():
        if module in ENGINES_OWN | LOADS_US:
            continue
        distributions = {COMES_WITH.get(module, each).lower() for each in brought.get(module, [module])}
        if distributions & base:
            assert module not in extras.EXTRAS, module
        else:
            assert module in extras.EXTRAS, f"{file} imports {module}: of no extra"
            assert distributions & named(optional[extras.EXTRAS[module]]), module


def test_who_lacks_an_extra_is_told_which(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(ROOT)
    error = ModuleNotFoundError(name="pyspark.sql")
    assert "pip install --require-hashes -r requirements-sandbox.txt" in str(
        extras.install_advice_for_missing_module(error)
    )
    for module in extras.EXTRAS:
        monkeypatch.setitem(sys.modules, module, None)
    page = tmp_path / "page.html"
    curves = ["millrace", "simulate", "--env", "minimal", "--for", "10m", "--html", str(page)]
    monkeypatch.setattr(sys, "argv", curves)
    with pytest.raises(SystemExit) as ended:
        main()
    assert not ended.value.code, "pages need the base only"
    assert "</html>" in page.read_text()


@pytest.mark.parametrize(
    "verb",
    [
        "demo",
        "sandbox run --env minimal",
        "bench clicks --env minimal",
        "verify --env minimal --sandbox --yes",
    ],
)
def test_a_verb_that_needs_spark_says_so_at_once(
    verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not the smaller extra of the first package that it imports, and then the other one."""
    monkeypatch.chdir(ROOT)
    for module in [each for each in sys.modules if each.startswith(("millrace.sandbox", "millrace.verify"))]:
        monkeypatch.delitem(sys.modules, module)
    for module in extras.EXTRAS:
        monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setattr(sys, "argv", ["millrace", *verb.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "requirements-sandbox.txt" in capsys.readouterr().err


@pytest.mark.parametrize(("spark", "wanted"), [(True, "millrace sandbox run"), (False, "pip install")])
def test_what_comes_after_setup_works(
    spark: bool, wanted: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(setup, "runs_in_millrace_clone", lambda: False)
    monkeypatch.setattr(installing, "install_all", lambda _: None)
    monkeypatch.setattr(setup, "find_spec", lambda _: object() if spark else None)
    setup.setup("sandbox")
    assert f"next step: {wanted} " in capsys.readouterr().out


def test_another_missing_module_is_a_defect() -> None:
    assert extras.install_advice_for_missing_module(ModuleNotFoundError(name="millrace.nothing")) is None
