"""Changes that AWS makes, and after which existing data is deleted or its jobs cannot read it.

Pure functions over templates.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from millrace.config.aws.resource_names import Names
from millrace.config.model import KafkaTopic, KinesisStream, MskCluster
from millrace.lifecycle.changes.deployment_changes import does_data_outlive_resource, resource_title
from millrace.lifecycle.changes.refused_updates import Template, referenced_logical_ids, values_of_key

_KEYS = {"AWS::Kinesis::Stream": "KeyId", "AWS::S3::Bucket": "KMSMasterKeyID"}
"""By type, the property with the key of new data. Existing data stays under the key that it was written with (S3 user guide,
"Setting default server-side encryption behavior"; Kinesis developer guide, "How do I use server-side encryption?")."""

_PLACES = {"LakeBucket": "lake", "CheckpointsBucket": "bucket of checkpoints", "DatabaseName": "database"}
"""Outputs of the storage stack that name places with data which jobs continue from."""

_CLUSTERS = ("AWS::MSK::Cluster", "AWS::MSK::ServerlessCluster")


def data_loss_lines(
    names: Names, old: Mapping[str, Template | None], new: Mapping[str, Template]
) -> Iterator[str]:
    """Yield a line for each change that deletes existing data or takes it away from jobs, with what to do instead.

    Parameters
    ----------
    old, new
        Templates by stack, deployed and new; the deployed ones include stacks that this deployment removes.
    """
    existing = _titles_of_existing_resources(names)
    for stack, template in sorted(old.items()):
        resources = (template or {}).get("Resources", {})
        for logical, resource in resources.items():
            title = resource_title(logical, resource)
            if (after := new.get(stack, {}).get("Resources", {}).get(logical)) is None:
                if f"{title}{_cluster_of_topic(resource, resources)}" in existing:
                    yield from _hand_over_lines(
                        f"{stack}: {title}: the file says that it exists already", resource
                    )
                continue
            was, will = (
                list(values_of_key(each, _KEYS.get(resource["Type"], ""))) for each in (resource, after)
            )
            if was and was != will:
                yield (
                    f"{stack}: {title}: its data stays under the old key, which roles could no longer use; keep the key, or "
                    "make another environment with the new one"
                )
    storage = names.stack("storage")
    before, then = (_data_places(templates.get(storage)) for templates in (old, new))
    for output in before.keys() & then.keys():
        (kept, resource), (instead, _) = before[output], then[output]
        if kept != instead:
            stays = not resource or does_data_outlive_resource(resource)
            what = "stays, and roles could no longer reach it" if stays else "is deleted"
            yield (
                f"{storage}: {_PLACES[output]} {kept} becomes {instead}: its data {what}; keep {kept}, or make another "
                f"environment with {instead}"
            )


def _hand_over_lines(subject: str, resource: Mapping[str, Any]) -> Iterator[str]:
    """Yield why a resource of ours cannot yet be somebody else's."""
    if resource["Type"] in _CLUSTERS:
        yield f"{subject}, but its security group and the rule that lets jobs in are Millrace's, and would go; keep it as Millrace's"
    elif not does_data_outlive_resource(resource):
        yield (
            f"{subject}, and this deployment would delete it with its data; undo that, deploy with `removal: retain`, then say "
            "that it exists"
        )


def _titles_of_existing_resources(names: Names) -> set[str]:
    """Return type and name of each resource that the file declares as somebody else's; for a topic also its cluster."""
    environment = names.environment
    clusters = {name: each for name, each in environment.kafka.items() if isinstance(each, MskCluster)}
    titles = {f"AWS::S3::Bucket {bucket}" for bucket in environment.storage.buckets.values()}
    titles.add(f"AWS::Glue::Database {environment.storage.database}")
    for name, stream in environment.streams.items():
        if isinstance(stream, KinesisStream) and stream.existing and not stream.read_role:
            titles.add(f"AWS::Kinesis::Stream {names.stream(name)}")
        elif isinstance(stream, KafkaTopic) and stream.existing and stream.cluster in clusters:
            titles.add(f"AWS::MSK::Topic {names.stream(name)} of {names.cluster(stream.cluster)}")
    existing = (names.cluster(name) for name, cluster in clusters.items() if cluster.existing)
    return titles.union(f"{kind} {cluster}" for cluster in existing for kind in _CLUSTERS)


def _cluster_of_topic(resource: Mapping[str, Any], resources: Mapping[str, Any]) -> str:
    """Return " of " and the cluster of a topic; nothing for another resource."""
    if (arn := resource.get("Properties", {}).get("ClusterArn")) is None:
        return ""
    owned = [resources[each]["Properties"]["ClusterName"] for each in referenced_logical_ids(arn)]
    return f" of {owned[0] if owned else arn.split('/')[1]}"


def _data_places(template: Template | None) -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return name and resource of the places with data, by the output of the storage stack; somebody else's have no resource."""
    resources, outputs = ((template or {}).get(key, {}) for key in ("Resources", "Outputs"))
    places = {}
    for key in _PLACES.keys() & outputs.keys():
        value = outputs[key]["Value"]
        resource = {} if isinstance(value, str) else resources[value["Ref"]]
        places[key] = (value if isinstance(value, str) else resource["Properties"]["BucketName"], resource)
    return places
