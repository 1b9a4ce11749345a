"""State machine of one job, the rules that start it, and the alarms for its failures."""

from __future__ import annotations

from collections.abc import Sequence

from aws_cdk import CfnOutput
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns

from millrace.config.aws.iam_statements import allow
from millrace.sizing.plan_model import RUNBOOK, JobPlan

from ..accept_finding import accept_finding_at_construct
from ..stacks.job_base import JobStack, RunCallsForStateMachine
from .logged_encrypted_state_machine import LoggedEncryptedStateMachine
from .state_machine_definition import job_machine_definition
from .state_machine_engine_calls import grace_seconds_from_plan

_LOOK_AFTER = "rate(15 minutes)"
"""Period of the check on the job. Both engines send events on a best-effort basis; a lost event costs at most this long."""


class JobStateMachine(LoggedEncryptedStateMachine):
    """State machine that starts, stops, drains and watches one job, and restarts it after an end that nobody asked for.

    It is in the job's own stack, whose output ``StateMachineArn`` names it. So a job and its
    state machine change together, and no stack exports an application that may be replaced.

    Parameters
    ----------
    runs
        Calls of the engine that start, stop and report the job's runs.
    silenced
        Names of the alarms that missing data sets off: their actions are on only while the job should run.
    alerts
        Topic that is notified when the job could not be restarted.
    key
        Encrypts the executions' data and the topic's messages.
    """

    def __init__(
        self,
        stack: JobStack,
        runs: RunCallsForStateMachine,
        *,
        plan: JobPlan,
        silenced: Sequence[str],
        alerts: sns.ITopic,
        key: kms.IKey,
    ) -> None:
        names = stack.names
        parameter = f"/{names.prefix}/jobs/{plan.name}/wish"
        super().__init__(
            stack,
            "Lifecycle",
            names=names,
            log_name=plan.name,
            kind="STANDARD",
            definition=job_machine_definition(
                runs.calls,
                job=names.job(plan.name),
                parameter=parameter,
                topic=alerts.topic_arn,
                starts_per_hour=plan.scheduled_starts_per_hour
                + names.environment.jobs[plan.name].restarts_per_hour,
                default_grace_seconds=grace_seconds_from_plan(
                    plan, names.environment.jobs[plan.name].latency.total_seconds()
                ),
                silenced=silenced,
                own_files=f"{names.checkpoints_url(plan.name)}/_millrace/",
                every_seconds=None if plan.run is None else plan.run.every_seconds.value,
            ),
            grants=[
                *runs.grants,
                allow(
                    "Wish",
                    ["ssm:GetParameter", "ssm:PutParameter"],
                    [names.arn("ssm", f"parameter{parameter}")],
                ),
                allow("Alert", ["sns:Publish"], [alerts.topic_arn]),
                allow(
                    "SwitchAlarms",
                    ["cloudwatch:DisableAlarmActions", "cloudwatch:EnableAlarmActions"],
                    [names.arn("cloudwatch", f"alarm:{alarm}") for alarm in silenced],
                ),
            ],
            key=key,
            logs_key=stack.foundation.storage.logs_key,
            purpose=f"Starts and stops job {plan.name} of {names.prefix}",
        )
        self._stack, self._runs, self._plan, self._alerts = stack, runs, plan, alerts
        for what, why in runs.acknowledged.items():
            for policy in self.role.policies:
                accept_finding_at_construct(policy, what, why)
        self._add_event_rules()
        self._add_failure_alarms()
        CfnOutput(stack, "StateMachineArn", value=self.machine.attr_arn)

    def _add_event_rules(self) -> None:
        names = self._stack.names
        starter = self.add_starter_role(
            f"Starts the state machine of job {self._plan.name} of {names.prefix}"
        )
        self._ended = events.CfnRule(
            self,
            "Ended",
            description=f"A run of {names.job(self._plan.name)} has ended: start it again if it is wanted",
            event_pattern=self._runs.ended,
            targets=[
                self.rule_target(
                    starter,
                    input_transformer=events.CfnRule.InputTransformerProperty(
                        input_paths_map={"run": "$.detail.jobRunId", "state": "$.detail.state"},
                        input_template='{"verb": "restart", "reason": "run <run> ended as <state>"'
                        + ("}" if self._plan.run is None else ', "ended": "<state>"}'),
                    ),
                )
            ],
        )
        events.CfnRule(
            self,
            "LookAfter",
            description=f"Start {names.job(self._plan.name)} if it is wanted and does not run",
            schedule_expression=_LOOK_AFTER
            if self._plan.run is None
            else f"rate({self._plan.run.every_seconds.value // 60} minutes)",
            targets=[
                self.rule_target(
                    starter, input='{"verb": "restart", "reason": "found not running, by schedule"}'
                )
            ],
        )

    def _add_failure_alarms(self) -> None:
        machine = {"StateMachineArn": self.machine.attr_arn}
        for construct_id, namespace, metric, dimensions, what, kind in (
            ("Failed", "AWS/States", "ExecutionsFailed", machine, "A start or stop failed", "start-or-stop"),
            (
                "TimedOut",
                "AWS/States",
                "ExecutionsTimedOut",
                machine,
                "A start or stop did not come to an end",
                "start-or-stop",
            ),
            (
                "NotInvoked",
                "AWS/Events",
                "FailedInvocations",
                {"RuleName": self._ended.ref},
                "The end of a run did not reach the state machine",
                "not-restarted",
            ),
        ):
            cloudwatch.CfnAlarm(
                self,
                f"{construct_id}Alarm",
                alarm_description=f"{self._stack.names.job(self._plan.name)}: {what} ({RUNBOOK}#{kind})",
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
                # No execution means no failure.
                treat_missing_data="notBreaching",
                alarm_actions=[self._alerts.topic_arn],
            )
