"""Differences of two versions of a project in what their templates permit, without an account: for a pull request."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millrace.config import Environment, Names
from millrace.lifecycle.changes.deployment_changes import compare_templates
from millrace.lifecycle.changes.permission_changes import DeployedPermissionKinds
from millrace.sandbox.programs.toolchain import node_bin_folder
from millrace.sizing import plan

_NO_ACCOUNT = "000000000000"
"""Account of an environment that names none: both versions have the same."""

_SETTINGS = Path(__file__).parents[1] / "new_project" / "cdk.json.template"
"""CDK's settings of a new project, for one without."""

_GUARDS = ("AWS::IAM::", "AWS::KMS::", "AWS::S3::", "AWS::EC2::")
"""Beginnings of types of resources that say who may do what, or hold data and keys."""

_SHOWN_LINES = 200
"""Lines of a comment, of which GitHub takes 65,536 characters."""

Templates = Mapping[str, Mapping[str, Any]]


def synthesize_templates(environment: Environment, root: Path) -> Templates:
    """Synthesise an environment, and return its templates by stack.

    Parameters
    ----------
    root
        The project, with ``pipelines/`` and the resolved jars.

    Raises
    ------
    millrace.infra.errors.InfrastructureError, millrace.sandbox.programs.toolchain.ToolchainError
        Something that the environment asks for cannot be built, or set-up did not run.
    """
    os.environ["PATH"] = os.pathsep.join((str(node_bin_folder()), os.environ["PATH"]))
    from aws_cdk import App

    from millrace.infra.environment_stacks import build_stacks

    settings = root / "cdk.json"
    context = json.loads((settings if settings.is_file() else _SETTINGS).read_text()).get("context", {})
    with tempfile.TemporaryDirectory() as folder:
        app = App(outdir=folder, context=context, analytics_reporting=False)
        names = Names(environment, environment.account or _NO_ACCOUNT)
        build_stacks(app, names=names, plan=plan(environment), root=root)
        app.synth()
        ending = ".template.json"
        return {
            file.name.removesuffix(ending): json.loads(file.read_text())
            for file in Path(folder).glob(f"*{ending}")
        }


def template_change_lines(environment: Environment, before: Templates, root: Path) -> list[str]:
    """Return a line for each difference in permissions, trust, policies, keys, buckets and networks: what widens something first.

    Then come resources with data that go or are replaced.

    Parameters
    ----------
    before
        Templates of the other version.
    root
        As in :func:`synthesize_templates`.
    """
    after = synthesize_templates(environment, root)
    rights = DeployedPermissionKinds(Names(environment, environment.account or _NO_ACCOUNT), before)
    wider, data, others = [], [], []
    for stack in sorted({*before, *after}):
        lines = compare_templates(stack, before.get(stack), after.get(stack, {}), rights)
        more = lines.wider_permission_lines
        ending = lines.data_lines
        guarding = [line for line in lines.resources if line[2:].startswith(_GUARDS) and line not in ending]
        data += [f"{line[0]} {stack}: {line[2:]}" for line in ending]
        wider += [f"{line[0]} {stack}: {line[2:]} (wider)" for line in more]
        others += [
            f"{line[0]} {stack}: {line[2:]}" for line in (*lines.permissions, *guarding) if line not in more
        ]
    return wider + data + others


def template_changes_as_markdown(lines: list[str]) -> str:
    """Return the differences as a block for a pull request; nothing in them ends the block."""
    if not lines:
        return "\nNo permission, data, key, bucket or network of the templates differs.\n"
    shown = [" ".join(line.replace("`", "'").split()) for line in lines[:_SHOWN_LINES]]
    left = len(lines) - len(shown)
    rest = [f"... and {left:,} more: millrace plan --diff REF --templates"] * bool(left)
    return "\n".join(["", "In the templates:", "", "```diff", *shown, *rest, "```", ""])
