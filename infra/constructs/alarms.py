"""CloudWatch alarms that the plan lists."""

from __future__ import annotations

from collections.abc import Iterable
from textwrap import shorten

from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from millrace.config.aws.resource_names import Names
from millrace.sizing.plan_model import RUNBOOK, Alarm

_LONGEST = 1024
"""Most characters of an alarm's description (botocore's model, ``PutMetricAlarm``); a cluster's topics alone may have more."""


def alarm_name(names: Names, alarm: Alarm) -> str:
    """Return an alarm's name in CloudWatch, such as ``flights-prod/job/flights/land-flights/no-batch``."""
    return f"{names.prefix}/{alarm.name}"


def add_alarms(scope: Construct, names: Names, alarms: Iterable[Alarm], *, topic: str) -> None:
    """Add alarms to a stack.

    Parameters
    ----------
    topic
        ARN of the topic that is notified.
    """
    for alarm in alarms:
        runbook = f" ({RUNBOOK}#{alarm.runbook_heading})"
        cloudwatch.CfnAlarm(
            scope,
            f"Alarm-{alarm.name}",
            alarm_name=alarm_name(names, alarm),
            alarm_description=shorten(alarm.why, _LONGEST - len(runbook), placeholder=" ...") + runbook,
            namespace=alarm.namespace,
            metric_name=alarm.metric,
            dimensions=[
                cloudwatch.CfnAlarm.DimensionProperty(name=name, value=value)
                for name, value in alarm.dimensions.items()
            ],
            statistic=alarm.statistic,
            threshold=alarm.threshold,
            comparison_operator="GreaterThanThreshold" if alarm.above else "LessThanThreshold",
            period=alarm.period,
            evaluation_periods=alarm.of,
            datapoints_to_alarm=alarm.periods,
            treat_missing_data=alarm.missing,
            alarm_actions=[topic],
            ok_actions=[topic],
            # A new alarm starts in this state, and only a change of state notifies: nobody is called before the first start.
            insufficient_data_actions=[topic] if alarm.goes_off_in_silence else None,
        )
