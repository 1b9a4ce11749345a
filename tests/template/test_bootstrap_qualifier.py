"""The app uses the qualifier and buckets of `cdk bootstrap`, from the environment's keys or CDK's context."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, DefaultStackSynthesizer

from millrace.config import Environment, Names, load
from millrace.config.network_storage_governance_observability import Governance
from millrace.infra.environment_stacks import build_stacks
from millrace.sizing import plan
from tests.template.conftest import ROOT, Synthesis

ACCOUNT = "111122223333"
BOUNDARY = {"@aws-cdk/core:permissionsBoundary": {"name": "CompanyBoundary"}}
QUALIFIER = {"@aws-cdk/core:bootstrapQualifier": "acme1"}
OURS = f"arn:aws:iam::{ACCOUNT}:policy/Ours"


def synthesised(folder: Path, context: dict[str, Any], governance: Governance | None = None) -> Synthesis:
    """Environment dev as `cdk synth` writes it with a context."""
    environment: Environment = load("dev", root=ROOT)
    if governance is not None:
        environment = environment.model_copy(update={"governance": governance})
    given = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = App(outdir=str(folder), context=given | context, analytics_reporting=False)
    names, numbers = Names(environment, ACCOUNT), plan(environment)
    build_stacks(app, names=names, plan=numbers, root=ROOT)
    app.synth()
    return Synthesis(environment, numbers, names, folder)


def boundaries(found: Synthesis) -> set[str]:
    """Boundaries of all roles."""
    roles = found.resources("AWS::IAM::Role")
    assert roles
    return {json.dumps(role["Properties"].get("PermissionsBoundary")) for role in roles.values()}


def qualifiers(found: Synthesis) -> set[str]:
    """Qualifiers by which stacks look for the bootstrap's roles, its version and its bucket."""
    texts = [
        json.dumps(found.manifest),
        *(file.read_text() for file in found.folder.glob("*.assets.json")),
    ]
    known = (DefaultStackSynthesizer.DEFAULT_QUALIFIER, "acme1", "acme2")
    return {each for each in known if any(f"cdk-{each}-" in text or f"/{each}/" in text for text in texts)}


@pytest.fixture(scope="module")
def by_context(tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    return synthesised(tmp_path_factory.mktemp("context"), BOUNDARY | QUALIFIER)


@pytest.mark.slow
def test_cdks_own_context_reaches_every_role_and_every_stack(by_context: Synthesis) -> None:
    assert len(boundaries(by_context)) == 1
    assert "policy/CompanyBoundary" in boundaries(by_context).pop()
    assert qualifiers(by_context) == {"acme1"}


def test_the_environments_keys_go_before_it(tmp_path: Path) -> None:
    rules = Governance(permissions_boundary=OURS, qualifier="acme2")
    result = synthesised(tmp_path / "cdk.out", BOUNDARY | QUALIFIER, rules)
    assert boundaries(result) == {json.dumps(OURS)}
    assert qualifiers(result) == {"acme2"}
