"""Removal of everything that a verification created, and of nothing else."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # forgotten in its stubs

from millrace.config.aws.pagination import list_all
from millrace.config.kafka.clusters import TIME_LIMITS
from millrace.lifecycle.account.deployed_environment import ignoring_not_found_errors
from millrace.lifecycle.account.kafka_access import Settings
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors
from millrace.lifecycle.deploy import deployed_template
from millrace.sandbox.kill_and_restart_jobs import DrillError
from millrace.verify.removals.removal_scope import (
    VerificationScope,
    all_stacks,
    list_leftovers,
    list_log_groups,
    list_parameters,
    removal_waves,
    tags_of_stack,
)
from millrace.verify.target_base import VerificationTarget

_AT_ONCE = 1000
"""Maximum number of objects of one call (S3 API reference, "DeleteObjects")."""

_TRIES = 5
"""Access logs arrive for some time after the last request, and a bucket with one of them cannot be deleted."""

_POLL_SECONDS = 2.0
_BUCKET, _JOBS = "AWS::S3::Bucket", "-job-"

Say = Callable[[str], None]


@dataclass(frozen=True)
class RemovalResult:
    """Result of a removal.

    Attributes
    ----------
    objects
        Number of objects and versions of objects in its buckets.
    remains
        What still exists, but should not.
    """

    objects: int
    remains: tuple[str, ...]


def remove_verification(
    place: VerificationTarget,
    scope: VerificationScope,
    *,
    say: Say,
    poll_seconds: float = _POLL_SECONDS,
) -> RemovalResult:
    """End all runs, empty the buckets, delete the stacks and what jobs created beside them; check what is left.

    Parameters
    ----------
    place
        Place of the verification.
    scope
        Its scope.
    say
        Called with each step.
    poll_seconds
        Seconds between two looks at the stacks.

    Raises
    ------
    AwsError, DrillError
        Something cannot be deleted; the message names it.
    """
    deadline = time.monotonic() + place.patience.remove
    cloudformation = place.client("cloudformation")
    with translating_aws_errors("cannot read the stacks"):
        stacks = [
            stack["StackName"]
            for stack in all_stacks(place.client)
            if scope.owns(stack["StackName"]) and scope.tags.items() <= tags_of_stack(stack).items()
        ]
        resources = {stack: _types_and_ids_of_resources(cloudformation, stack) for stack in stacks}
        templates = {stack: deployed_template(cloudformation, stack) or {} for stack in stacks}
    say("ending runs")
    before = f"{scope.prefix}{_JOBS}"
    jobs = {k.removeprefix(before): dict(own) for k, own in resources.items() if k.startswith(before)}
    place.end_all_runs(scope.prefix, jobs)
    objects = 0
    for wave in removal_waves(templates):
        buckets = [(stack, bucket) for stack in wave for kind, bucket in resources[stack] if kind == _BUCKET]
        for attempt in range(_TRIES):
            for stack, bucket in buckets:
                if not scope.owns(bucket):
                    raise DrillError(
                        f"{stack} is not deleted: the name of its bucket {bucket} does not begin with "
                        f"{scope.prefix}-, so its data may belong to somebody else. If it belongs to this "
                        "verification, empty the bucket, delete the stack and run the removal again"
                    )
                objects += empty_bucket(place.client("s3"), bucket)
            say(f"deleting {', '.join(wave)}")
            failed = _delete_stacks_and_report_remaining(cloudformation, wave, deadline, poll_seconds)
            if not failed:
                break
            if attempt == _TRIES - 1:
                raise DrillError(f"not deleted: {'; '.join(failed)}")
            wave = [stack for stack in wave if any(stack in line for line in failed)]
    say("deleting logs and parameters of jobs")
    _delete_job_log_groups_and_parameters(place, scope)
    say("looking for remaining resources")
    deadline = time.monotonic() + place.patience.vanish
    while (left := list_leftovers(place.client, scope)) and time.monotonic() < deadline:
        time.sleep(poll_seconds)
        _delete_job_log_groups_and_parameters(
            place, scope
        )  # engines deliver logs late, into a group that they create again
    return RemovalResult(objects, tuple(left))


def _delete_job_log_groups_and_parameters(place: VerificationTarget, scope: VerificationScope) -> None:
    """Delete what jobs created beside the stacks."""
    logs, ssm = place.client("logs"), place.client("ssm")
    with translating_aws_errors("cannot delete resources that jobs created outside the stacks"):
        for group in list_log_groups(logs, scope):
            logs.delete_log_group(logGroupName=group)
        for parameter in list_parameters(ssm, scope):
            ssm.delete_parameter(Name=parameter)


def _types_and_ids_of_resources(cloudformation: Any, stack: str) -> list[tuple[str, str]]:
    """Return type and physical id of a stack's existing resources."""
    return [
        (each["ResourceType"], each["PhysicalResourceId"])
        for each in list_all(
            cloudformation, "list_stack_resources", "StackResourceSummaries", StackName=stack
        )
        if each.get("PhysicalResourceId") and each["ResourceStatus"] != "DELETE_COMPLETE"
    ]


def empty_bucket(s3: Any, bucket: str) -> int:
    """Delete all objects of a bucket, with all their versions; return their number.

    Raises
    ------
    AwsError
        S3 refuses.
    """
    count = 0
    with translating_aws_errors(f"cannot empty bucket {bucket}"), ignoring_not_found_errors("NoSuchBucket"):
        for page in s3.get_paginator("list_object_versions").paginate(Bucket=bucket):
            # Objects of a bucket without versions have the version "null", which is no argument.
            objects = [
                {key: each[key] for key in ("Key", "VersionId") if each[key] != "null" or key == "Key"}
                for each in (*page.get("Versions", ()), *page.get("DeleteMarkers", ()))
            ]
            for begin in range(0, len(objects), _AT_ONCE):
                part = objects[begin : begin + _AT_ONCE]
                answer = s3.delete_objects(Bucket=bucket, Delete={"Objects": part, "Quiet": True})
                if answer.get("Errors"):
                    error = answer["Errors"][0]
                    raise AwsError(
                        f"bucket {bucket} could not be emptied: {error['Key']}: {error['Code']}: "
                        f"{error['Message']}"
                    )
            count += len(page.get("Versions", ()))
    return count


def _delete_stacks_and_report_remaining(
    cloudformation: Any, wave: Sequence[str], deadline: float, poll_seconds: float
) -> list[str]:
    """Delete stacks in parallel; return the reason for each that is left."""
    with translating_aws_errors(f"cannot delete {', '.join(wave)}"):
        stacks = {stack: _describe_stack(cloudformation, stack) for stack in wave}
        for stack in wave:
            cloudformation.delete_stack(StackName=stack)
        waiting, failed = (
            {
                stack: description["StackId"]
                for stack, description in stacks.items()
                if description is not None
            },
            [],
        )
        while waiting:
            for stack, id_ in list(waiting.items()):
                now = _describe_stack(cloudformation, id_)
                if now is None or now["StackStatus"] == "DELETE_COMPLETE":
                    del waiting[stack]
                elif now["StackStatus"] == "DELETE_FAILED":
                    failed.append(f"{stack}: {_deletion_failure_reason(cloudformation, id_)}")
                    del waiting[stack]
            if waiting and time.monotonic() > deadline:
                raise DrillError(f"still being deleted: {', '.join(waiting)}")
            if waiting:
                time.sleep(poll_seconds)
    return failed


def _describe_stack(cloudformation: Any, stack: str) -> Mapping[str, Any] | None:
    with ignoring_not_found_errors("does not exist"):
        return dict(cloudformation.describe_stacks(StackName=stack)["Stacks"][0])
    return None


def _deletion_failure_reason(cloudformation: Any, stack: str) -> str:
    events = cloudformation.describe_stack_events(StackName=stack)["StackEvents"]
    reasons = [
        f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', 'no reason given')}"
        for event in events
        if event["ResourceStatus"] == "DELETE_FAILED" and event.get("PhysicalResourceId") != stack
    ]
    return reasons[0] if reasons else "CloudFormation gives no reason"


def kafka_admin_client(settings: Settings) -> AdminClient:
    """Return a client of the brokers, with its token of IAM, if it needs one."""
    admin = AdminClient({**settings, "log_level": 0})
    admin.poll(0)  # a token of IAM is fetched during a request of the client, not before
    return admin


def create_topic_if_missing(settings: Settings, topic: str, partitions: int, seconds: float) -> None:
    """Create a topic where no stack did, as in the sandbox.

    It has the same time limits as Millrace's topics; on brokers that are too old for them, none.

    Raises
    ------
    DrillError
        The brokers refuse.
    """
    admin = kafka_admin_client(settings)
    try:
        if topic in admin.list_topics(timeout=seconds).topics:
            return
        try:
            _create_topic_with_admin(admin, topic, partitions, TIME_LIMITS, seconds)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.INVALID_CONFIG:
                raise
            _create_topic_with_admin(admin, topic, partitions, {}, seconds)
    except KafkaException as error:
        raise DrillError(f"topic {topic} could not be created: {error.args[0].str()}") from error


def _create_topic_with_admin(
    admin: AdminClient, topic: str, partitions: int, settings: Mapping[str, str], seconds: float
) -> None:
    new_topic = NewTopic(topic, num_partitions=partitions, config=dict(settings))
    admin.create_topics([new_topic], operation_timeout=seconds)[topic].result()
