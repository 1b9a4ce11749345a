"""An environment with the newest keys synthesises as the scans of other regions write it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import load
from millrace.config.aws.regions import aws_partition_of_region
from millrace.verify.account.account_checks import RESOURCE_TYPES
from tests.policy.all_regions import NEWEST, REGIONS, written
from tests.template.conftest import ROOT, Synthesis, Synthesise
from tests.template.test_iam_statement_resources import refused


@pytest.fixture(scope="module")
def newest(synthesise: Synthesise, tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    file = written(NEWEST, "us-east-1", tmp_path_factory.mktemp("files"))
    return synthesise(load(str(file), root=ROOT))


@pytest.mark.parametrize("region", REGIONS)
def test_it_is_valid_in_every_partition(region: str, tmp_path: Path) -> None:
    environment = load(str(written(NEWEST, region, tmp_path)), root=ROOT)
    assert environment.region == region
    assert environment.history is not None
    # A registry of China ends with .cn, and the key took none that did.
    assert str(environment.history.image).split("/")[0].endswith(".cn") is (
        aws_partition_of_region(region) == "aws-cn"
    )


def test_metrics_outlive_their_stack_as_other_data_does(newest: Synthesis, dev: Synthesis) -> None:
    """The rule that says so looked at environments alone whose data may go."""
    for result, policy in ((newest, "RetainExceptOnCreate"), (dev, "Delete")):
        (workspace,) = result.resources("AWS::APS::Workspace").values()
        assert workspace["DeletionPolicy"] == policy


def test_every_role_is_granted_what_it_says(newest: Synthesis) -> None:
    assert sorted(set(refused(statement for _, statement in newest.statements()))) == []


def test_an_account_is_asked_for_the_properties_that_templates_have(
    newest: Synthesis, dev: Synthesis
) -> None:
    seen = set()
    for result in (newest, dev):
        for kind, properties in RESOURCE_TYPES.items():
            for resource in result.resources(kind).values():
                seen.add(kind)
                assert set(resource["Properties"]) <= set(properties), kind
    assert seen == set(RESOURCE_TYPES)
