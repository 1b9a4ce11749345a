"""Availability zones that a service refuses are refused at load."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.sizing import plan
from tests.unit.config.conftest import GOOD

NET = "  availability_zones: 3\n"


def planned(project: Path, ids: str):
    assert GOOD.count(NET) == 1
    (project / "environments" / "shop.yaml").write_text(GOOD.replace(NET, NET + ids))
    return plan(load("shop", root=project))


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        ("use1-az1, use1-az2", [("use1-az1, use1-az2", "3 different zones")]),
        ("use1-az1, use1-az2, use1-az2", [("use1-az1, use1-az2, use1-az2", "3 different zones")]),
        ("use1-az1, use1-az2, use1-az3", [("use1-az3", "zones in which EMR Serverless is")]),
    ],
)
def test_zones_that_cannot_be_are_told(project: Path, ids: str, found: list[tuple[str, str]]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        planned(project, f"  zone_ids: [{ids}]\n")
    problems = [each for each in refused.value.problems if each.key.startswith("network")]
    assert [(each.key, each.value) for each in problems] == [
        ("network.zone_ids", value) for value, _ in found
    ]
    assert all(text in each.allowed for each, (_, text) in zip(problems, found, strict=True))


def test_zones_that_nobody_named_are_told_where_a_service_refuses_some(project: Path) -> None:
    (warning,) = [each for each in planned(project, "").warnings if each.startswith("network.zone_ids")]
    assert "EMR Serverless and MSK may refuse one of them" in warning
    named = planned(project, "  zone_ids: [use1-az1, use1-az2, use1-az4]\n").warnings
    assert not [each for each in named if each.startswith("network.zone_ids")]
