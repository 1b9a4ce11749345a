"""Event logs of both engines under one flat prefix, copied by a state machine as they arrive.

Spark's history server lists only the direct children of its directory; Glue and EMR
Serverless each write below prefixes of their own (docs/adr/0106-event-logs.md).
"""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.constructs.job_role import JobRole
from infra.constructs.logs import EncryptedLogGroup
from infra.grants import FILES, NO_NARROWER, PARTITION, allow, list_prefixes
from millrace.config.names import Names

FLAT_PREFIX = "spark"
"""Below it in the event-log bucket, each child is one run's log."""

ENGINE_PREFIXES = ("emr", "glue")

_EMR_FOLDER = "/sparklogs/"
"""EMR Serverless: ``<log URI>/applications/<id>/jobs/<id>/sparklogs/<log>`` (user guide, "Storing logs")."""

_TARGET = (
    "$contains($states.input.detail.object.key, '" + _EMR_FOLDER + "') "
    "? '" + FLAT_PREFIX + "/' & $substringAfter($states.input.detail.object.key, '" + _EMR_FOLDER + "') "
    # Glue: glue/<job>/<log>
    ": '" + FLAT_PREFIX + "/' & $substringAfter($substringAfter($states.input.detail.object.key, '/'), '/')"
)


class LogFlattener(Construct):
    """Copies each event log that appears, and drops the copy when its original goes.

    Parameters
    ----------
    scope, construct_id
        Where it stands.
    names
        The deployed names.
    key
        Encrypts the event-log bucket, which sends its events to EventBridge.
    """

    def __init__(self, scope: Construct, construct_id: str, *, names: Names, key: kms.IKey) -> None:
        super().__init__(scope, construct_id)
        self._names = names
        bucket = names.bucket("event-logs")
        logs = EncryptedLogGroup(
            self,
            "Logs",
            environment=names.environment,
            name=f"/aws/vendedlogs/states/{names.prefix}/event-logs",
            key=key,
        )
        role = self._role(key)
        machine = sfn.CfnStateMachine(
            self,
            "Resource",
            state_machine_type="EXPRESS",
            definition_string=Stack.of(self).to_json_string(definition(bucket, names.account)),
            role_arn=role.role_arn,
            logging_configuration=sfn.CfnStateMachine.LoggingConfigurationProperty(
                level="ALL",
                include_execution_data=True,
                destinations=[
                    sfn.CfnStateMachine.LogDestinationProperty(
                        cloud_watch_logs_log_group=sfn.CfnStateMachine.CloudWatchLogsLogGroupProperty(
                            log_group_arn=logs.log_group_arn
                        )
                    )
                ],
            ),
            tracing_configuration=sfn.CfnStateMachine.TracingConfigurationProperty(enabled=True),
        )
        # A machine that is made before its role's policy is refused its log group.
        machine.node.add_dependency(role.policy)
        starter = JobRole(
            self,
            "RuleRole",
            service="events.amazonaws.com",
            account=names.account,
            source_arn=self._arn("events", "rule/*"),
            description=f"Starts the copy of event logs of {names.prefix}",
            grants=[allow("StartExecution", ["states:StartExecution"], [machine.attr_arn])],
        )
        events.CfnRule(
            self,
            "Rule",
            description=f"Event logs of {names.prefix} come and go",
            event_pattern=event_pattern(bucket),
            targets=[
                events.CfnRule.TargetProperty(id="Flatten", arn=machine.attr_arn, role_arn=starter.role_arn)
            ],
        )

    def _role(self, key: kms.IKey) -> JobRole:
        bucket = f"arn:{PARTITION}:s3:::{self._names.bucket('event-logs')}"
        return JobRole(
            self,
            "Role",
            service="states.amazonaws.com",
            account=self._names.account,
            source_arn=self._arn("states", "stateMachine:*"),
            description=f"Copies event logs of {self._names.prefix} under one prefix",
            grants=[
                allow("Read", ["s3:GetObject"], [f"{bucket}/{p}/*" for p in ENGINE_PREFIXES], why=FILES),
                allow("Write", ["s3:DeleteObject", "s3:PutObject"], [f"{bucket}/{FLAT_PREFIX}/*"], why=FILES),
                list_prefixes("List", bucket, list(ENGINE_PREFIXES)),
                allow("Encrypt", ["kms:Decrypt", "kms:GenerateDataKey"], [key.key_arn]),
                # Step Functions developer guide, "Using CloudWatch Logs to log execution history".
                allow(
                    "DeliverLogs",
                    [
                        "logs:CreateLogDelivery",
                        "logs:DeleteLogDelivery",
                        "logs:DescribeLogGroups",
                        "logs:DescribeResourcePolicies",
                        "logs:GetLogDelivery",
                        "logs:ListLogDeliveries",
                        "logs:PutResourcePolicy",
                        "logs:UpdateLogDelivery",
                    ],
                    ["*"],
                    why=NO_NARROWER,
                ),
                allow(
                    "Trace",
                    [
                        "xray:GetSamplingRules",
                        "xray:GetSamplingTargets",
                        "xray:PutTelemetryRecords",
                        "xray:PutTraceSegments",
                    ],
                    ["*"],
                    why=NO_NARROWER,
                ),
            ],
        )

    def _arn(self, service: str, resource: str) -> str:
        names = self._names
        return f"arn:{PARTITION}:{service}:{names.environment.region}:{names.account}:{resource}"


def event_pattern(bucket: str) -> dict[str, Any]:
    """Return the events of event logs: those of the engines' prefixes, not of the copies.

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
            # Of EMR Serverless' files only Spark's event logs: drivers' output lies beside them.
            "object": {"key": [{"prefix": "glue/"}, {"wildcard": f"emr/*{_EMR_FOLDER}*"}]},
        },
    }


def definition(bucket: str, account: str) -> dict[str, Any]:
    """Write the state machine: copy what was created, delete the copy of what was deleted.

    Parameters
    ----------
    bucket
        The event-log bucket's name.
    account
        Its owner.
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
                "Resource": f"arn:{PARTITION}:states:::aws-sdk:s3:copyObject",
                "Arguments": {
                    "Bucket": bucket,
                    "CopySource": "{% '" + bucket + "/' & $states.input.detail.object.key %}",
                    "Key": "{% " + _TARGET + " %}",
                    "ExpectedBucketOwner": account,
                },
                "Retry": patient,
                # A log may be gone again before its turn comes.
                "Catch": [{"ErrorEquals": ["S3.NoSuchKeyException"], "Next": "Done"}],
                "Next": "Done",
            },
            "Delete": {
                "Type": "Task",
                "Resource": f"arn:{PARTITION}:states:::aws-sdk:s3:deleteObject",
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
