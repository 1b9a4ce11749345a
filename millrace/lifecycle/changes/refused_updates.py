"""Updates of deployed resources that AWS refuses, and those that it takes only one after the other.

Pure functions over templates. Which properties only a creation sets is in ``resource_types.json``, an extract of
CloudFormation's resource schemas and of the CDK's database.
"""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from millrace.config.sources.kinesis import CHANGES_A_DAY, shard_steps
from millrace.config.valid_parts import value_at
from millrace.sizing.msk_clusters import SMALLEST_GROWTH_GIB
from millrace.sizing.readable_numbers import count

Template = Mapping[str, Any]

RESOURCE_TYPES = Path(__file__).with_name("resource_types.json")
"""By type: the ``create_only`` properties, and those that are the ``names`` of a resource."""

_MANY_OF_A_NAME = ("AWS::EMRServerless::Application",)
"""Types of which several resources may have one name (botocore's model of CreateApplication: no conflict of names)."""

_WITHIN = {
    "AWS::Glue::Database": "CatalogId",
    "AWS::Kinesis::StreamConsumer": "StreamARN",
    "AWS::MSK::Topic": "ClusterArn",
}
"""The property with the resource inside which a name is used once: in another one, the same name is free."""

_CLUSTER_REQUESTS = (
    ("storage", ("BrokerNodeGroupInfo/StorageInfo",)),
    ("number of brokers", ("NumberOfBrokerNodes",)),
    ("broker type", ("BrokerNodeGroupInfo/InstanceType",)),
    ("connectivity", ("BrokerNodeGroupInfo/ConnectivityInfo",)),
    ("Kafka version", ("KafkaVersion",)),
    ("configuration", ("ConfigurationInfo",)),
    ("monitoring", ("EnhancedMonitoring", "OpenMonitoring", "LoggingInfo")),
    ("security", ("ClientAuthentication", "EncryptionInfo")),
)
"""Properties of an MSK cluster that one request changes: CloudFormation changes one of them in an update (botocore's model:
``UpdateBrokerStorage``, ``UpdateBrokerCount``, ``UpdateBrokerType``, ``UpdateConnectivity``, ``UpdateClusterKafkaVersion``,
``UpdateClusterConfiguration``, ``UpdateMonitoring``, ``UpdateSecurity``)."""

_WAYS = {
    "AWS::MSK::Topic": "declare another stream beside it, with the new setting, let a job read both, then remove the first",
    "AWS::MSK::Cluster": "declare another cluster beside it and move the topics, or revert the change",
}


@functools.cache
def read_resource_schema_extract() -> Mapping[str, Mapping[str, list[str]]]:
    """Return the extract of CloudFormation's resource schemas, by type."""
    result: dict[str, dict[str, list[str]]] = json.loads(RESOURCE_TYPES.read_text())
    return result


def property_at(properties: Any, path: str) -> Any:
    """Return the value at a path of a resource's properties; None without one."""
    return value_at(properties, *path.split("/"))


def names_given_by_template(resource: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names that the template itself gives a resource, and that no second one of its type may have."""
    if resource["Type"] in _MANY_OF_A_NAME:
        return ()
    paths = read_resource_schema_extract().get(resource["Type"], {}).get("names", ())
    values = (property_at(resource.get("Properties", {}), path) for path in paths)
    return tuple(value for value in values if isinstance(value, str))


def refused_change_lines(old: Mapping[str, Template | None], new: Mapping[str, Template]) -> Iterator[str]:
    """Yield a line for each change that AWS refuses, with what to do instead.

    Parameters
    ----------
    old, new
        Templates by stack, deployed and new; stacks that leave are in neither.
    """
    for stack, template in sorted(new.items()):
        before, after = _resources_of_template(old.get(stack)), _resources_of_template(template)
        gone = replaced_resources(before, after)
        for logical in sorted(before.keys() & after.keys()):
            lines = _refused_property_lines(before[logical], after[logical], gone.get(logical, []))
            yield from (f"{stack}: {_type_and_name_text(logical, before[logical])}: {line}" for line in lines)
        yield from _name_conflict_lines(stack, before, after)


def replaced_resources(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the resources that an update replaces, and the properties why: a subnet is replaced with its VPC.

    Parameters
    ----------
    before, after
        Resources by logical id.
    """
    names, schemas = dict[str, list[str]](), read_resource_schema_extract()
    while True:
        more = {
            logical: paths
            for logical in before.keys() & after.keys() - names.keys()
            if (
                paths := [
                    path
                    for path in schemas.get(before[logical]["Type"], {}).get("create_only", ())
                    if property_at(before[logical].get("Properties"), path)
                    != property_at(after[logical].get("Properties"), path)
                    or names.keys()
                    & set(referenced_logical_ids(property_at(after[logical].get("Properties"), path)))
                ]
            )
        }
        if not more:
            return names
        names |= more


def _refused_property_lines(
    was: Mapping[str, Any], will: Mapping[str, Any], changed: list[str]
) -> Iterator[str]:
    kind, before, after = was["Type"], was.get("Properties", {}), will.get("Properties", {})
    if kind != will["Type"]:
        yield f"CloudFormation cannot change its type to {will['Type']}; give the new one another name in the file"
        return
    name = names_given_by_template(was)
    if changed and name and name == names_given_by_template(will) and _WITHIN.get(kind) not in changed:
        paths = ", ".join(path.replace("/", ".") for path in changed)
        way = _WAYS.get(kind, "revert the change, or give it another name")
        yield f"{paths} can only be set at creation, and a second {kind} named {name[0]} cannot be created beside it; {way}"
    if kind == "AWS::MSK::Cluster":
        yield from _refused_cluster_lines(before, after)
    elif kind == "AWS::MSK::Topic":
        yield from _refused_decrease_lines(
            before, after, "PartitionCount", "partitions: a topic never loses one"
        )
    elif kind == "AWS::Kinesis::Stream":
        path = shard_count_steps(before, after)
        if len(path) > CHANGES_A_DAY:
            yield (
                f"{path[-1]} shards need {len(path)} changes, and Kinesis takes {CHANGES_A_DAY} in 24 hours; pin "
                f"`shards: {path[CHANGES_A_DAY - 1]}` today, and deploy the rest tomorrow"
            )


def _refused_cluster_lines(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    kinds = [
        str(property_at(each, "BrokerNodeGroupInfo/InstanceType")).split(".")[0] for each in (before, after)
    ]
    if kinds[0] != kinds[1]:
        yield f"MSK changes no {kinds[0]} broker into {kinds[1]}; {_WAYS['AWS::MSK::Cluster']}"
        return
    volume = "BrokerNodeGroupInfo/StorageInfo/EBSStorageInfo/VolumeSize"
    was, will = property_at(before, volume), property_at(after, volume)
    if isinstance(was, int) and isinstance(will, int):
        if will < was:
            yield f"{will} GiB of storage on a broker: a volume never shrinks; pin `storage: {was}GiB`"
        elif 0 < will - was < SMALLEST_GROWTH_GIB:
            yield (
                f"{will} GiB of storage on a broker: it grows by {SMALLEST_GROWTH_GIB} GiB at least; pin "
                f"`storage: {was}GiB` or `storage: {was + SMALLEST_GROWTH_GIB}GiB`"
            )
    yield from _refused_decrease_lines(
        before,
        after,
        "NumberOfBrokerNodes",
        "brokers: MSK removes only brokers that hold no partitions; move those with kafka-reassign-partitions.sh, remove "
        "the brokers with `aws kafka update-broker-count`, then deploy",
    )
    versions = [str(each.get("KafkaVersion")) for each in (before, after)]
    if [version.endswith(".kraft") for version in versions] in ([True, False], [False, True]):
        yield f"Kafka {versions[0]} to {versions[1]}: MSK does not move a cluster between ZooKeeper and KRaft"
    elif _first_two_version_numbers(versions[1]) < _first_two_version_numbers(versions[0]):
        yield f"Kafka {versions[0]} to {versions[1]}: MSK never goes back to an earlier version"


def _first_two_version_numbers(name: str) -> tuple[int, ...]:
    return tuple(int(part) for part in name.split(".")[:2] if part.isdigit())


def _refused_decrease_lines(
    before: Mapping[str, Any], after: Mapping[str, Any], key: str, why: str
) -> Iterator[str]:
    was, will = before.get(key), after.get(key)
    if isinstance(was, int) and isinstance(will, int) and will < was:
        yield f"{was} to {will} {why}"


def _name_conflict_lines(stack: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield resources that are to be created under a name that another resource of their stack still has."""
    used = {
        (resource["Type"], name): logical
        for logical, resource in before.items()
        for name in names_given_by_template(resource)
    }
    for logical, resource in after.items():
        owners = {used.get((resource["Type"], name), logical) for name in names_given_by_template(resource)}
        if owners - {logical}:
            yield (
                f"{stack}: {_type_and_name_text(logical, resource)}: it exists under another name of the file, and CloudFormation "
                "creates before it removes; keep that name, or give the new one another name in AWS"
            )


def names_moving_between_stacks(
    old: Mapping[str, Template | None], new: Mapping[str, Template]
) -> set[tuple[str, str]]:
    """Return the stack that has a name of a resource and the one that is to create it, where they are two.

    CloudFormation creates a resource only when no other stack has one of its name any more.
    """
    holders = {
        (resource["Type"], name): stack
        for stack, template in old.items()
        for resource in _resources_of_template(template).values()
        for name in names_given_by_template(resource)
    }
    return {
        (holder, stack)
        for stack, template in new.items()
        for resource in template.get("Resources", {}).values()
        for name in names_given_by_template(resource)
        if (holder := holders.get((resource["Type"], name), stack)) != stack
    }


def creates_lasting_resource(old: Template | None, new: Template) -> bool:
    """Tell whether an update creates a resource with a name of its own that outlives its stack."""
    created = (
        each
        for logical, each in _resources_of_template(new).items()
        if logical not in _resources_of_template(old)
    )
    return any(
        str(each.get("DeletionPolicy", "")).startswith("Retain") and names_given_by_template(each)
        for each in created
    )


def shard_count_steps(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[int]:
    """Return the shard counts on the way to a new one: each at most double and at least half of the one before it.

    Source: Kinesis API reference, UpdateShardCount.

    Examples
    --------
    >>> shard_count_steps({"ShardCount": 1}, {"ShardCount": 20})
    [2, 4, 8, 16, 20]
    >>> shard_count_steps({"ShardCount": 9}, {"ShardCount": 2})
    [5, 3, 2]
    """
    now, goal = before.get("ShardCount"), after.get("ShardCount")
    return [*shard_steps(now, goal)] if isinstance(now, int) and isinstance(goal, int) else []


def template_with_open_shards(
    old: Template | None, new: Template, count_open_shards: Callable[[str], int]
) -> Template | None:
    """Return a deployed template with the open shards of its on-demand streams that become provisioned.

    A switch keeps them (Kinesis developer guide, "Switch between capacity modes"), and the template of an on-demand stream has none.

    Parameters
    ----------
    count_open_shards
        Function that returns the open shards of a stream by its name.
    """
    later = _resources_of_template(new)
    counted = {
        logical: {**was, "Properties": {**was["Properties"], "ShardCount": count_open_shards(name)}}
        for logical, was in _resources_of_template(old).items()
        if was["Type"] == "AWS::Kinesis::Stream"
        and _is_on_demand(was["Properties"])
        and "ShardCount" in later.get(logical, {}).get("Properties", {})
        for name in names_given_by_template(was)
    }
    return {**old, "Resources": {**_resources_of_template(old), **counted}} if old and counted else old


def _is_on_demand(stream: Mapping[str, Any]) -> bool:
    return bool(property_at(stream, "StreamModeDetails/StreamMode") == "ON_DEMAND")


def successive_templates(old: Template | None, new: Template) -> list[tuple[str, Template]]:
    """Return the templates to deploy one after the other, each with what it changes; empty where one update does it.

    The last one is the new template.
    """
    ways = [
        way
        for logical, will in _resources_of_template(new).items()
        if (was := _resources_of_template(old).get(logical)) is not None and was["Type"] == will["Type"]
        for way in [_steps_of_resource(logical, was, will, old or {}, new)]
        if len(way) > 1
    ]
    result: list[tuple[str, Template]] = []
    for number in range(max((len(way) for way in ways), default=0)):
        texts, resources = [], dict(_resources_of_template(new))
        for way in ways:
            text, changed = way[min(number, len(way) - 1)]
            texts += [text] if number < len(way) else []
            resources |= changed
        result.append((", ".join(texts), {**new, "Resources": resources}))
    return result


_ResourceSteps = list[tuple[str, dict[str, Any]]]
"""Steps of one resource: what changes, and the resources that are not yet as in the new template."""


def _steps_of_resource(
    logical: str, was: Mapping[str, Any], will: Mapping[str, Any], old: Template, new: Template
) -> _ResourceSteps:
    before, after = was.get("Properties", {}), will.get("Properties", {})
    if was["Type"] == "AWS::Kinesis::Stream":
        counts = [before.get("ShardCount"), *shard_count_steps(before, after)]
        updates = [(f"{first} to {then} shards", then) for first, then in itertools.pairwise(counts)]
        if updates and _is_on_demand(before):
            updates.insert(0, (f"provisioned, with {count(counts[0], 'open shard')}", counts[0]))
        name = names_given_by_template(will)[0]
        return [
            (f"{name}: {what}", {logical: {**will, "Properties": {**after, "ShardCount": shards}}})
            for what, shards in updates
        ]
    if was["Type"] != "AWS::MSK::Cluster":
        return []
    configurations = {
        name: resource
        for name, resource in _resources_of_template(old).items()
        if resource["Type"] == "AWS::MSK::Configuration"
        and _resources_of_template(new).get(name, resource) != resource
    }
    requests = [
        (title, paths)
        for title, paths in _CLUSTER_REQUESTS
        if any(property_at(before, path) != property_at(after, path) for path in paths)
        # A new revision of the configuration reaches the cluster by a reference that stays the same.
        or (title == "configuration" and configurations)
    ]
    result: _ResourceSteps = []
    for number, (title, _) in enumerate(requests):
        properties = dict(after)
        later = requests[number + 1 :]
        for _, paths in later:
            for path in paths:
                properties = _with_value_at(properties, path, property_at(before, path))
        configuration_steps = configurations if any(each == "configuration" for each, _ in later) else {}
        name = (names_given_by_template(will) or (logical,))[0]
        result.append(
            (f"{name}: {title}", {logical: {**will, "Properties": properties}, **configuration_steps})
        )
    return result


def referenced_logical_ids(value: Any) -> Iterator[str]:
    """Yield the logical ids that a value of a template refers to."""
    yield from map(str, values_of_key(value, "Ref"))
    attributes = values_of_key(value, "Fn::GetAtt")
    yield from (each[0] if isinstance(each, list) else str(each).split(".")[0] for each in attributes)


def values_of_key(value: Any, key: str) -> Iterator[Any]:
    """Yield the values of a key at any depth of a template, such as the arguments of an intrinsic function."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            if name == key:
                yield inner
            else:
                yield from values_of_key(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from values_of_key(inner, key)


def _with_value_at(properties: Mapping[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return properties with another value at a path; None removes it."""
    first, _, rest = path.partition("/")
    if rest:
        return {**properties, first: _with_value_at(properties.get(first, {}), rest, value)}
    if value is None:
        return {key: each for key, each in properties.items() if key != first}
    return {**properties, first: value}


def _resources_of_template(template: Template | None) -> Mapping[str, Any]:
    resources: Mapping[str, Any] = (template or {}).get("Resources", {})
    return resources


def _type_and_name_text(logical: str, resource: Mapping[str, Any]) -> str:
    return f"{resource['Type']} {(names_given_by_template(resource) or (logical,))[0]}"
