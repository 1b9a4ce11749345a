"""Sections for everything around streams and jobs: network, storage, governance, observability, history server."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from millrace.config.base import (
    BucketName,
    CertificateArn,
    DatabaseName,
    KeyArn,
    Model,
    PolicyArn,
    RoleArn,
    SecretArn,
    SubnetId,
    VpcId,
)
from millrace.config.units import Duration, Size

Bucket = Literal["lake", "checkpoints", "event-logs", "dead-letters", "access-logs"]
Disposable = Literal["lake", "checkpoints", "event-logs", "dead-letters", "access-logs", "database", "logs"]


class Network(Model):
    """Network that jobs run in."""

    vpc: VpcId | None = Field(default=None, description="An existing VPC; left out, one is made.")
    subnets: tuple[SubnetId, ...] = Field(default=(), description="Private subnets of that VPC.")
    zones: dict[SubnetId, Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-\d[a-z]$")]] = Field(
        default_factory=dict,
        description="Availability Zone of existing subnets, told to Glue; left out, Glue finds it.",
    )
    zone_ids: tuple[Annotated[str, StringConstraints(pattern=r"^[a-z]{2,5}\d-az\d{1,2}$")], ...] = Field(
        default=(),
        description="Zones of the VPC that is made, one for each of availability_zones; left out, the first that the "
        "account is told, in an order that is not promised. A change replaces its subnets.",
        examples=[["use1-az1", "use1-az2", "use1-az4"]],
    )
    cidr: str = Field(
        default="10.42.0.0/16", description="Address range of a VPC of ours: a private one from /16 to /24."
    )
    availability_zones: int = Field(default=3, ge=2, le=3, description="MSK Express wants three.")
    egress: Literal["endpoints", "nat", "cheapest"] = Field(
        default="endpoints",
        description="How jobs reach AWS: endpoints only, NAT gateways (a way out to the internet), "
        "or whichever the plan finds cheaper.",
    )
    flow_logs_role: RoleArn | None = Field(
        default=None, description="An existing role for the VPC's flow logs; left out, one is made."
    )


class Keys(Model):
    """Customer-managed keys that somebody else owns; each key that is left out is created.

    Their policies must let CloudWatch, CloudWatch Logs and S3 use them (docs/governance.md).
    """

    data: KeyArn | None = Field(default=None, description="Tables, checkpoints, dead letters.")
    logs: KeyArn | None = Field(default=None, description="Event logs, log groups.")
    alerts: KeyArn | None = Field(default=None, description="The alerts' topic, state machines.")
    streams: KeyArn | None = Field(default=None, description="Kinesis streams of this environment.")
    kafka: KeyArn | None = Field(default=None, description="MSK clusters of this environment.")


class Upkeep(Model):
    """Maintenance of the tables that jobs write, beside their streams: hourly expiry, daily compaction."""

    file_size: Size = Field(
        default="512MiB",  # type: ignore[assignment]  # pydantic parses the default (validate_default)
        ge=8 * 1024**2,
        le=4 * 1024**3,
        description="Small files are made into files of this size.",
    )
    snapshots: Duration = Field(
        default=timedelta(days=1),
        ge=timedelta(hours=1),
        le=timedelta(days=365),
        description="Past states of a table older than this go, but none that a derive query has yet to read.",
    )
    orphans: Duration = Field(
        default=timedelta(days=7),
        ge=timedelta(days=1),
        description="Files older than this that no state of their table names go; never less than a write takes.",
    )


class Storage(Model):
    """Buckets, keys and the catalog's database."""

    keys: Keys = Field(default=Keys(), description="Existing KMS keys in place of ours.")
    buckets: dict[Bucket, BucketName] = Field(
        default_factory=dict, description="Buckets that somebody else owns: used, never changed."
    )
    database: DatabaseName | None = Field(
        default=None, description="A Glue database that somebody else owns; left out, one is made."
    )
    lake_formation: Literal["off", "tables", "tables-and-location"] = Field(
        default="off",
        description="Grants of Lake Formation to each job's role, for databases without IAMAllowedPrincipals; with the "
        "location where the lake's bucket is registered there. Whoever CloudFormation acts as must be a data lake administrator.",
    )
    dead_letter_retention: Duration | None = Field(
        default=None,
        description="Dead letters older than this go, in whole days and not before their stream forgets them; "
        "left out, none.",
    )
    upkeep: Upkeep | None = Field(
        default=Upkeep(),
        description="Keeps tables quick and small; `null` where the catalog's own service does it.",
    )
    event_log_retention: Duration = Field(
        default=timedelta(days=30), description="Spark event logs older than this go, in whole days."
    )
    disposable: tuple[Disposable, ...] = Field(
        default=(),
        description="What may be deleted with its stack where the environment says removal: destroy.",
    )


class ExistingTable(Model):
    """A table of the catalog that somebody else owns: read, never written."""

    database: DatabaseName = Field(description="The Glue database that holds the table.")
    table: Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,255}$")] = Field(
        description="The table's name in that database."
    )
    location: Annotated[
        str, StringConstraints(pattern=r"^s3://[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]/[^*?\s]+$")
    ] = Field(description="Prefix of its files, such as s3://company-lake/reference/airports.")
    key: KeyArn | None = Field(default=None, description="The key of its files, where they have one.")


class Governance(Model):
    """A company's rules for everything that is deployed into its accounts."""

    permissions_boundary: PolicyArn | None = Field(
        default=None, description="A managed policy that bounds every role made here."
    )
    role_path: Annotated[str, StringConstraints(pattern=r"^/([A-Za-z0-9_+=,.@-]+/)*$")] = Field(
        default="/", description="Path of every role made here, such as /streaming/."
    )
    name_prefix: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$")] | None = Field(
        default=None, description="Begins every name, before project and environment."
    )
    qualifier: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,10}$")] | None = Field(
        default=None, description="Qualifier of the CDK bootstrap stack, where it is not CDK's own."
    )
    bootstrap_key: KeyArn | None = Field(
        default=None,
        description="The customer-managed key of the CDK bootstrap's bucket, where it has one: jobs read their files "
        "with it. Left out, they need none, as with S3's own keys and the AWS managed one.",
        examples=["arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"],
    )


class Observability(Model):
    """Recipients of alarms, and storage of metrics in addition to CloudWatch."""

    notify: tuple[Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")], ...] = Field(
        default=(), description="E-mail addresses that alarms go to; each confirms its subscription once."
    )
    alarms: Literal["together", "by-job"] = Field(
        default="together",
        description="In which stack alarms of jobs are: all in the one of observability, or each job's in its own, "
        "for more than one stack holds.",
    )
    prometheus: bool = Field(
        default=False, description="A Managed Prometheus workspace, written to by jobs on EMR Serverless."
    )
    prometheus_retention: Duration = Field(
        default=timedelta(days=150), description="How long the workspace keeps samples, in whole days."
    )


Https = Annotated[str, StringConstraints(pattern=r"^https://[A-Za-z0-9.-]+(:\d{1,5})?(/[A-Za-z0-9/._~-]*)?$")]


class SignIn(Model):
    """OpenID Connect provider at which people sign in before the load balancer lets them through."""

    issuer: Https = Field(description="As the provider's own /.well-known/openid-configuration says it.")
    authorization_endpoint: Https = Field(
        description="The identity provider's authorization endpoint, from its OpenID configuration."
    )
    token_endpoint: Https = Field(description="The identity provider's token endpoint.")
    user_info_endpoint: Https = Field(description="The identity provider's user info endpoint.")
    client_id: str = Field(
        pattern=r"^[A-Za-z0-9._~-]{1,200}$",
        description="The client that is registered for this server at the identity provider.",
    )
    secret: SecretArn = Field(
        description="Secret of Secrets Manager with client_secret, as JSON; CloudFormation reads it, no template holds it."
    )
    scope: str = Field(
        default="openid",
        pattern=r"^openid( [A-Za-z0-9._:/-]+)*$",
        description="What is asked for; begins with `openid`.",
    )
    session: Duration = Field(  # type: ignore[assignment]  # pydantic parses the default (validate_default)
        default="8h", description="Until people sign in again, 1m to 7d."
    )


class HistoryServer(Model):
    """Spark's history server over the event logs of all jobs, inside the VPC."""

    image: (
        Annotated[
            str,
            StringConstraints(
                pattern=r"^\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[a-z0-9/._-]+(:[A-Za-z0-9_.-]+|@sha256:[0-9a-f]{64})$"
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="An image with Spark in a private ECR repository; left out, one is copied from the "
        "public gallery (docs/history-server.md).",
    )
    certificate: CertificateArn | None = Field(
        default=None, description="ACM certificate of the load balancer; without one it speaks HTTP."
    )
    clients: tuple[str, ...] = Field(
        description="Private IPv4 ranges that may open it; nobody else can.", min_length=1
    )
    sign_in: SignIn | None = Field(
        default=None,
        description="Who may sign in; with a certificate only. Left out, whoever reaches it sees the logs.",
    )
    vcpu: Literal[1, 2, 4] = Field(default=1, description="vCPU of the history server's task.")
    memory_gib: int = Field(
        default=4, ge=2, le=30, description="A log of an endless job takes some to replay."
    )
