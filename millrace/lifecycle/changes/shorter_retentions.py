"""Retentions that a deployment shortens: AWS, or the job's maintenance, then deletes what is older.

Pure functions over templates and launch documents.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from millrace.config.units import format_duration
from millrace.lifecycle.changes.deployment_changes import document_differences, resource_title
from millrace.lifecycle.changes.refused_updates import Template

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
