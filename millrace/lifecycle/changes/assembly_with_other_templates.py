"""Assemblies with other templates: for changes that AWS takes one after the other, for a rollback and for a removal."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from millrace.lifecycle.changes.refused_updates import Template


def write_assembly_with_templates(assembly: Path, templates: Mapping[str, Template], target: Path) -> Path:
    """Write an assembly with other templates of some stacks; the files of both are the same.

    CDK deploys it with its usual roles, so a rollback needs no further permissions.

    Parameters
    ----------
    assembly
        The folder that ``cdk synth`` wrote.
    templates
        By stack.
    target
        The new folder; an existing one is replaced.

    Returns
    -------
    Path
        ``target``.
    """
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(assembly, target, copy_function=os.link)
    manifest = (assembly / "manifest.json").read_text()
    for stack, template in templates.items():
        file = f"{stack}.template.json"
        assets = (assembly / f"{stack}.assets.json").read_text()
        (name,) = (
            name for name, each in json.loads(assets)["files"].items() if each["source"].get("path") == file
        )
        text = json.dumps(template, indent=1)
        # Named by content, as by CDK: under the same name the other template would be deployed.
        own = hashlib.sha256(text.encode()).hexdigest()
        manifest = manifest.replace(name, own)
        _replace_linked_file(target / file, text)
        _replace_linked_file(target / f"{stack}.assets.json", assets.replace(name, own))
    _replace_linked_file(target / "manifest.json", manifest)
    return target


def write_removal_assembly(assembly: Path, stack: str, target: Path) -> Path:
    """Write an assembly whose only stack is one that no file names any more, so that CDK removes it with its usual roles.

    Parameters
    ----------
    assembly
        An assembly of the environment: the roles, the account and the region are the same.
    target
        The new folder; an existing one is replaced.
    """
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    manifest = json.loads((assembly / "manifest.json").read_text())
    model = next(
        each for each in manifest["artifacts"].values() if each["type"] == "aws:cloudformation:stack"
    )
    file = f"{stack}.template.json"
    (target / file).write_text('{"Resources": {}}')
    roles = ("assumeRoleArn", "assumeRoleExternalId", "cloudFormationExecutionRoleArn", "lookupRole")
    properties = {key: model["properties"][key] for key in roles if key in model["properties"]}
    manifest["artifacts"] = {
        stack: {
            "type": model["type"],
            "environment": model["environment"],
            "properties": {**properties, "templateFile": file, "stackName": stack},
            "displayName": stack,
        }
    }
    (target / "manifest.json").write_text(json.dumps(manifest))
    return target


def _replace_linked_file(file: Path, text: str) -> None:
    # A link would change the first assembly, too.
    file.unlink()
    file.write_text(text)
