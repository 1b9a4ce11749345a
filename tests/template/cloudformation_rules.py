"""A model of what CloudFormation allows across stacks, for tests of changes from one synthesis to the next."""

from __future__ import annotations

import functools
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from cfnlint.schema.manager import PROVIDER_SCHEMA_MANAGER

from millrace.sandbox.programs.toolchain import ROOT

Template = Mapping[str, Any]
Templates = Mapping[str, Template]


def created_only(kind: str) -> list[list[str]]:
    """Paths of the properties whose change makes CloudFormation replace a resource, as AWS publishes them."""
    schema = PROVIDER_SCHEMA_MANAGER.get_resource_schema("us-east-1", kind).schema
    return [path.split("/")[2:] for path in schema.get("createOnlyProperties", ())] + [
        path.split("/") for path in replacing(kind)
    ]


@functools.cache
def _cdk_types_and_resources() -> tuple[dict[str, Any], dict[str, Any]]:
    packed = (ROOT / "node_modules/aws-cdk/db.json.gz").read_bytes()
    schema = json.loads(gzip.decompress(packed))["schema"]
    types, resources = (schema[each]["entities"] for each in ("typeDefinition", "resource"))
    return {each["$id"]: each for each in types}, {each["cloudFormationType"]: each for each in resources}


@functools.cache
def replacing(kind: str) -> tuple[str, ...]:
    """Return the properties of a type, and of a structure in it, of which the documentation says that a change replaces it."""
    types, resources = _cdk_types_and_resources()
    result = []
    for name, each in resources[kind]["properties"].items():
        if each.get("causesReplacement") == "yes":
            result.append(name)
        elif each["type"]["type"] == "ref":
            parts = types[each["type"]["reference"]["$ref"]]["properties"]
            result += [f"{name}/{part}" for part, of in parts.items() if of.get("causesReplacement") == "yes"]
    return tuple(result)


def at(value: Any, path: list[str]) -> Any:
    """Return what lies at a path, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def exports(template: Template) -> dict[str, Any]:
    """Return a template's exports: the expression of each by its name."""
    return {
        output["Export"]["Name"]: output["Value"]
        for output in template.get("Outputs", {}).values()
        if "Export" in output
    }


def named(value: Any, key: str) -> Iterator[str]:
    """Yield the names that an intrinsic function takes anywhere in a template, GetAtt's being the resource's."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == key:
                yield inner[0] if isinstance(inner, list) else inner
            else:
                yield from named(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from named(inner, key)


def imports(template: Template) -> set[str]:
    """Return the names of the exports that a template imports."""
    return set(named(template, "Fn::ImportValue"))


def replaced(old: Template, new: Template) -> set[str]:
    """Return the logical ids of the resources that an update replaces, those that stand on others included."""
    result: set[str] = set()
    while True:
        before = set(result)
        for logical, was in old["Resources"].items():
            will = new["Resources"].get(logical)
            if will is None or logical in result:
                continue
            for path in created_only(was["Type"]):
                value = at(will.get("Properties", {}), path)
                stands_on = {*named(value, "Ref"), *named(value, "Fn::GetAtt")}
                if at(was.get("Properties", {}), path) != value or stands_on & result:
                    result.add(logical)
        if result == before:
            return result


def refusals(deployed: Templates, stack: str, new: Template) -> list[str]:
    """Return why CloudFormation refuses a stack's update, a line each; nothing where it does not.

    An export may neither go nor change its value while another stack imports it, and an
    import needs its export (CloudFormation user guide, "Get exported outputs from a deployed stack"). No resource is
    created under a name that another stack's has.
    """
    said = []
    others = {name: template for name, template in deployed.items() if name != stack}
    old = deployed.get(stack)
    if old is not None:
        new_ones = replaced(old, new)
        for name, value in exports(old).items():
            users = sorted(user for user, template in others.items() if name in imports(template))
            will = exports(new).get(name)
            moved = {*named(will, "Ref"), *named(will, "Fn::GetAtt")} & new_ones
            if users and (will is None or json.dumps(will) != json.dumps(value) or moved):
                said.append(
                    f"{stack}: {name} {'goes' if will is None else 'changes'}, used by {', '.join(users)}"
                )
    used = {each for template in others.values() for each in _names(template)}
    said += [f"{stack}: {kind} {name} already exists" for kind, name in sorted(_names(new) & used)]
    there = {name for template in others.values() for name in exports(template)}
    said += [f"{stack}: no export {name}" for name in sorted(imports(new) - there)]
    return said


def _names(template: Template) -> set[tuple[str, str]]:
    return {
        (each["Type"], name)
        for each in template["Resources"].values()
        if isinstance(name := each.get("Properties", {}).get(NAMED.get(each["Type"], "")), str)
    }


def deploy(
    deployed: Templates, new: Templates, stacks: Iterable[str]
) -> tuple[dict[str, Template], list[str]]:
    """Deploy stacks one after the other until one is refused; return what stands then, and why."""
    standing = dict(deployed)
    for stack in stacks:
        said = refusals(standing, stack, new[stack])
        if said:
            return standing, said
        standing[stack] = new[stack]
    return standing, []


def producers_first(new: Templates) -> list[str]:
    """Return the stacks in the order of ``cdk deploy --all`` that is the worst for whoever imports.

    CDK orders by the dependencies of the new templates alone: a stack that imports nothing any more
    may come last.
    """
    owner = {name: stack for stack, template in new.items() for name in exports(template)}
    order: list[str] = []

    def visit(stack: str) -> None:
        if stack in order:
            return
        for needed in sorted({owner[name] for name in imports(new[stack])}):
            visit(needed)
        order.append(stack)

    for stack in sorted(new, key=lambda name: (len(imports(new[name])), "-job-" in name, name)):
        visit(stack)
    return order


def update_refused(old: Template, new: Template) -> list[str]:
    """Return why AWS refuses one update of a stack's resources: the rules as its documents have them, in words of their own.

    Kinesis, UpdateShardCount: at most double, at least half. MSK: one kind of change an update, volumes only grow, by ten
    at least, brokers and partitions are not taken away. CloudFormation: a replacement has the name of what it replaces.
    """
    said = []
    gone = replaced(old, new)
    for logical, was in old["Resources"].items():
        will = new["Resources"].get(logical)
        if will is None:
            continue
        before, after = was.get("Properties", {}), will.get("Properties", {})
        said += [f"{logical}: another type"] * (was["Type"] != will["Type"])
        own = NAMED.get(was["Type"])
        inside = [each.get("ClusterArn", each.get("StreamARN")) for each in (before, after)]
        moved = inside[0] != inside[1] or {*named(inside[1], "Fn::GetAtt")} & gone
        if (
            logical in gone
            and not moved
            and own
            and isinstance(before.get(own), str)
            and before[own] == after.get(own)
        ):
            said.append(f"{logical}: already exists")
        if was["Type"] == "AWS::Kinesis::Stream" and {"ShardCount"} <= before.keys() & after.keys():
            first, then = before["ShardCount"], after["ShardCount"]
            said += [f"{logical}: {first} to {then} shards"] * (not first / 2 <= then <= 2 * first)
        if was["Type"] == "AWS::MSK::Topic":
            said += [f"{logical}: fewer partitions"] * (after["PartitionCount"] < before["PartitionCount"])
        if was["Type"] == "AWS::MSK::Cluster":
            said += [f"{logical}: {line}" for line in _cluster_refused(old, new, before, after)]
    return said


NAMED = {
    **dict.fromkeys(("AWS::Kinesis::Stream", "AWS::Glue::Job", "AWS::Glue::SecurityConfiguration"), "Name"),
    "AWS::MSK::Cluster": "ClusterName",
    "AWS::MSK::Topic": "TopicName",
    "AWS::MSK::Configuration": "Name",
    "AWS::Logs::LogGroup": "LogGroupName",
    "AWS::S3::Bucket": "BucketName",
    "AWS::SNS::Topic": "TopicName",
    "AWS::Chatbot::MicrosoftTeamsChannelConfiguration": "ConfigurationName",
    "AWS::Chatbot::SlackChannelConfiguration": "ConfigurationName",
    "AWS::CloudWatch::Alarm": "AlarmName",
    "AWS::Kinesis::StreamConsumer": "ConsumerName",
    "AWS::ECR::Repository": "RepositoryName",
    "AWS::StepFunctions::StateMachine": "StateMachineName",
    "AWS::ECR::PullThroughCacheRule": "EcrRepositoryPrefix",
}
"""The property that names a resource, of the types whose templates give it."""


def _cluster_refused(old: Template, new: Template, before: Any, after: Any) -> Iterator[str]:
    def volume(properties: Any) -> int:
        return int(
            at(properties, ["BrokerNodeGroupInfo", "StorageInfo", "EBSStorageInfo", "VolumeSize"]) or 0
        )

    def configurations(template: Template) -> list[Any]:
        return [each for each in template["Resources"].values() if each["Type"] == "AWS::MSK::Configuration"]

    kinds = {
        "storage": at(before, ["BrokerNodeGroupInfo", "StorageInfo"])
        != at(after, ["BrokerNodeGroupInfo", "StorageInfo"]),
        "count": before["NumberOfBrokerNodes"] != after["NumberOfBrokerNodes"],
        "type": at(before, ["BrokerNodeGroupInfo", "InstanceType"])
        != at(after, ["BrokerNodeGroupInfo", "InstanceType"]),
        "version": before["KafkaVersion"] != after["KafkaVersion"],
        "configuration": before.get("ConfigurationInfo") != after.get("ConfigurationInfo")
        or configurations(old) != configurations(new),
        "monitoring": [before.get(k) for k in ("EnhancedMonitoring", "OpenMonitoring", "LoggingInfo")]
        != [after.get(k) for k in ("EnhancedMonitoring", "OpenMonitoring", "LoggingInfo")],
        "security": [before.get(k) for k in ("ClientAuthentication", "EncryptionInfo")]
        != [after.get(k) for k in ("ClientAuthentication", "EncryptionInfo")],
    }
    if sum(kinds.values()) > 1:
        yield f"at once: {', '.join(kind for kind, changed in kinds.items() if changed)}"
    growth = volume(after) - volume(before)
    if growth < 0 or 0 < growth < 10:
        yield f"volume by {growth} GiB"
    if after["NumberOfBrokerNodes"] < before["NumberOfBrokerNodes"]:
        yield "fewer brokers"
    types = [at(each, ["BrokerNodeGroupInfo", "InstanceType"]).split(".")[0] for each in (before, after)]
    if types[0] != types[1]:
        yield "another kind of broker"
