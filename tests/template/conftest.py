"""Synthesis of every environment, once for all tests of templates."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Validations
from cdk_nag import AwsSolutionsChecks

from millrace.config import Environment, Names, environment_names, load
from millrace.infra.environment_stacks import build_stacks
from millrace.sizing import Plan, plan

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENTS = environment_names(ROOT)

Resource = dict[str, Any]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden templates again")


@dataclass(frozen=True)
class Synthesis:
    """What one environment becomes."""

    environment: Environment
    plan: Plan
    names: Names
    folder: Path

    @functools.cached_property
    def templates(self) -> dict[str, dict[str, Any]]:
        """Templates by the part of the environment, such as ``storage`` or ``job-flights``."""
        prefix, suffix = f"{self.names.prefix}-", ".template.json"
        return {
            file.name.removeprefix(prefix).removesuffix(suffix): json.loads(file.read_text())
            for file in sorted(self.folder.glob(f"*{suffix}"))
        }

    @functools.cached_property
    def documents(self) -> dict[str, dict[str, Any]]:
        """Launch documents by job, read from the published asset that the stack's output names."""
        result = {}
        for job in self.environment.jobs:
            url = self.templates[f"job-{job}"]["Outputs"]["LaunchDocument"]["Value"]
            result[job] = json.loads((self.folder / f"asset.{url.rsplit('/', 1)[1]}").read_text())
        return result

    @property
    def manifest(self) -> dict[str, Any]:
        """The cloud assembly's manifest."""
        return dict(json.loads((self.folder / "manifest.json").read_text())["artifacts"])

    @property
    def findings(self) -> list[str]:
        """What the rule packs found."""
        report = json.loads((self.folder / "validation-report.json").read_text())
        return [
            f"{violation['ruleName']} at {construct['constructPath']}"
            for plugin in report["pluginReports"]
            for violation in plugin["violations"]
            for construct in violation["violatingConstructs"]
        ]

    def resources(self, kind: str, part: str | None = None) -> dict[str, Resource]:
        """Resources of one CloudFormation type, by ``part/logical id``."""
        return {
            f"{name}/{logical}": resource
            for name, template in self.templates.items()
            if part in (None, name)
            for logical, resource in template["Resources"].items()
            if resource["Type"] == kind
        }

    def the(self, kind: str, part: str) -> dict[str, Any]:
        """The properties of the only resource of a type in one stack."""
        (resource,) = self.resources(kind, part).values()
        return dict(resource["Properties"])

    def statements(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every statement of every policy of an IAM role, with its stack."""
        for name, template in self.templates.items():
            for resource in template["Resources"].values():
                if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
                    for statement in resource["Properties"]["PolicyDocument"]["Statement"]:
                        yield name, statement


Synthesise = Callable[[Environment], Synthesis]


@pytest.fixture(scope="session")
def synthesise(tmp_path_factory: pytest.TempPathFactory) -> Synthesise:
    """Give a function that synthesises an environment, checked by the rule packs as ``app.py`` does."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]

    def run(environment: Environment) -> Synthesis:
        folder = tmp_path_factory.mktemp(environment.name)
        app = App(outdir=str(folder), context=context, analytics_reporting=False)
        names = Names(environment, environment.account or "111122223333")
        numbers = plan(environment)
        build_stacks(app, names=names, plan=numbers, root=ROOT)
        Validations.of(app).add_plugins(AwsSolutionsChecks(app))
        app.synth()
        return Synthesis(environment=environment, plan=numbers, names=names, folder=folder)

    return run


@pytest.fixture(scope="session")
def synthesis(synthesise: Synthesise) -> Callable[[str], Synthesis]:
    """Give a function from an environment's name to its synthesis, made once."""
    return functools.cache(lambda name: synthesise(load(name, root=ROOT)))


@pytest.fixture(params=ENVIRONMENTS)
def each(request: pytest.FixtureRequest, synthesis: Callable[[str], Synthesis]) -> Synthesis:
    """Every environment of the repository."""
    return synthesis(request.param)


@pytest.fixture
def prod(synthesis: Callable[[str], Synthesis]) -> Synthesis:
    return synthesis("prod")


@pytest.fixture
def local(synthesis: Callable[[str], Synthesis]) -> Synthesis:
    return synthesis("local")


@pytest.fixture
def dev(synthesis: Callable[[str], Synthesis]) -> Synthesis:
    return synthesis("dev")
