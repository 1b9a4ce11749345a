"""Glue jobs and EMR Serverless applications."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolchain.policy.rules._policy import Fault, PolicyRule, Resource, listed, properties

FEWEST_ZONES = 2


class OneRunAtATime(PolicyRule):
    """No scanner knows what a second run does to a checkpoint."""

    id = "E9401"
    shortdesc = "A Glue streaming job runs once at a time"
    description = "MaxConcurrentRuns is 1, and a second run is refused rather than queued"
    source_url = "https://docs.aws.amazon.com/glue/latest/dg/add-job-streaming.html"
    kinds = ("AWS::Glue::Job",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check the limit."""
        if found.value("ExecutionProperty", "MaxConcurrentRuns") != 1:
            yield properties("ExecutionProperty"), "MaxConcurrentRuns is not 1"
        if found.value("JobRunQueuingEnabled") not in (None, False):
            yield properties("JobRunQueuingEnabled"), "a second run waits for the first to end"


class RunsOnAndOn(PolicyRule):
    """With a timeout Glue ends the job and does not start it again."""

    id = "E9402"
    shortdesc = "A Glue streaming job has a maintenance window and no timeout"
    description = "Timeout is blank, so that Glue restarts the job in its window"
    source_url = "https://docs.aws.amazon.com/glue/latest/dg/glue-streaming-maintenance.html"
    kinds = ("AWS::Glue::Job",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check window and timeout."""
        if found.value("Timeout") is not None:
            yield properties("Timeout"), "a timeout ends the job for good"
        if not found.value("MaintenanceWindow"):
            yield properties("MaintenanceWindow"), "no window is set"


class GlueStandsInTheVpc(PolicyRule):
    """Checkov asks for a security configuration and for no network."""

    id = "E9403"
    shortdesc = "A Glue job stands in the VPC and writes its log"
    description = "Connections are named and continuous logging is on"
    source_url = "https://docs.aws.amazon.com/glue/latest/dg/start-connecting.html"
    kinds = ("AWS::Glue::Job",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check connections and log."""
        if not listed(found.value("Connections", "Connections")):
            yield properties("Connections"), "it would run outside of the VPC"
        arguments = found.value("NonOverridableArguments") or {}
        if arguments.get("--enable-continuous-cloudwatch-log") != "true":
            yield properties("NonOverridableArguments"), "continuous logging is off"


class GlueRunsWhatItIs(PolicyRule):
    """Who may start a run otherwise chooses its script, files and jars: the job's role is theirs."""

    id = "E9406"
    shortdesc = "No run of a Glue job replaces its code or settings"
    description = "Every argument of the job is one that a run cannot override, its script among them"
    source_url = "https://docs.aws.amazon.com/glue/latest/dg/aws-glue-programming-etl-glue-arguments.html"
    kinds = ("AWS::Glue::Job",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check both groups of arguments."""
        fixed = found.value("NonOverridableArguments") or {}
        if found.value("DefaultArguments"):
            yield properties("DefaultArguments"), "a run may override them"
        for key in ("--launch-document", "--extra-py-files", "--conf"):
            if not fixed.get(key):
                yield properties("NonOverridableArguments"), f"no {key}"
        if fixed.get("--scriptLocation") != found.value("Command", "ScriptLocation"):
            yield properties("NonOverridableArguments"), "--scriptLocation is not the job's script"


def _has_own_group(found: Resource, groups: list[Any]) -> bool:
    """Tell whether one of the groups is of this stack and lets in itself."""
    inside = [
        rule.value("GroupId")
        for rule in found.others("AWS::EC2::SecurityGroupIngress")
        if rule.value("GroupId") == rule.value("SourceSecurityGroupId")
    ]
    return any(group in inside for group in groups)


class ConnectionHasItsGroup(PolicyRule):
    """Glue puts network interfaces wherever its connection says."""

    id = "E9404"
    shortdesc = "A Glue connection has a subnet and the security group of its job"
    description = (
        "Its physical requirements name both; the group refers to itself and is of the job's own stack"
    )
    source_url = "https://docs.aws.amazon.com/glue/latest/dg/setup-vpc-for-glue-access.html"
    kinds = ("AWS::Glue::Connection",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check the requirements."""
        physical = found.value("ConnectionInput", "PhysicalConnectionRequirements") or {}
        if not physical.get("SubnetId"):
            yield properties("ConnectionInput"), "no SubnetId"
        if not _has_own_group(found, listed(physical.get("SecurityGroupIdList"))):
            yield properties("ConnectionInput"), "no group inside which workers reach each other"


class GlueEncrypts(PolicyRule):
    """Checkov asks for the modes; this one for the keys, too."""

    id = "E9405"
    shortdesc = (
        "A Glue security configuration encrypts objects, logs and bookmarks with keys of the environment"
    )
    description = "Each of the three names a mode other than DISABLED and a key"
    source_url = "https://docs.aws.amazon.com/glue/latest/dg/encryption-security-configuration.html"
    kinds = ("AWS::Glue::SecurityConfiguration",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check the three parts."""
        encryption = found.value("EncryptionConfiguration") or {}
        for part, key, mode in (
            ("S3Encryptions", "S3EncryptionMode", "SSE-KMS"),
            ("CloudWatchEncryption", "CloudWatchEncryptionMode", "SSE-KMS"),
            ("JobBookmarksEncryption", "JobBookmarksEncryptionMode", "CSE-KMS"),
        ):
            settings = listed(encryption.get(part))
            if not settings or not all(s.get(key) == mode and s.get("KmsKeyArn") for s in settings):
                yield properties("EncryptionConfiguration"), f"{part} is not {mode} with a key"


class EmrStandsInTheVpc(PolicyRule):
    """No scanner has a rule on EMR Serverless in CloudFormation."""

    id = "E9411"
    shortdesc = "An EMR Serverless application stands in private subnets of two zones"
    description = "Subnets and security groups are named"
    source_url = "https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/vpc-access.html"
    kinds = ("AWS::EMRServerless::Application",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check the network."""
        if len(listed(found.value("NetworkConfiguration", "SubnetIds"))) < FEWEST_ZONES:
            yield properties("NetworkConfiguration"), f"fewer than {FEWEST_ZONES} subnets"
        if not _has_own_group(found, listed(found.value("NetworkConfiguration", "SecurityGroupIds"))):
            yield properties("NetworkConfiguration"), "no group inside which workers reach each other"


class EmrLogsAreEncrypted(PolicyRule):
    """No scanner has a rule on EMR Serverless in CloudFormation."""

    id = "E9412"
    shortdesc = "An EMR Serverless application's logs are encrypted with a key of the environment"
    description = "Logs on S3 and in CloudWatch name a key; nothing stays in AWS's own storage without one"
    source_url = "https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/logging.html"
    kinds = ("AWS::EMRServerless::Application",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check each place where logs go."""
        monitoring = found.value("MonitoringConfiguration") or {}
        s3 = monitoring.get("S3MonitoringConfiguration", {})
        if not s3.get("LogUri") or not s3.get("EncryptionKeyArn"):
            yield properties("MonitoringConfiguration"), "logs on S3 have no key"
        cloudwatch = monitoring.get("CloudWatchLoggingConfiguration", {})
        if cloudwatch.get("Enabled") is True and not cloudwatch.get("EncryptionKeyArn"):
            yield properties("MonitoringConfiguration"), "logs in CloudWatch have no key"
        managed = monitoring.get("ManagedPersistenceMonitoringConfiguration", {})
        # On unless it is turned off (API reference, "ManagedPersistenceMonitoringConfiguration").
        if managed.get("Enabled") is not False and not managed.get("EncryptionKeyArn"):
            yield properties("MonitoringConfiguration"), "logs that AWS keeps have no key"


class EmrHasLimits(PolicyRule):
    """An application without a limit is a bill without one."""

    id = "E9413"
    shortdesc = "An EMR Serverless application has a limit and stops when idle"
    description = "MaximumCapacity is set and AutoStopConfiguration is on"
    source_url = "https://docs.aws.amazon.com/emr/latest/EMR-Serverless-UserGuide/app-behavior.html"
    kinds = ("AWS::EMRServerless::Application",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check both."""
        if not found.value("MaximumCapacity"):
            yield properties("MaximumCapacity"), "no MaximumCapacity"
        if found.value("AutoStopConfiguration", "Enabled") is not True:
            yield properties("AutoStopConfiguration"), "it never stops"
