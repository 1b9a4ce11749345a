"""Data that ``millrace deploy`` reads: ``python -m tests.template.write_deploy_data``.

An extract of CloudFormation's resource schemas for the types that our templates have, which cfn-lint ships, with what only the CDK's own
database knows to replace a resource, and the permissions that new jobs have in these templates. ``make lock`` writes both, and tests
compare them.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from aws_cdk import App
from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from millrace.config import Environment, Names, environment_names, load
from millrace.infra.environment_stacks import build_stacks
from millrace.lifecycle.changes.permission_changes import JOB_RIGHTS, DeployedPermissionKinds
from millrace.lifecycle.changes.refused_updates import RESOURCE_TYPES
from millrace.sandbox.programs.toolchain import ROOT
from millrace.sizing import plan
from tests.policy.all_regions import ACCOUNT, NEWEST, written
from tests.template.cloudformation_rules import replacing
from tests.template.test_export_changes import full, synthesised

RARE = (
    "AWS::EC2::EIP",
    "AWS::EC2::InternetGateway",
    "AWS::EC2::NatGateway",
    "AWS::EC2::Route",
    "AWS::EC2::VPCGatewayAttachment",
    "AWS::Kinesis::StreamConsumer",
    "AWS::MSK::ServerlessCluster",
)
"""Types that no environment of the repository happens to have."""


def extract(kind: str) -> dict[str, Any]:
    """Return what an update must know of a type: the properties that only a creation sets, and those that name it."""
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema

    def paths(key: str) -> list[str]:
        return sorted(path.removeprefix("/properties/") for path in schema.get(key, ()))

    read_only = {*paths("readOnlyProperties")}
    known = paths("createOnlyProperties")
    # The path of a part is left out where the whole is there.
    create_only = sorted({*known, *(path for path in replacing(kind) if path.split("/")[0] not in known)})
    names = {path for path in create_only if _names(kind, path)}
    if len(identifier := paths("primaryIdentifier")) == 1:
        names |= {*identifier} - read_only
    return {"create_only": create_only, "names": sorted(names)}


def _names(kind: str, path: str) -> bool:
    """Tell whether a property is the name of a resource: ``Name``, or the end of its type's name with ``Name``."""
    last = path.split("/")[-1]
    return last == "Name" or (last.endswith("Name") and kind.endswith(last.removesuffix("Name")))


def kinds(templates: Iterable[dict[str, Any]]) -> set[str]:
    """Return the types in templates."""
    result = {each["Type"] for template in templates for each in template["Resources"].values()}
    return {kind for kind in result if not kind.startswith(("AWS::CDK::", "AWS::CloudFormation::"))}


def swapped(plain: dict[str, Any]) -> None:
    """Let each job run on the other engine, which brings each engine together with each kind of source."""
    for job in plain["jobs"].values():
        job["engine"] = "glue" if job["engine"] == "emr" else "emr"
        for key in ("version", "architecture", "worker"):
            job.pop(key, None)


def new_rights() -> set[str]:
    """Return the kinds of permission in the stacks of jobs and of their network, where nothing is somebody else's."""
    result = frozenset[str]()
    for change in (lambda _: None, swapped):
        plain = full()
        change(plain)
        environment = Environment.model_validate({"name": "dev", **plain})
        names = Names(environment, ACCOUNT)
        stacks = (names.stack("job-"), names.stack("network"))
        own = {name: each for name, each in synthesised(environment).items() if name.startswith(stacks)}
        result |= DeployedPermissionKinds(names, own).kinds
    return {kind for kind in result if ": Allow " in kind}


def write() -> None:
    """Synthesise every environment and write what is said of their templates."""
    result = set(RARE)
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    with tempfile.TemporaryDirectory() as folder:
        files = [*environment_names(ROOT), str(written(NEWEST, "us-east-1", Path(folder)))]
        for environment in (load(name, root=ROOT) for name in files):
            app = App(context=context, analytics_reporting=False)
            names = Names(environment, environment.account or ACCOUNT)
            build_stacks(app, names=names, plan=plan(environment), root=ROOT)
            result |= kinds(stack.template for stack in app.synth().stacks)
    text = ",\n".join(f"  {json.dumps(kind)}: {json.dumps(extract(kind))}" for kind in sorted(result))
    RESOURCE_TYPES.write_text(f"{{\n{text}\n}}\n")
    JOB_RIGHTS.write_text(json.dumps(sorted(new_rights()), indent=0) + "\n")


if __name__ == "__main__":
    write()
