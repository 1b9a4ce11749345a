"""AWS's regions: their names, partitions and domains."""

from __future__ import annotations

from datetime import date

REGION = r"^[a-z]{2}(-[a-z]+)+-[0-9]$"
"""Pattern of a region's name."""

AS_OF = date(2026, 11, 23)
"""Date on which :data:`REGIONS` was read from botocore's ``endpoints.json``; a test compares the two."""

REGIONS = (
    *("af-south-1", "ap-east-1", "ap-east-2", "ap-northeast-1", "ap-northeast-2", "ap-northeast-3"),
    *("ap-south-1", "ap-south-2", "ap-southeast-1", "ap-southeast-2", "ap-southeast-3", "ap-southeast-4"),
    *("ap-southeast-5", "ap-southeast-6", "ap-southeast-7", "ca-central-1", "ca-west-1", "eu-central-1"),
    *("eu-central-2", "eu-north-1", "eu-south-1", "eu-south-2", "eu-west-1", "eu-west-2", "eu-west-3"),
    *("il-central-1", "me-central-1", "me-south-1", "mx-central-1", "sa-east-1"),
    *("us-east-1", "us-east-2", "us-west-1", "us-west-2"),
    *("cn-north-1", "cn-northwest-1", "us-gov-east-1", "us-gov-west-1"),
)
"""Regions with Kinesis, Glue, EMR Serverless and MSK: all regions of these partitions, according to that file."""


TWO_ZONES = ("cn-north-1", "us-west-1")
"""Regions in which an account may have two Availability Zones only (EC2 user guide, "Regions and zones")."""

LACKING = {
    "AWS::APS::Workspace": ("cn-north-1", "cn-northwest-1"),
    "AWS::Chatbot::MicrosoftTeamsChannelConfiguration": (
        "cn-north-1",
        "cn-northwest-1",
        "us-gov-east-1",
        "us-gov-west-1",
    ),
    "AWS::Chatbot::SlackChannelConfiguration": (
        "cn-north-1",
        "cn-northwest-1",
        "us-gov-east-1",
        "us-gov-west-1",
    ),
    "AWS::MSK::ServerlessCluster": ("me-central-1", "us-west-1", "us-gov-east-1", "us-gov-west-1"),
}
"""Regions of :data:`REGIONS` that lack a resource type of our templates (CloudFormation's schemas by region, which cfn-lint
carries, read 2026-11-23). All other types have a schema in each region.
"""


def aws_partition_of_region(region: str) -> str:
    """Return the partition of a region for ARNs.

    Examples
    --------
    >>> aws_partition_of_region("eu-west-1"), aws_partition_of_region("cn-north-1"), aws_partition_of_region("us-gov-west-1")
    ('aws', 'aws-cn', 'aws-us-gov')
    """
    if region.startswith("cn-"):
        return "aws-cn"
    return "aws-us-gov" if region.startswith("us-gov-") else "aws"


def endpoint_domain_of_region(region: str) -> str:
    """Return the domain of a region's endpoints.

    Examples
    --------
    >>> endpoint_domain_of_region("eu-west-1"), endpoint_domain_of_region("cn-north-1")
    ('amazonaws.com', 'amazonaws.com.cn')
    """
    return "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"


def kms_via_service_names(service: str, region: str) -> list[str]:
    """Return the names of a service in the condition ``kms:ViaService``: no document says which of two is used in China."""
    return sorted(
        {f"{service}.{region}.amazonaws.com", f"{service}.{region}.{endpoint_domain_of_region(region)}"}
    )
