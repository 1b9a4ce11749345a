"""Names of deployed things, derived from project, environment, logical name and account."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from millrace.config.model import Environment, KafkaTopic, KinesisStream

Bucket = Literal["lake", "checkpoints", "event-logs", "dead-letters", "access-logs"]


@dataclass(frozen=True)
class Names:
    """Every name that a deployment and whoever looks for it must agree on.

    Parameters
    ----------
    environment
        The loaded environment file.
    account
        Twelve digits; buckets are named with it because their names are global.
    """

    environment: Environment
    account: str

    @property
    def prefix(self) -> str:
        """``project-environment``, the start of every name."""
        return f"{self.environment.project}-{self.environment.name}"

    @property
    def database(self) -> str:
        """The Glue Data Catalog database, and the namespace in the sandbox."""
        return self.prefix.replace("-", "_")

    def stack(self, part: str) -> str:
        """A CloudFormation stack, such as ``flights-local-streams``."""
        return f"{self.prefix}-{part}"

    def bucket(self, kind: Bucket) -> str:
        """A bucket, globally unique by account and region."""
        return f"{self.prefix}-{kind}-{self.account}-{self.environment.region}"

    def stream(self, name: str) -> str:
        """The Kinesis stream's or Kafka topic's own name."""
        stream = self.environment.streams[name]
        if isinstance(stream, KinesisStream):
            return stream.existing or f"{self.prefix}-{name}"
        assert isinstance(stream, KafkaTopic)
        return stream.topic or name

    def cluster(self, name: str) -> str:
        """An MSK cluster."""
        return f"{self.prefix}-{name}"

    def job(self, name: str) -> str:
        """A Glue job or an EMR Serverless application."""
        return f"{self.prefix}-{name}"

    def table(self, name: str) -> str:
        """``database.table`` inside the lake catalog."""
        return f"{self.database}.{name}"

    def checkpoints(self, job: str) -> str:
        """The prefix under which each query of a job keeps its checkpoint."""
        return f"s3://{self.bucket('checkpoints')}/{job}"
