"""Changes of an environment respect CloudFormation's rule for exports, or name the steps."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import pytest
from aws_cdk import App

from millrace.config import Names, load
from millrace.config.model import Environment
from millrace.infra.environment_stacks import build_stacks
from millrace.lifecycle.changes.stack_exports import StackOrder, stack_order
from millrace.sizing import plan
from tests.template.cloudformation_rules import Template, deploy, exports, producers_first
from tests.template.conftest import ROOT
from tests.template.test_existing_resources import EXISTING

pytestmark = pytest.mark.slow

Plain = dict[str, Any]
Change = Callable[[Plain], None]


def full() -> Plain:
    """Environment dev with three zones and something of each kind that crosses stacks."""
    environment = load("dev", root=ROOT)
    assert environment.value_locations.tree is not None
    plain = environment.value_locations.tree.to_json()
    plain.pop("extends", None)
    plain["network"] = {"availability_zones": 3}
    # One job with each thing that a job alone may take from another stack.
    plain["jobs"]["last"] = json.loads(json.dumps(plain["jobs"]["departures"]))
    for query in plain["jobs"]["last"]["queries"].values():
        for key in ("table", "source"):
            if query.get(key, "").endswith("_landed"):
                query[key] += "_2"
        if "sink" in query:
            query["sink"]["table"] += "_2"
    plain["jobs"]["last"]["queries"] = {
        f"{name}-2": query for name, query in plain["jobs"]["last"]["queries"].items()
    }
    return plain


@functools.cache
def templates(text: str) -> dict[str, Template]:
    """Synthesise an environment once."""
    return synthesised(Environment.model_validate_json(text))


def synthesised(environment: Environment) -> dict[str, Template]:
    """Synthesise an environment, without rule packs."""
    context = json.loads((ROOT / "cdk.json").read_text())["context"]
    app = App(context=context, analytics_reporting=False)
    build_stacks(app, names=Names(environment, "111122223333"), plan=plan(environment), root=ROOT)
    return {stack.stack_name: stack.template for stack in app.synth().stacks}


def changed(*changes: Change) -> dict[str, Template]:
    """Synthesise the full environment with changes."""
    plain = full()
    for change in changes:
        change(plain)
    return templates(json.dumps({"name": "dev", **plain}, default=str))


def put(path: str, value: Any) -> Change:
    """Set a key of the environment's file."""

    def change(plain: Plain) -> None:
        *folders, last = path.split(".")
        for folder in folders:
            plain = plain.setdefault(folder, {})
        plain[last] = value

    return change


def drop(*paths: str) -> Change:
    """Remove keys of the environment's file."""

    def change(plain: Plain) -> None:
        for path in paths:
            inner = plain
            *folders, last = path.split(".")
            for folder in folders:
                inner = inner[folder]
            inner.pop(last)

    return change


def no_kafka(plain: Plain) -> None:
    drop("kafka", "streams.flights", "jobs.flights")(plain)


NAT = put("network.egress", "nat")
SAME: tuple[Change, ...] = ()

PASSES: dict[str, tuple[tuple[Change, ...], tuple[Change, ...]]] = {
    "endpoints to NAT": (SAME, (NAT,)),
    "NAT to endpoints": ((NAT,), SAME),
    "endpoints to cheapest": (SAME, (put("network.egress", "cheapest"),)),
    "two zones to three": ((put("network.availability_zones", 2),), SAME),
    "prometheus, off to on": ((put("observability.prometheus", False),), SAME),
    "prometheus keeps less": (SAME, (put("observability.prometheus_retention", "30d"),)),
    "the history server goes": (SAME, (drop("history"),)),
    "the history server comes": ((drop("history"),), SAME),
    "a job with the history server's last imports goes": (SAME, (drop("history", "jobs.last"),)),
    "a job goes": (SAME, (drop("jobs.last"),)),
    "a job comes": ((drop("jobs.last"),), SAME),
    "the last jobs on Glue go": (SAME, (drop("jobs.last", "jobs.departures"),)),
    "the last job on EMR goes": (SAME, (drop("jobs.flights"),)),
    "Kafka goes": (SAME, (no_kafka,)),
    "Kafka and the history server go": (SAME, (no_kafka, drop("history"))),
    "Kafka comes": ((no_kafka,), SAME),
    "nothing can be deleted any more": (SAME, (put("removal", "retain"), drop("storage.disposable"))),
    "tags": (SAME, (put("tags", {"stage": "test", "owner": "alice"}),)),
    "a boundary and a path": (
        SAME,
        (
            put("governance.permissions_boundary", "arn:aws:iam::111122223333:policy/Boundary"),
            put("governance.role_path", "/streaming/"),
        ),
    ),
    "another bootstrap": (SAME, (put("governance.qualifier", "acme1"),)),
    "an existing role": (SAME, (put("jobs.flights.role", EXISTING["role"]),)),
    "logs kept longer": (SAME, (put("storage.event_log_retention", "60d"),)),
    "an existing database": (SAME, (put("storage.database", "company"),)),
    "a key of the clusters": (SAME, (put("storage.keys.kafka", EXISTING["keys"]["kafka"]),)),
    "an existing lake": (SAME, (put("storage.buckets", {"lake": "company-lake"}),)),
}
"""By what changes: the environment before and after."""
OFTEN = frozenset(
    {"endpoints to NAT", "the history server goes", "a job goes", "Kafka goes", "an existing role"}
)
"""One of each stack that others import from: network, history, jobs, clusters, permissions."""


@pytest.mark.slow
@pytest.mark.parametrize("name", PASSES)
def test_no_export_goes_or_changes_while_a_deployed_stack_imports_it(name: str) -> None:
    before, after = (changed(*side) for side in PASSES[name])
    assert deploy(before, after, producers_first(after))[1] == []
    assert before != after, "a change that changes nothing shows nothing"


STEPS: dict[str, tuple[tuple[Change, ...], tuple[Change, ...]]] = {
    "prometheus, on to off": (SAME, (put("observability.prometheus", False),)),
    "three zones to two": (SAME, (put("network.availability_zones", 2),)),
    "a customer's own key of alerts": (SAME, (put("storage.keys.alerts", EXISTING["keys"]["alerts"]),)),
    "a bucket for event logs": (SAME, (put("storage.buckets", {"event-logs": "company-event-logs"}),)),
    "a bucket for access logs": (SAME, (put("storage.buckets", {"access-logs": "company-access-logs"}),)),
}
"""Changes that take away what other stacks import: those stacks go first."""


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_stacks_that_import_it_no_more_go_before_what_goes(name: str) -> None:
    before, after = (changed(*side) for side in STEPS[name])
    assert deploy(before, after, producers_first(after))[1] != [], "one step is enough: list it there"
    result = stack_order(before, after, lasting(before))
    assert result.refused == ()
    between, said = deploy(before, after, result.first)
    assert said == []
    assert deploy(between, after, producers_first(after))[1] == []


ZONES = put("network.zone_ids", ["use1-az1", "use1-az2", "use1-az4"])

REFUSED: dict[str, tuple[tuple[Change, ...], tuple[Change, ...]]] = {
    "an existing VPC, without clusters": (
        (no_kafka,),
        (no_kafka, put("network", {"vpc": EXISTING["vpc"], "subnets": EXISTING["subnets"]})),
    ),
    "a customer's own key of a Prometheus workspace": (
        SAME,
        (put("storage.keys.logs", EXISTING["keys"]["logs"]),),
    ),
    "zones are named": ((no_kafka,), (no_kafka, ZONES)),
    "another range": (SAME, (put("network.cidr", "10.99.0.0/16"),)),
}
"""Changes that replace what other stacks stand on."""


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_order_helps_is_refused_with_what_does(name: str) -> None:
    before, after = (changed(*side) for side in REFUSED[name])
    result = stack_order(before, after, lasting(before))
    destroyed = [s for s in before if f"`cdk destroy {s}`" in " ".join(result.refused)]
    held = [s for s in before if any(line.startswith(f"{s} holds data") for line in result.refused)]
    assert held == (["flights-dev-kafka"] if name == "another range" else [])
    without = {s: t for s, t in before.items() if s not in (*destroyed, *held)}
    assert deploy(before, after, producers_first(after))[1] != []
    again = stack_order(without, after, lasting(without))
    assert again.refused == ()
    between, said = deploy(without, after, again.first)
    assert said == []
    assert deploy(between, after, producers_first(after))[1] == []


@pytest.mark.parametrize(
    "name", [name if name in OFTEN else pytest.param(name, marks=pytest.mark.slow) for name in PASSES]
)
def test_what_passes_in_one_step_is_deployed_in_one(name: str) -> None:
    before, after = (changed(*side) for side in PASSES[name])
    assert stack_order(before, after, lasting(before)) == StackOrder()


def lasting(stacks: dict[str, Template]) -> list[str]:
    return [
        stack
        for stack in stacks
        if stack.rpartition("-")[2] in ("kafka", "lifecycle", "network", "storage", "streams")
    ]


def test_the_model_refuses_what_cloudformation_refuses() -> None:
    def producer(kind: str, **properties: str) -> Template:
        output = {"Value": {"Ref": "A"}, "Export": {"Name": "a"}}
        return {"Resources": {"A": {"Type": kind, "Properties": properties}}, "Outputs": {"A": output}}

    consumer: Template = {"Resources": {"B": {"Type": "X", "Properties": {"A": {"Fn::ImportValue": "a"}}}}}
    subnet = producer("AWS::EC2::Subnet", CidrBlock="10.0.0.0/24")
    moved = producer("AWS::EC2::Subnet", CidrBlock="10.0.1.0/24")
    deployed = {"p": subnet, "c": consumer}
    gone: Template = {"Resources": {}}
    assert deploy(deployed, {"p": gone}, ["p"])[1] == ["p: a goes, used by c"]
    assert deploy(deployed, {"p": moved}, ["p"])[1] == ["p: a changes, used by c"]
    assert deploy(deployed, {"p": subnet}, ["p"])[1] == []
    assert deploy({"c": gone, "p": gone}, {"c": consumer}, ["c"])[1] == ["c: no export a"]
    assert deploy({"p": subnet, "c": gone}, {"p": gone}, ["p"])[1] == []
    assert list(exports(subnet)) == ["a"]
