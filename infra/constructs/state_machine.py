"""The state machine of one job, what may start it, and who hears when it gives up."""

from __future__ import annotations

from typing import Any

from aws_cdk import CfnOutput, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from aws_cdk import aws_stepfunctions as sfn
from constructs import Construct

from infra.constructs.job_role import JobRole
from infra.constructs.logs import EncryptedLogGroup
from infra.constructs.state_machine_definition import definition
from infra.constructs.state_machine_engines import emr_engine, glue_engine, planned_grace_seconds
from infra.findings import acknowledge
from infra.permissions import PARTITION, Grant
from infra.stacks.emr_job import EmrJobStack
from infra.stacks.job import JobStack
from millrace.sizing.model import JobPlan

_LOOK_AFTER = "rate(15 minutes)"
"""Both engines deliver their events on a best effort only; a lost one costs at most this long."""

_DATA_KEY_REUSE_SECONDS = 300

_NO_NARROWER = "IAM knows no narrower resource for these actions"


class JobStateMachine(Construct):
    """Starts, stops, drains and watches one job; starts it again after an end that nobody asked for.

    Stands in the job's own stack, whose output ``StateMachineArn`` names it: a job and
    what starts it change together, and nothing of an application that may be replaced
    is exported.

    Parameters
    ----------
    stack
        The job's stack.
    plan
        The job's size.
    alerts
        Hears when the job could not be started again.
    key
        Encrypts the executions' data and the topic's messages.
    """

    def __init__(self, stack: JobStack, *, plan: JobPlan, alerts: sns.ITopic, key: kms.IKey) -> None:
        super().__init__(stack, "Lifecycle")
        self._stack, self._plan, self._alerts, self._key = stack, plan, alerts, key
        names = stack.names
        self._parameter = f"/{names.prefix}/jobs/{plan.name}/wish"
        group = EncryptedLogGroup(
            self,
            "Logs",
            environment=names.environment,
            # The prefix keeps the account's log delivery policy from growing past its limit.
            name=f"/aws/vendedlogs/states/{names.prefix}/{plan.name}",
            key=stack.foundation.storage.logs_key,
        )
        role = JobRole(
            self,
            "Role",
            service="states.amazonaws.com",
            account=names.account,
            source_arn=self._arn("states", "stateMachine:*"),
            description=f"Starts and stops job {plan.name} of {names.prefix}",
            grants=[*self._engine_grants(), *self._own_grants()],
        )
        if isinstance(stack, EmrJobStack):
            # The application's id is CloudFormation's to know; the rule pack writes it like this.
            application = self._arn("emr-serverless", "/applications/<Application.ApplicationId>")
            acknowledge(
                role.policy,
                f"AwsSolutions-IAM5[Resource::{application}/jobruns/*]",
                "The id of a run is known when it has begun",
            )
        self.machine = sfn.CfnStateMachine(
            self,
            "Resource",
            state_machine_type="STANDARD",
            definition_string=Stack.of(self).to_json_string(self._definition()),
            role_arn=role.role_arn,
            logging_configuration=sfn.CfnStateMachine.LoggingConfigurationProperty(
                level="ALL",
                include_execution_data=True,
                destinations=[
                    sfn.CfnStateMachine.LogDestinationProperty(
                        cloud_watch_logs_log_group=sfn.CfnStateMachine.CloudWatchLogsLogGroupProperty(
                            log_group_arn=group.log_group_arn
                        )
                    )
                ],
            ),
            tracing_configuration=sfn.CfnStateMachine.TracingConfigurationProperty(enabled=True),
            encryption_configuration=sfn.CfnStateMachine.EncryptionConfigurationProperty(
                type="CUSTOMER_MANAGED_KMS_KEY",
                kms_key_id=key.key_arn,
                kms_data_key_reuse_period_seconds=_DATA_KEY_REUSE_SECONDS,
            ),
        )
        # A machine that is made before its role's policy is refused its log group.
        self.machine.node.add_dependency(role.policy)
        self._rules()
        self._alarm()
        CfnOutput(stack, "StateMachineArn", value=self.machine.attr_arn)

    def _definition(self) -> dict[str, Any]:
        stack, plan, names = self._stack, self._plan, self._stack.names
        environment = names.environment
        engine = (
            emr_engine(
                application_id=stack.application_id,
                role_arn=stack.role.role_arn,
                name=names.job(plan.name),
                document=stack.document,
                document_url=stack.document_url,
                logs_key_arn=stack.foundation.storage.logs_key.key_arn,
                log_group=stack.log_group_name,
            )
            if isinstance(stack, EmrJobStack)
            else glue_engine(names.job(plan.name))
        )
        return definition(
            engine,
            job=names.job(plan.name),
            parameter=self._parameter,
            topic=self._alerts.topic_arn,
            starts_per_hour=environment.jobs[plan.name].restarts_per_hour,
            default_grace_seconds=planned_grace_seconds(
                plan, environment.jobs[plan.name].latency.total_seconds()
            ),
        )

    def _engine_grants(self) -> list[Grant]:
        stack = self._stack
        if not isinstance(stack, EmrJobStack):
            job = self._arn("glue", f"job/{stack.names.job(self._plan.name)}")
            return [
                Grant(
                    "RunJob",
                    ("glue:BatchStopJobRun", "glue:GetJobRun", "glue:GetJobRuns", "glue:StartJobRun"),
                    (job,),
                )
            ]
        application = self._arn("emr-serverless", f"/applications/{stack.application_id}")
        return [
            Grant("StartRuns", ("emr-serverless:ListJobRuns", "emr-serverless:StartJobRun"), (application,)),
            Grant(
                "WatchRuns",
                ("emr-serverless:CancelJobRun", "emr-serverless:GetJobRun"),
                (f"{application}/jobruns/*",),
            ),
            Grant(
                "PassJobRole",
                ("iam:PassRole",),
                (stack.role.role_arn,),
                conditions={"StringEquals": {"iam:PassedToService": "emr-serverless.amazonaws.com"}},
            ),
            Grant(
                "MeasureBatches",
                ("logs:StartQuery",),
                (self._arn("logs", f"log-group:{stack.log_group_name}:*"),),
                why="Log streams of the job's own group",
            ),
            Grant("ReadMeasure", ("logs:GetQueryResults",), ("*",), why=_NO_NARROWER),
        ]

    def _own_grants(self) -> list[Grant]:
        return [
            Grant(
                "Wish",
                ("ssm:GetParameter", "ssm:PutParameter"),
                (self._arn("ssm", f"parameter{self._parameter}"),),
            ),
            Grant("Alert", ("sns:Publish",), (self._alerts.topic_arn,)),
            Grant("Encrypt", ("kms:Decrypt", "kms:GenerateDataKey"), (self._key.key_arn,)),
            # Step Functions developer guide, "Using CloudWatch Logs to log execution history".
            Grant(
                "DeliverLogs",
                (
                    "logs:CreateLogDelivery",
                    "logs:DeleteLogDelivery",
                    "logs:DescribeLogGroups",
                    "logs:DescribeResourcePolicies",
                    "logs:GetLogDelivery",
                    "logs:ListLogDeliveries",
                    "logs:PutResourcePolicy",
                    "logs:UpdateLogDelivery",
                ),
                ("*",),
                why=_NO_NARROWER,
            ),
            Grant(
                "Trace",
                (
                    "xray:GetSamplingRules",
                    "xray:GetSamplingTargets",
                    "xray:PutTelemetryRecords",
                    "xray:PutTraceSegments",
                ),
                ("*",),
                why=_NO_NARROWER,
            ),
        ]

    def _rules(self) -> None:
        names = self._stack.names
        role = JobRole(
            self,
            "RuleRole",
            service="events.amazonaws.com",
            account=names.account,
            source_arn=self._arn("events", "rule/*"),
            description=f"Starts the state machine of job {self._plan.name} of {names.prefix}",
            grants=[
                Grant("StartExecution", ("states:StartExecution",), (self.machine.attr_arn,)),
                Grant("Encrypt", ("kms:Decrypt", "kms:GenerateDataKey"), (self._key.key_arn,)),
            ],
        )
        self._ended = events.CfnRule(
            self,
            "Ended",
            description=f"A run of {names.job(self._plan.name)} has ended: start it again if it is wanted",
            event_pattern=self._end_of_run(),
            targets=[
                self._target(
                    role,
                    input_transformer=events.CfnRule.InputTransformerProperty(
                        input_paths_map={"run": "$.detail.jobRunId", "state": "$.detail.state"},
                        input_template='{"verb": "restart", "reason": "run <run> ended as <state>"}',
                    ),
                )
            ],
        )
        events.CfnRule(
            self,
            "LookAfter",
            description=f"Start {names.job(self._plan.name)} if it is wanted and does not run",
            schedule_expression=_LOOK_AFTER,
            targets=[
                self._target(role, input='{"verb": "restart", "reason": "found not running, by schedule"}')
            ],
        )

    def _end_of_run(self) -> dict[str, Any]:
        stack = self._stack
        if isinstance(stack, EmrJobStack):
            return {
                "source": ["aws.emr-serverless"],
                "detail-type": ["EMR Serverless Job Run State Change"],
                "detail": {
                    "applicationId": [stack.application_id],
                    "state": ["SUCCESS", "FAILED", "CANCELLED"],
                },
            }
        return {
            "source": ["aws.glue"],
            "detail-type": ["Glue Job State Change"],
            "detail": {
                "jobName": [stack.names.job(self._plan.name)],
                "state": ["SUCCEEDED", "FAILED", "TIMEOUT", "STOPPED"],
            },
        }

    def _target(self, role: JobRole, **given: Any) -> events.CfnRule.TargetProperty:
        return events.CfnRule.TargetProperty(
            id="StateMachine", arn=self.machine.attr_arn, role_arn=role.role_arn, **given
        )

    def _alarm(self) -> None:
        machine = {"StateMachineArn": self.machine.attr_arn}
        for construct_id, namespace, metric, dimensions, what in (
            ("Failed", "AWS/States", "ExecutionsFailed", machine, "A start or stop failed"),
            (
                "TimedOut",
                "AWS/States",
                "ExecutionsTimedOut",
                machine,
                "A start or stop did not come to an end",
            ),
            (
                "NotInvoked",
                "AWS/Events",
                "FailedInvocations",
                {"RuleName": self._ended.ref},
                "The end of a run did not reach the state machine",
            ),
        ):
            cloudwatch.CfnAlarm(
                self,
                f"{construct_id}Alarm",
                alarm_description=f"{self._stack.names.job(self._plan.name)}: {what}",
                namespace=namespace,
                metric_name=metric,
                dimensions=[
                    cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value)
                    for name, value in dimensions.items()
                ],
                statistic="Sum",
                period=300,
                evaluation_periods=1,
                threshold=1,
                comparison_operator="GreaterThanOrEqualToThreshold",
                # No execution is no failure.
                treat_missing_data="notBreaching",
                alarm_actions=[self._alerts.topic_arn],
            )

    def _arn(self, service: str, resource: str) -> str:
        names = self._stack.names
        return f"arn:{PARTITION}:{service}:{names.environment.region}:{names.account}:{resource}"
