"""Names of deployed resources, derived from project, environment, logical name and account."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.config.aws.regions import aws_partition_of_region
from millrace.config.base import arn_region_account_resource
from millrace.config.model import Environment, MskCluster
from millrace.config.network_storage_governance_observability import Bucket

__all__ = ["Bucket", "Names"]

VERSIONS = "_versions"
"""Prefix in the bucket of checkpoints that is no job's: no name of a job begins with an underscore."""


@dataclass(frozen=True)
class Names:
    """Names on which deployments and all other parts of Millrace must agree.

    Parameters
    ----------
    account
        Twelve digits; buckets are named with it because their names are global.
    """

    environment: Environment
    account: str

    @property
    def prefix(self) -> str:
        """Start of every name: ``project-environment``, after the company's prefix if it has one."""
        parts = (self.environment.governance.name_prefix, self.environment.project, self.environment.name)
        return "-".join(part for part in parts if part)

    @property
    def database(self) -> str:
        """Name of the Glue Data Catalog database, and of the namespace in the sandbox."""
        return self.environment.storage.database or self.prefix.replace("-", "_")

    @property
    def aws_partition(self) -> str:
        """AWS partition for ARNs."""
        return aws_partition_of_region(self.environment.region)

    def arn(self, service: str, resource: str) -> str:
        """Return the ARN of a resource in the environment's account and region."""
        return f"arn:{self.aws_partition}:{service}:{self.environment.region}:{self.account}:{resource}"

    def s3_arn(self, place: str) -> str:
        """Return the ARN of a bucket, or of objects in one."""
        return f"arn:{self.aws_partition}:s3:::{place}"

    def bucket_arn(self, kind: Bucket) -> str:
        """Return the ARN of one of the environment's buckets."""
        return self.s3_arn(self.bucket(kind))

    def cluster_arn(self, name: str) -> str | None:
        """Return the ARN of a Kafka cluster, with a wildcard for the random end of one that is created here; None if unknown."""
        settings = self.environment.kafka[name]
        if isinstance(settings, MskCluster):
            return settings.existing or self.arn("kafka", f"cluster/{self.cluster(name)}/*")
        return settings.arn

    def stack(self, part: str) -> str:
        """Return the name of a CloudFormation stack, such as ``flights-local-streams``."""
        return f"{self.prefix}-{part}"

    def bucket(self, kind: Bucket) -> str:
        """Return the name of a bucket, globally unique by account and region, or of the existing one that replaces it."""
        existing = self.environment.storage.buckets.get(kind)
        return existing or f"{self.prefix}-{kind}-{self.account}-{self.environment.region}"

    @property
    def warehouse_url(self) -> str:
        """Prefix under which the catalog keeps its tables."""
        return f"s3://{self.bucket('lake')}/warehouse"

    def stream(self, name: str) -> str:
        """Return the name of a Kinesis stream or Kafka topic; the pattern, for a stream of several topics."""
        return self.environment.streams[name].physical_name(name, self.prefix)

    def stream_arn(self, name: str) -> str:
        """Return a stream's ARN."""
        return self.environment.streams[name].arn(name, self)

    def fan_out_consumer(self, job: str, query: str) -> str:
        """Return the name under which a query's fan-out consumer is registered."""
        return f"{self.prefix}-{job}-{query}"

    def cluster(self, name: str) -> str:
        """Return the name of an MSK cluster."""
        cluster = self.environment.kafka[name]
        if isinstance(cluster, MskCluster) and cluster.existing is not None:
            return arn_region_account_resource(cluster.existing)[2].split("/")[1]
        return f"{self.prefix}-{name}"

    def job(self, name: str) -> str:
        """Return the name of a Glue job or an EMR Serverless application."""
        return f"{self.prefix}-{name}"

    def table(self, name: str) -> str:
        """Return ``database.table`` in the lake catalog."""
        if (existing := self.environment.tables.get(name)) is not None:
            return f"{existing.database}.{existing.table}"
        return f"{self.database}.{name}"

    def checkpoint_folder(self, job: str) -> str:
        """Return the folder of a job's checkpoints in their bucket: a renamed job keeps that of its first name."""
        settings = self.environment.jobs.get(job)
        return job if settings is None else settings.renamed_from or job

    def checkpoints_url(self, job: str) -> str:
        """Return the prefix for the checkpoints of a job's queries."""
        return f"s3://{self.bucket('checkpoints')}/{self.checkpoint_folder(job)}"

    def versions_url(self, job: str) -> str:
        """Return the prefix for a job's deployed versions, beside all checkpoints: a job writes below its own name alone."""
        return f"s3://{self.bucket('checkpoints')}/{VERSIONS}/{job}"

    def versions_parameter(self, job: str) -> str:
        """Return the name of the SSM parameter with the digests of a job's deployed versions."""
        return f"/{self.prefix}/jobs/{job}/versions"
