"""Event logs of both engines under one flat prefix, copied by a state machine as they arrive.

Spark's history server lists only the direct children of its directory; Glue and EMR
Serverless each write below prefixes of their own (docs/design/stacks.md#event-logs).
"""

from __future__ import annotations

from typing import Any

from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from constructs import Construct

from millrace.config.aws.iam_statements import FILES, allow, allow_listing_prefixes
from millrace.config.aws.resource_names import Names

from .logged_encrypted_state_machine import LoggedEncryptedStateMachine, allow_delivery_of_execution_logs

FLAT_PREFIX = "spark"
"""Prefix in the event-log bucket; each child below it is the log of one run."""

ENGINE_PREFIXES = ("emr", "glue")

_EMR_FOLDER = "/sparklogs/"
"""EMR Serverless: ``<log URI>/applications/<id>/jobs/<id>/sparklogs/<log>`` (user guide, "Storing logs")."""

_TARGET = (
    "$contains($states.input.detail.object.key, '" + _EMR_FOLDER + "') "
    "? '" + FLAT_PREFIX + "/' & $substringAfter($states.input.detail.object.key, '" + _EMR_FOLDER + "') "
    # Glue: glue/<job>/<log>
    ": '" + FLAT_PREFIX + "/' & $substringAfter($substringAfter($states.input.detail.object.key, '/'), '/')"
)


class EventLogCopier(LoggedEncryptedStateMachine):
    """State machine that copies each new event log, and deletes the copy when the original is deleted.

    Parameters
    ----------
    key
        Encrypts the event-log bucket, which sends its events to EventBridge, and the data of the machine's executions.
    """

    def __init__(self, scope: Construct, construct_id: str, *, names: Names, key: kms.IKey) -> None:
        bucket, arn = names.bucket("event-logs"), names.bucket_arn("event-logs")
        super().__init__(
            scope,
            construct_id,
            names=names,
            log_name="event-logs",
            kind="EXPRESS",
            definition=copy_machine_definition(bucket, names.account),
            grants=[
                allow("Read", ["s3:GetObject"], [f"{arn}/{p}/*" for p in ENGINE_PREFIXES], why=FILES),
                allow("Write", ["s3:DeleteObject", "s3:PutObject"], [f"{arn}/{FLAT_PREFIX}/*"], why=FILES),
                allow_listing_prefixes("List", arn, list(ENGINE_PREFIXES)),
            ],
            key=key,
            logs_key=key,
            purpose=f"Copies event logs of {names.prefix} under one prefix",
        )
        allow_delivery_of_execution_logs(key, account=names.account)
        starter = self.add_starter_role(f"Starts the copy of event logs of {names.prefix}")
        events.CfnRule(
            self,
            "Rule",
            description=f"Event logs of {names.prefix} come and go",
            event_pattern=event_log_pattern(bucket),
            targets=[self.rule_target(starter)],
        )


def event_log_pattern(bucket: str) -> dict[str, Any]:
    """Return the EventBridge pattern for event logs: objects below the engines' prefixes, not the copies.

    Parameters
    ----------
    bucket
        The event-log bucket's name.
    """
    return {
        "source": ["aws.s3"],
        "detail-type": ["Object Created", "Object Deleted"],
        "detail": {
            "bucket": {"name": [bucket]},
            # Only Spark's event logs of EMR Serverless' files: drivers' output lies beside them.
            "object": {"key": [{"prefix": "glue/"}, {"wildcard": f"emr/*{_EMR_FOLDER}*"}]},
        },
    }


def copy_machine_definition(bucket: str, account: str) -> dict[str, Any]:
    """Write the state machine: it copies a created log, and deletes the copy of a deleted one.

    Parameters
    ----------
    bucket
        The event-log bucket's name.
    """
    patient = [
        {
            "ErrorEquals": ["States.ALL"],
            "IntervalSeconds": 2,
            "BackoffRate": 2,
            "MaxAttempts": 5,
            "JitterStrategy": "FULL",
        }
    ]
    return {
        "Comment": "Event logs of both engines under one flat prefix",
        "QueryLanguage": "JSONata",
        "StartAt": "CreatedOrDeleted",
        "TimeoutSeconds": 240,
        "States": {
            "CreatedOrDeleted": {
                "Type": "Choice",
                "Choices": [
                    {
                        "Condition": "{% $states.input.'detail-type' = 'Object Created' %}",
                        "Next": "Copy",
                    }
                ],
                "Default": "Delete",
            },
            "Copy": {
                "Type": "Task",
                "Resource": "arn:aws:states:::aws-sdk:s3:copyObject",
                "Arguments": {
                    "Bucket": bucket,
                    "CopySource": "{% '" + bucket + "/' & $states.input.detail.object.key %}",
                    "Key": "{% " + _TARGET + " %}",
                    "ExpectedBucketOwner": account,
                },
                "Retry": patient,
                # The log may be deleted before its copy starts.
                "Catch": [{"ErrorEquals": ["S3.NoSuchKeyException"], "Next": "Done"}],
                "Next": "Done",
            },
            "Delete": {
                "Type": "Task",
                "Resource": "arn:aws:states:::aws-sdk:s3:deleteObject",
                "Arguments": {
                    "Bucket": bucket,
                    "Key": "{% " + _TARGET + " %}",
                    "ExpectedBucketOwner": account,
                },
                "Retry": patient,
                "Next": "Done",
            },
            "Done": {"Type": "Succeed"},
        },
    }
