"""Alarms keep their names when they move from stack to stack, so the stack that has them is updated first."""

from __future__ import annotations

import dataclasses

import pytest

from millrace.lifecycle.changes.stack_exports import StackOrder, stack_order
from tests.template.cloudformation_rules import Template, deploy, producers_first
from tests.template.test_export_changes import Change, changed, put

JOBS = ("flights-dev-job-departures", "flights-dev-job-flights", "flights-dev-job-last")
OBSERVABILITY = "flights-dev-observability"
TOGETHER = put("observability.alarms", "together")
BY_JOB = put("observability.alarms", "by-job")
PROMETHEUS_OFF = put("observability.prometheus", False)


@pytest.mark.parametrize(
    ("before", "after", "first"),
    [
        pytest.param(BY_JOB, TOGETHER, JOBS, marks=pytest.mark.slow),
        (TOGETHER, BY_JOB, (OBSERVABILITY,)),
    ],
)
def test_the_stack_that_has_the_names_of_alarms_goes_first(
    before: Change, after: Change, first: tuple[str, ...]
) -> None:
    old, new = changed(before), changed(after)
    order = [*producers_first(new)]
    if after is TOGETHER:
        assert "already exists" in " ".join(deploy(old, new, order)[1])
    result = stack_order(old, new, ())
    assert result == StackOrder(first=first)
    between, said = deploy(old, new, result.first)
    assert said == []
    assert deploy(between, new, order)[1] == []


def test_a_move_of_alarms_that_needs_a_new_export_is_a_deployment_of_its_own() -> None:
    result = stack_order(changed(BY_JOB, PROMETHEUS_OFF), changed(TOGETHER), ())
    assert result.first == ("flights-dev-job-departures", "flights-dev-job-last")
    (line,) = result.refused
    assert line.startswith("flights-dev-job-flights has names that another stack takes over")


def alarms(*names: str) -> Template:
    return {
        "Resources": {
            name: {"Type": "AWS::CloudWatch::Alarm", "Properties": {"AlarmName": name}} for name in names
        }
    }


def test_of_stacks_that_give_and_take_the_one_that_only_gives_goes_first() -> None:
    old = {"observability": alarms("b"), "job": alarms("a")}
    new = {"observability": alarms("a"), "observability-2": alarms("b"), "job": alarms()}
    assert stack_order(old, new, ()) == StackOrder(first=("job",))


def test_a_stack_that_goes_is_removed_before_another_takes_its_names() -> None:
    old = {"observability": alarms("a"), "observability-2": alarms("b")}
    result = stack_order(old, {"observability": alarms("a", "b")}, (), ["observability-2"])
    assert result == StackOrder(remove=("observability-2",))


def test_stacks_that_exchange_names_are_refused_with_the_way_out() -> None:
    old = {"observability": alarms("a"), "observability-2": alarms("b")}
    new = {"observability": alarms("b"), "observability-2": alarms("a")}
    result = stack_order(old, new, ())
    assert dataclasses.replace(result, refused=()) == StackOrder()
    (line,) = result.refused
    assert "`cdk destroy observability-2` first" in line
    assert stack_order({"observability": alarms("a")}, new, ()) == StackOrder(first=("observability",))
