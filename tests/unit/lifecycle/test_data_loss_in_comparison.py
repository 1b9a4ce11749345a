"""A comparison with deployed stacks, read from moto's server, refuses what would lose data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from millrace.config import Names, load
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.changes.data_loss import data_loss_lines
from millrace.lifecycle.changes.deployment_changes import compare_templates
from millrace.lifecycle.deploy import compare_with_deployed
from tests.unit.lifecycle.test_deployed_diff import new, writing


def test_a_comparison_refuses_another_lake(aws: DeployedEnvironment, tmp_path: Path) -> None:
    storage = aws.names.stack("storage")
    bodies = [
        {
            "Resources": {"Topic": {"Type": "AWS::SNS::Topic", "Properties": {"DisplayName": "a"}}},
            "Outputs": {"LakeBucket": {"Value": bucket}},
        }
        for bucket in ("company-lake", "other-lake")
    ]
    aws.client("cloudformation").create_stack(StackName=storage, TemplateBody=json.dumps(bodies[0]))
    assembly = new(tmp_path, clicks=writing("clicks"))
    (assembly / f"{storage}.template.json").write_text(json.dumps(bodies[1]))
    (line,) = compare_with_deployed(aws, assembly).refused
    assert "lake company-lake becomes other-lake" in line


@pytest.mark.parametrize(
    ("policy", "said"), [("Delete", "its data is deleted"), ("Retain", "its data stays")]
)
def test_another_lake_says_once_what_becomes_of_the_data(policy: str, said: str) -> None:
    names = Names(load("minimal"), "111122223333")
    storage = names.stack("storage")
    bucket = {"Type": "AWS::S3::Bucket", "DeletionPolicy": policy, "Properties": {"BucketName": "ours"}}
    old: Any = {"Resources": {"Lake": bucket}, "Outputs": {"LakeBucket": {"Value": {"Ref": "Lake"}}}}
    theirs: Any = {"Outputs": {"LakeBucket": {"Value": "theirs"}}}
    [line] = data_loss_lines(names, {storage: old}, {storage: theirs})
    assert f"lake ours becomes theirs: {said}" in line
    assert bool(compare_templates(storage, old, theirs).lost) == (policy == "Delete")
