"""The effect of an update of each template property is known in advance, and AWS accepts each step."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from millrace.config import ConfigurationError, Names, load
from millrace.config.aws.deployed_sizes_to_keep import DeployedCluster, DeployedSizes
from millrace.config.model import Environment
from millrace.etl.launch import typed_json
from millrace.infra.launch.launch_settings import job_settings
from millrace.lifecycle.changes.deployment_changes import build_job_change, compare_templates
from millrace.lifecycle.changes.read_deployed_sizes import sizes_in_templates
from millrace.lifecycle.changes.refused_updates import (
    RESOURCE_TYPES,
    refused_change_lines,
    successive_templates,
)
from millrace.sizing import plan
from tests.policy.all_regions import NEWEST, written
from tests.template.cloudformation_rules import Template, replaced, update_refused
from tests.template.conftest import ROOT, Synthesis
from tests.template.test_export_changes import NAT, Change, changed, full, put, synthesised
from tests.template.write_deploy_data import RARE, extract, kinds


@dataclass(frozen=True)
class Edit:
    """Another value at one place of a template."""

    stack: str
    logical: str
    path: tuple[str | int, ...]
    value: Any

    def applied(self, template: Template) -> Template:
        """Return the template with this value."""
        edited: dict[str, Any] = copy.deepcopy(dict(template))
        inner = edited["Resources"][self.logical]["Properties"]
        for key in self.path[:-1]:
            inner = inner[key]
        inner[self.path[-1]] = self.value
        return edited


def others(value: Any) -> list[Any]:
    """Return values that a user's edit could make of one."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int | float):
        return [value + 1, max(0, value - 1), 3 * value + 7, 20 * value, value // 3]
    if isinstance(value, str):
        return [f"{value}x", value.replace("kafka.", "express.")] if value else ["x"]
    if isinstance(value, list):
        return [value[:-1]]
    return ["arn:aws:other:us-east-1:111122223333:thing"]


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield the values of a resource's properties, references as a whole, and each list that has more than one."""
    items: Any = (
        value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    )
    refers = isinstance(value, dict) and any(key == "Ref" or key.startswith("Fn::") for key in value)
    for key, inner in items if not refers else ():
        yield from leaves(inner, (*path, key))
    if not isinstance(value, dict | list) or refers or (isinstance(value, list) and len(value) > 1):
        yield path, value


def edits(*environments: dict[str, Template]) -> list[tuple[dict[str, Template], Edit]]:
    """Return the edits of each property that the templates contain, once for each type and path."""
    result: dict[Any, tuple[dict[str, Template], Edit]] = {}
    for templates in environments:
        for stack, template in templates.items():
            for logical, resource in template["Resources"].items():
                for path, value in leaves(resource.get("Properties", {})):
                    shape = tuple("[]" if isinstance(key, int) else key for key in path)
                    for number, other in enumerate(others(value)):
                        what = (resource["Type"], shape, type(value), number)
                        result.setdefault(what, (templates, Edit(stack, logical, path, other)))
    return [(old, edit) for old, edit in result.values() if is_known(edit, old[edit.stack])]


def wrong(deployed: dict[str, Template], edit: Edit) -> str | None:
    """Return what a deployment of the edit would not know; None if it is told and can be carried out."""
    old = deployed[edit.stack]
    new = edit.applied(old)
    if new == old:
        return None
    change = compare_templates(edit.stack, old, new)
    if not change:
        return "the change is not shown"
    refused = list(refused_change_lines({edit.stack: old}, {edit.stack: new}))
    steps = [template for _, template in successive_templates(old, new)] or [new]
    standing, said = old, []
    for step in steps:
        said += update_refused(standing, step)
        standing = step
    if bool(refused) != bool(said):
        return f"refused: {refused}, by AWS: {said}"
    if standing != new:
        return "the last step is not the new template"
    shown = any("(is replaced" in line for line in change.resources)
    if not refused and shown is not (edit.logical in replaced(old, new)) and not change.permissions:
        return f"replaced: {shown}"
    return None


def is_known(edit: Edit, old: Template) -> bool:
    """Leave out what the model of AWS in these tests does not know: rules of Kafka's versions, and many shards."""
    kind = old["Resources"][edit.logical]["Type"]
    if kind == "AWS::IAM::Policy":
        # Names of statements, and of the language, give no permission.
        return edit.path[-1] not in ("Sid", "Version", "PolicyName")
    nothing = type(edit.value) is int and edit.value == 0
    return not nothing and not (kind == "AWS::MSK::Cluster" and edit.path == ("KafkaVersion",))


@pytest.mark.slow
def test_an_edit_of_each_property_is_told_and_can_be_carried_out(tmp_path: Path) -> None:
    newest = synthesised(load(str(written(NEWEST, "us-east-1", tmp_path)), root=ROOT))
    drawn = edits(changed(), changed(NAT), newest)
    assert len(drawn) > 1000
    result = [f"{edit}: {said}" for old, edit in drawn if (said := wrong(old, edit)) is not None]
    assert result == []


def test_the_extract_is_that_of_the_schemas_and_has_every_type_of_the_templates(each: Synthesis) -> None:
    known = json.loads(RESOURCE_TYPES.read_text())
    assert kinds(each.templates.values()) | set(RARE) <= known.keys(), "make lock writes it"
    assert known == {kind: extract(kind) for kind in known}


DEPLOYING = (ROOT / "docs/deploying.md").read_text(encoding="utf-8")
RATE = "streams.flights.traffic.records_per_second"


SHARDS, STORAGE, TOPIC, MODE = (
    "streams.departures.shards",
    "kafka.main.storage",
    "streams.flights.partitions",
    "streams.departures.mode",
)
PAGE: dict[str, tuple[tuple[Change, ...], tuple[Change, ...], str, str]] = {
    "transform, schema, trigger, limit, Spark setting": (
        (),
        (put("jobs.departures.spark", {"spark.sql.ansi.enabled": "false"}),),
        "restart",
        "1",
    ),
    "workers of a Glue job": ((), (put("jobs.departures.max_workers", 9),), "restart", "1"),
    "workers, disks or network of a job on EMR Serverless": (
        (put("jobs.flights.cores", 8), put(TOPIC, 16)),
        (put("jobs.flights.cores", 16),),
        "drained, restart",
        "1",
    ),
    "a Glue job into the network or out of it (`jobs.NAME.network`)": (
        (),
        (put("jobs.departures.network", "none"),),
        "drained, restart",
        "1",
    ),
    "more or fewer shards of a stream": ((put(SHARDS, 1),), (put(SHARDS, 20),), "restart", "5"),
    "`mode: on-demand` of a stream to `provisioned`": (
        (put(MODE, "on-demand"),),
        (put(MODE, "provisioned"),),
        "restart",
        "1",
    ),
    "`mode: provisioned` to `on-demand`": (
        (put(MODE, "provisioned"),),
        (put(MODE, "on-demand"),),
        "restart",
        "1",
    ),
    "more partitions of a topic": ((put(TOPIC, 14),), (put(TOPIC, 40),), "continue", "1"),
    "fewer partitions of a topic": ((put(TOPIC, 40),), (put(TOPIC, 14),), "", "refused"),
    "more storage of MSK brokers": (
        (put(STORAGE, "200GiB"),),
        (put(STORAGE, "300GiB"),),
        "continue",
        "1",
    ),
    "less storage of MSK brokers": ((put(STORAGE, "300GiB"),), (put(STORAGE, "200GiB"),), "", "refused"),
    "several of storage, brokers, type, version, configuration, monitoring of a cluster": (
        (put(STORAGE, "200GiB"),),
        (
            put(STORAGE, "300GiB"),
            put("kafka.main.brokers", 9),
            put("kafka.main.broker_type", "kafka.m7g.2xlarge"),
        ),
        "continue",
        "one for each",
    ),
}
"""By the edit of docs/deploying.md: a file, what is edited, what becomes of jobs, and the steps."""


@pytest.mark.slow
@pytest.mark.parametrize("edit", PAGE)
def test_the_page_says_what_an_edit_does(edit: str) -> None:
    base, changes, effect, steps = PAGE[edit]
    rows = [
        line.strip("| ").split(" | ") for line in DEPLOYING.splitlines() if line.startswith(f"| {edit} |")
    ]
    environments = [of(*base), of(*base, *changes)]
    old, new = (synthesised(each) for each in environments)
    documents = [settings_of(each) for each in environments]
    result = {
        (each.before, each.after)
        for job in documents[0]
        for stack in [Names(environments[0], "111122223333").stack(f"job-{job}")]
        for each in [
            build_job_change(
                job,
                stack=(old[stack], new[stack]),
                document=(documents[0][job], documents[1][job]),
                document_url=(json.dumps(documents[0][job]), json.dumps(documents[1][job])),
                sources=(frozenset(), frozenset()),
            )
        ]
    } - {("leave", "leave")}
    refused = list(refused_change_lines(old, new))
    counts = [
        len(way) for stack, template in new.items() if (way := successive_templates(old[stack], template))
    ]
    [row] = rows
    assert bool(refused) is (steps == "refused") is row[1].startswith("refused")
    if not refused:
        want = {
            "restart": {("leave", "restart")},
            "drained, restart": {("drain", "restart")},
            "continue": set(),
        }
        assert result == want[effect]
        assert row[2].startswith(effect)
        assert counts == {"1": [], "5": [5], "one for each": [3]}[steps]
        assert (f"in {steps}" if steps == "5" else steps) in row[3]


def settings_of(environment: Environment) -> dict[str, Any]:
    """What launch documents have of an environment's jobs, with their Spark settings."""
    planned, names = plan(environment), Names(environment, "111122223333")
    return {
        job: {
            "settings": typed_json.to_json_value(job_settings(environment, planned.jobs[job], names)),
            "spark": str(each.spark),
        }
        for job, each in environment.jobs.items()
    }


@pytest.mark.slow
@pytest.mark.parametrize("zones", [2, 3])
def test_traffic_that_is_measured_and_edited_never_leads_to_what_aws_refuses(zones: int) -> None:
    """Brokers, volumes and partitions grow and stay, in updates that AWS takes one by one; replication is that of the zones."""
    base = (put("network.availability_zones", zones),)
    deployed: dict[str, Template] = {}
    for rate in (1000, 30_000, 500, 60_000):
        environment = of(*base, put(RATE, rate))
        names = Names(environment, "111122223333")
        kafka = {} if not deployed else deployed[names.stack("kafka")]
        new = synthesised(environment.with_deployed_sizes(sizes_in_templates(names, kafka, {}, {}, {})))
        if deployed:
            assert list(refused_change_lines(deployed, new)) == []
            for stack, template in new.items():
                standing = deployed[stack]
                for step in [each for _, each in successive_templates(standing, template)] or [template]:
                    assert update_refused(standing, step) == []
                    standing = step
                assert standing == template
        deployed = new
        (cluster,) = of_kind(new, "AWS::MSK::Cluster")
        (topic,) = of_kind(new, "AWS::MSK::Topic")
        brokers, group = cluster["NumberOfBrokerNodes"], cluster["BrokerNodeGroupInfo"]
        assert (topic["ReplicationFactor"], len(group["ClientSubnets"]), brokers % zones) == (zones, zones, 0)
        kept = rate * 400 * 2 * 86_400 * zones / 1024**3
        assert group["StorageInfo"]["EBSStorageInfo"]["VolumeSize"] * brokers >= kept


@pytest.mark.parametrize(("region", "zones"), [("us-west-1", 2), ("eu-west-1", 3)])
def test_a_region_of_two_zones_gets_two_of_everything_that_is_in_each(region: str, zones: int) -> None:
    plain = full() | {"region": region}
    plain["network"] = {}
    new = synthesised(Environment.model_validate({"name": "dev", **plain}))
    chosen = {json.dumps(subnet["AvailabilityZone"]) for subnet in of_kind(new, "AWS::EC2::Subnet")}
    (cluster,) = of_kind(new, "AWS::MSK::Cluster")
    (topic,) = of_kind(new, "AWS::MSK::Topic")
    brokers, group = cluster["NumberOfBrokerNodes"], cluster["BrokerNodeGroupInfo"]
    result = (len(chosen), topic["ReplicationFactor"], len(group["ClientSubnets"]), brokers % zones)
    assert result == (zones, zones, zones, 0)


def test_a_volume_that_is_pinned_or_deployed_is_kept_and_one_that_is_too_small_refused() -> None:
    deployed = DeployedSizes({"main": DeployedCluster(2, "kafka.m7g.large", 81, 2)}, {"flights": 14})
    kept = plan(of().with_deployed_sizes(deployed))
    cluster = kept.clusters["main"]
    assert cluster.storage_gib_per_broker is not None
    assert (cluster.storage_gib_per_broker.value, kept.streams["flights"].expected_partitions.value) == (
        81,
        14,
    )
    pinned = plan(of(put("kafka.main.storage", "90GiB")).with_deployed_sizes(deployed)).clusters["main"]
    assert pinned.storage_gib_per_broker is not None
    assert pinned.storage_gib_per_broker.value == 90
    with pytest.raises(ConfigurationError, match=r"at least .*GiB"):
        plan(of(put("kafka.main.storage", "1GiB"), put(RATE, 30_000)))


def of(*changes: Change) -> Environment:
    plain = full()
    put("network.availability_zones", 2)(plain)
    for change in changes:
        change(plain)
    return Environment.model_validate({"name": "dev", **plain})


def of_kind(templates: dict[str, Template], kind: str) -> list[dict[str, Any]]:
    resources = [each for template in templates.values() for each in template["Resources"].values()]
    return [each["Properties"] for each in resources if each["Type"] == kind]
