"""Default image of the history server, and a private copy of it."""

from __future__ import annotations

import hashlib
import re

from aws_cdk import RemovalPolicy
from aws_cdk import aws_ecr as ecr
from constructs import Construct

from millrace.config.aws.history_server_image import PUBLIC_IMAGE, TAG
from millrace.config.aws.regions import endpoint_domain_of_region
from millrace.config.aws.resource_names import Names

UPSTREAM = "public.ecr.aws"
_LONGEST_PREFIX = 30
"""Longest prefix of a pull-through cache (ECR API reference, CreatePullThroughCacheRule)."""


PUBLIC_URI = f"{UPSTREAM}/{PUBLIC_IMAGE}:{TAG}"
"""Pulled without a sign-in by tasks with internet access."""


class PullThroughCachedImage(Construct):
    """A private copy of the public image; the first pull with internet access makes it.

    Nothing is built. Tasks pull from the private repository through the VPC's endpoints
    (docs/history-server.md says how the first pull goes).

    Attributes
    ----------
    repository_arn, uri
        ARN of the private repository and URI of its image, from their names, so that no stack exports them.
    """

    def __init__(self, scope: Construct, construct_id: str, *, names: Names) -> None:
        super().__init__(scope, construct_id)
        prefix = pull_through_cache_prefix(names.prefix)
        rule = ecr.CfnPullThroughCacheRule(
            self,
            "Rule",
            ecr_repository_prefix=prefix,
            upstream_registry="ecr-public",
            upstream_registry_url=UPSTREAM,
        )
        # The repository is made here to have a scan and a lifecycle rule; the cache fills it.
        repository = ecr.Repository(
            self,
            "Repository",
            repository_name=f"{prefix}/{PUBLIC_IMAGE}",
            image_scan_on_push=True,
            encryption=ecr.RepositoryEncryption.KMS,
            lifecycle_rules=[ecr.LifecycleRule(max_image_count=3, description="The newest three")],
            # It holds a copy of a public image, and CloudFormation deletes no repository with images.
            removal_policy=RemovalPolicy.DESTROY,
        )
        resource = repository.node.default_child
        assert isinstance(resource, ecr.CfnRepository)
        resource.empty_on_delete = True
        repository.node.add_dependency(rule)
        region = names.environment.region
        self.repository_arn = (
            f"arn:{names.aws_partition}:ecr:{region}:{names.account}:repository/{prefix}/{PUBLIC_IMAGE}"
        )
        self.uri = f"{names.account}.dkr.ecr.{region}.{endpoint_domain_of_region(region)}/{prefix}/{PUBLIC_IMAGE}:{TAG}"


def pull_through_cache_prefix(prefix: str) -> str:
    """Return the cache's prefix for an environment's prefix: the same, or a cut one with a digest when ECR would refuse it.

    Names of ECR's repositories have no two hyphens together (botocore's model, ``repositoryName``).

    Examples
    --------
    >>> pull_through_cache_prefix("flights-prod"), pull_through_cache_prefix("flights--prod")
    ('flights-prod', 'flights-prod-de7c31')
    """
    short = re.sub("-+", "-", prefix)
    if short == prefix and len(prefix) <= _LONGEST_PREFIX:
        return prefix
    digest = hashlib.sha256(prefix.encode()).hexdigest()[:6]
    return f"{short[: _LONGEST_PREFIX - 7].rstrip('-')}-{digest}"
