"""A comparison with deployed stacks, read from moto's server, refuses what would lose data."""

from __future__ import annotations

import json
from pathlib import Path

from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
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
