"""Changes after which data is deleted, at once or earlier than before, or jobs cannot read it.

Pure functions over templates and launch documents.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from millrace.config.aws.resource_names import Names
from millrace.config.model import KafkaTopic, KinesisStream, MskCluster
from millrace.config.units import format_duration
from millrace.lifecycle.changes.deployment_changes import (
    document_differences,
    does_data_outlive_resource,
    resource_title,
)
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


_DAY = 86_400
_KEPT = {"dead_letters_kept_seconds": "dead letters", "snapshots_kept_seconds": "snapshots of tables"}
"""By key of a launch document, what maintenance deletes when it is older."""


def shorter_retention_lines(old: Mapping[str, Template | None], new: Mapping[str, Template]) -> Iterator[str]:
    """Yield a line for each resource that will keep its data for a shorter time.

    Parameters
    ----------
    old, new
        Templates by stack, deployed and new.
    """
    for stack, template in new.items():
        before = (old.get(stack) or {}).get("Resources", {})
        for logical, resource in template.get("Resources", {}).items():
            if logical not in before or before[logical]["Type"] != resource["Type"]:
                continue
            was, will = _kept_seconds(before[logical]), _kept_seconds(resource)
            for what in sorted(was.keys() | will.keys()):
                yield from _line_if_shorter(
                    f"{resource_title(logical, resource)} keeps {what}",
                    *(each.get(what, math.inf) for each in (was, will)),
                )


def shorter_job_retention_lines(job: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield a line for each retention in a job's launch document that becomes shorter."""
    for path, was, will in document_differences(old, new):
        if (what := _KEPT.get(path.rpartition(".")[2])) is not None:
            yield from _line_if_shorter(
                f"job {job} keeps {what}", *(math.inf if each is None else each for each in (was, will))
            )


def _line_if_shorter(subject: str, was: float, will: float) -> Iterator[str]:
    if will < was:
        before = "for ever" if was == math.inf else format_duration(timedelta(seconds=was))
        yield f"{subject} {format_duration(timedelta(seconds=will))}, before {before}"


def _kept_seconds(resource: Mapping[str, Any]) -> dict[str, float]:
    """Return the seconds for which a resource keeps each of its kinds of data; what is missing is kept for ever."""
    kind, properties = resource["Type"], resource.get("Properties", {})
    if kind == "AWS::Kinesis::Stream":
        return {"records": properties.get("RetentionPeriodHours", 24) * 3600}
    if kind == "AWS::MSK::Topic":
        lines = base64.b64decode(properties.get("Configs", "")).decode().splitlines()
        milliseconds = dict(line.split("=", 1) for line in lines).get("retention.ms", "-1")
        return {"records": int(milliseconds) / 1000} if milliseconds != "-1" else {}
    if kind == "AWS::APS::Workspace":  # 150 days by default
        days = properties.get("WorkspaceConfiguration", {}).get("RetentionPeriodInDays", 150)
        return {"metrics": days * _DAY}
    if kind == "AWS::Logs::LogGroup" and "RetentionInDays" in properties:
        return {"log events": properties["RetentionInDays"] * _DAY}
    kept: dict[str, float] = {}
    if kind == "AWS::S3::Bucket":
        for rule in properties.get("LifecycleConfiguration", {}).get("Rules", ()):
            place = f" below {rule['Prefix']}" if rule.get("Prefix") else ""
            replaced = rule.get("NoncurrentVersionExpiration", {}).get("NoncurrentDays", math.inf)
            for what, days in (
                ("objects", rule.get("ExpirationInDays", math.inf)),
                ("old versions", replaced),
            ):
                kept[what + place] = min(kept.get(what + place, math.inf), days * _DAY)
    return kept
