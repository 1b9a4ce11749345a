"""Names of deployed things, derived from project, environment, logical name and account."""

from __future__ import annotations

from dataclasses import dataclass

from millrace.config.base import arn_parts
from millrace.config.model import Environment, MskCluster
from millrace.config.platform import Bucket
from millrace.config.regions import partition

__all__ = ["Bucket", "Names"]


@dataclass(frozen=True)
class Names:
    """Every name that a deployment and whoever looks for it must agree on.

    Parameters
    ----------
    account
        Twelve digits; buckets are named with it because their names are global.
    """

    environment: Environment
    account: str

    @property
    def prefix(self) -> str:
        """``project-environment``, after the company's prefix where it has one: the start of every name."""
        company = self.environment.governance.name_prefix
        parts = (company, self.environment.project, self.environment.name)
        return "-".join(part for part in parts if part)

    @property
    def database(self) -> str:
        """The Glue Data Catalog database, and the namespace in the sandbox."""
        return self.environment.storage.database or self.prefix.replace("-", "_")

    @property
    def partition(self) -> str:
        """Of AWS, as ARNs have it."""
        return partition(self.environment.region)

    def arn(self, service: str, resource: str) -> str:
        """Of a resource in the environment's account and region."""
        return f"arn:{self.partition}:{service}:{self.environment.region}:{self.account}:{resource}"

    def cluster_arn(self, name: str) -> str | None:
        """Of a Kafka cluster: its random end is open where the cluster may be made again; None where nobody said it."""
        settings = self.environment.kafka[name]
        if isinstance(settings, MskCluster):
            return settings.existing or self.arn("kafka", f"cluster/{self.cluster(name)}/*")
        return settings.arn

    def stack(self, part: str) -> str:
        """A CloudFormation stack, such as ``flights-local-streams``."""
        return f"{self.prefix}-{part}"

    def bucket(self, kind: Bucket) -> str:
        """A bucket, globally unique by account and region, or the existing one in its place."""
        existing = self.environment.storage.buckets.get(kind)
        return existing or f"{self.prefix}-{kind}-{self.account}-{self.environment.region}"

    def stream(self, name: str) -> str:
        """The Kinesis stream's or Kafka topic's own name; of a stream of several topics, their pattern."""
        return self.environment.streams[name].own_name(name, self.prefix)

    def stream_arn(self, name: str) -> str:
        """A stream's ARN."""
        return self.environment.streams[name].arn(name, self)

    def consumer(self, job: str, query: str) -> str:
        """The fan-out consumer of a query, registered under this name at its stream."""
        return f"{self.prefix}-{job}-{query}"

    def cluster(self, name: str) -> str:
        """An MSK cluster."""
        cluster = self.environment.kafka[name]
        if isinstance(cluster, MskCluster) and cluster.existing is not None:
            return arn_parts(cluster.existing)[2].split("/")[1]
        return f"{self.prefix}-{name}"

    def job(self, name: str) -> str:
        """A Glue job or an EMR Serverless application."""
        return f"{self.prefix}-{name}"

    def table(self, name: str) -> str:
        """``database.table`` inside the lake catalog."""
        existing = self.environment.tables.get(name)
        if existing is not None:
            return f"{existing.database}.{existing.table}"
        return f"{self.database}.{name}"

    @property
    def alerts(self) -> str:
        """The SNS topic that alarms and restarts report to."""
        return f"{self.prefix}-alerts"

    def checkpoints(self, job: str) -> str:
        """The prefix under which each query of a job keeps its checkpoint."""
        return f"s3://{self.bucket('checkpoints')}/{job}"
