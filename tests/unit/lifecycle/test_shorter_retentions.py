"""Retentions that a deployment shortens are named in its changes and in its question."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from millrace.cli.run.changes_report import change_lines, changes_document, removal_questions
from millrace.lifecycle.changes.compare_with_deployed import DeploymentChanges
from millrace.lifecycle.changes.data_loss import (
    shorter_job_retention_lines,
    shorter_retention_lines,
)
from millrace.lifecycle.changes.deployment_changes import compare_templates

Resource = dict[str, Any]


def stream(**more: Any) -> Resource:
    return {"Type": "AWS::Kinesis::Stream", "Properties": {"Name": "departures", **more}}


def topic(text: str) -> Resource:
    configs = base64.b64encode(f"compression.type=zstd\n{text}".encode()).decode()
    return {"Type": "AWS::MSK::Topic", "Properties": {"TopicName": "flights", "Configs": configs}}


def bucket(*rules: dict[str, Any]) -> Resource:
    uploads = {"Id": "abort-uploads", "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 7}}
    properties = {"BucketName": "letters", "LifecycleConfiguration": {"Rules": [uploads, *rules]}}
    return {"Type": "AWS::S3::Bucket", "Properties": properties}


def workspace(days: int) -> Resource:
    properties = {"Alias": "dev", "WorkspaceConfiguration": {"RetentionPeriodInDays": days}}
    return {"Type": "AWS::APS::Workspace", "Properties": properties}


def log_group(**more: Any) -> Resource:
    return {"Type": "AWS::Logs::LogGroup", "Properties": {"LogGroupName": "g", **more}}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        (stream(RetentionPeriodHours=168), stream(RetentionPeriodHours=24), "Stream departures keeps records 1d, before 7d"),
        (stream(RetentionPeriodHours=168), stream(), "Stream departures keeps records 1d, before 7d"),
        (topic("retention.ms=604800000"), topic("retention.ms=3600000"), "Topic flights keeps records 1h, before 7d"),
        (topic("retention.ms=-1"), topic("retention.ms=3600000"), "Topic flights keeps records 1h, before for ever"),
        (bucket(), bucket({"Id": "expire", "ExpirationInDays": 7}), "Bucket letters keeps objects 7d, before for ever"),
        (
            bucket({"NoncurrentVersionExpiration": {"NoncurrentDays": 30}}),
            bucket({"NoncurrentVersionExpiration": {"NoncurrentDays": 3}}),
            "Bucket letters keeps old versions 3d, before 30d",
        ),
        (workspace(365), workspace(30), "Workspace dev keeps metrics 30d, before 365d"),
        (log_group(), log_group(RetentionInDays=90), "LogGroup g keeps log events 90d, before for ever"),
    ],
)  # fmt: skip
def test_a_shorter_retention_is_named(old: Resource, new: Resource, told: str) -> None:
    templates: list[Any] = [{"s": {"Resources": {"R": each}}} for each in (old, new)]
    (line,) = shorter_retention_lines(*templates)
    assert line.endswith(told)
    assert list(shorter_retention_lines(*reversed(templates))) == []
    assert list(shorter_retention_lines({"s": None}, templates[1])) == []
    difference = compare_templates("s", templates[0]["s"], templates[1]["s"])
    changes = DeploymentChanges((difference,), (), {}, shorter=(line,))
    assert f"  {line}" in change_lines(changes)
    (question,) = removal_questions(changes)
    assert question == f"Deploy this? Older data is deleted: {line}."
    assert changes_document(changes)["shorter_retentions"] == (line,)


def test_maintenance_that_deletes_earlier_is_named() -> None:
    def document(letters: int | None, snapshots: int) -> dict[str, Any]:
        upkeep = {"snapshots_kept_seconds": snapshots, "orphans_kept_seconds": snapshots}
        return {"settings": {"dead_letters_kept_seconds": letters, "upkeep": upkeep}}

    lines = shorter_job_retention_lines("land", document(None, 604_800), document(864_000, 86_400))
    assert list(lines) == [
        "job land keeps dead letters 10d, before for ever",
        "job land keeps snapshots of tables 1d, before 7d",
    ]
    assert list(shorter_job_retention_lines("land", document(864_000, 86_400), document(None, 604_800))) == []
