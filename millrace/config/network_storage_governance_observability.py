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


Domain = Annotated[
    str, StringConstraints(pattern=r"^(\*\.)?([a-z0-9_-]{1,63}\.)+[a-z][a-z0-9-]{0,62}$", max_length=255)
]
"""A name of a domain list (botocore's model of ``UpdateFirewallDomains``)."""


class Network(Model):
    """Network that jobs run in."""

    vpc: VpcId | None = Field(default=None, description="An existing VPC; left out, a VPC is created.")
    subnets: tuple[SubnetId, ...] = Field(default=(), description="Private subnets of that VPC.")
    zones: dict[SubnetId, Annotated[str, StringConstraints(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9][a-z]$")]] = (
        Field(
            default_factory=dict,
            description="Availability Zones of existing subnets, for Glue's connection; left out, Glue determines them.",
        )
    )
    zone_ids: tuple[Annotated[str, StringConstraints(pattern=r"^[a-z]{2,5}[0-9]-az[0-9]{1,2}$")], ...] = (
        Field(
            default=(),
            description="Zone ids of a new VPC, as many as availability_zones; left out, the first ones that AWS "
            "lists for the account, in no guaranteed order. A change replaces the subnets.",
            examples=[["use1-az1", "use1-az2", "use1-az4"]],
        )
    )
    cidr: str = Field(default="10.42.0.0/16", description="Private address range of a new VPC, /16 to /24.")
    availability_zones: int | None = Field(
        default=None,
        ge=2,
        le=3,
        description="Number of Availability Zones of a new VPC; left out, those of `zone_ids`, else those that are deployed, "
        "else three, and two in a region that may have no third. MSK Express needs three.",
    )
    egress: Literal["endpoints", "nat", "cheapest"] = Field(
        default="endpoints",
        description="Route from jobs to AWS: VPC endpoints only, NAT gateways (with access to the internet), or "
        "the one that is cheaper in the plan.",
    )
    allowed_domains: tuple[Domain, ...] | None = Field(
        default=None,
        description="Names that a new VPC resolves, beside those of AWS and the hosts in the file; `*.` begins a name with "
        "all below it. A DNS firewall refuses all others. Left out, every name is resolved.",
        examples=[["*.brokers.example.com"], []],
    )
    flow_logs_role: RoleArn | None = Field(
        default=None, description="An existing role for the VPC's flow logs; left out, a role is created."
    )


class Keys(Model):
    """Customer-managed keys that somebody else owns; each key that is left out is created.

    Their policies must let CloudWatch, CloudWatch Logs and S3 use them (docs/governance.md).
    """

    data: KeyArn | None = Field(default=None, description="Key of tables, checkpoints and dead letters.")
    logs: KeyArn | None = Field(default=None, description="Key of event logs and log groups.")
    alerts: KeyArn | None = Field(default=None, description="Key of the alerts' topic and of state machines.")
    streams: KeyArn | None = Field(default=None, description="Key of this environment's Kinesis streams.")
    kafka: KeyArn | None = Field(default=None, description="Key of this environment's MSK clusters.")


class Upkeep(Model):
    """Maintenance of the tables that jobs write, beside their streams: hourly expiry, daily compaction."""

    file_size: Size = Field(
        default="512MiB",  # type: ignore[assignment]  # pydantic parses the default (validate_default)
        ge=8 * 1024**2,
        le=4 * 1024**3,
        description="Compaction rewrites small files into files of this size.",
    )
    snapshots: Duration = Field(
        default=timedelta(days=1),
        ge=timedelta(hours=1),
        le=timedelta(days=365),
        description="Snapshots older than this are expired, except those that a derive query has not read yet.",
    )
    orphans: Duration = Field(
        default=timedelta(days=7),
        ge=timedelta(days=1),
        description="Files older than this that no snapshot refers to are deleted; it must be longer than any "
        "write takes.",
    )


class Storage(Model):
    """Buckets, keys and the catalog's database."""

    keys: Keys = Field(default=Keys(), description="Existing KMS keys to use instead of new ones.")
    buckets: dict[Bucket, BucketName] = Field(
        default_factory=dict, description="Existing buckets, whose settings are never changed."
    )
    database: DatabaseName | None = Field(
        default=None, description="An existing Glue database; left out, a database is created."
    )
    lake_formation: Literal["off", "tables", "tables-and-location"] = Field(
        default="off",
        description="Lake Formation grants for each job's role, for databases without IAMAllowedPrincipals; "
        "`tables-and-location` if the lake's bucket is registered there. The role of CloudFormation "
        "must be a data lake administrator.",
    )
    dead_letter_retention: Duration | None = Field(
        default=None,
        description="Dead letters older than this are deleted: a number of days, at least the retention of their "
        "stream; left out, they are kept.",
    )
    erase_share: float = Field(
        default=0.1,
        gt=0,
        le=1,
        description="Largest share of a table's rows that one erasure may match; the jobs refuse more, whoever asks.",
    )
    upkeep: Upkeep | None = Field(
        default=Upkeep(),
        description="Compaction and expiry of tables; `null` if the catalog's own service does both.",
    )
    event_log_retention: Duration = Field(
        default=timedelta(days=30),
        description="Spark event logs older than this are deleted: a number of days.",
    )
    disposable: tuple[Disposable, ...] = Field(
        default=(),
        description="Data that can be deleted with its stack if the environment has removal: destroy.",
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
    key: KeyArn | None = Field(default=None, description="KMS key of its files, if they have one.")


class Governance(Model):
    """A company's rules for everything that is deployed into its accounts."""

    permissions_boundary: PolicyArn | None = Field(
        default=None, description="A managed policy that is the permissions boundary of every new role."
    )
    role_path: Annotated[str, StringConstraints(pattern=r"^/([A-Za-z0-9_+=,.@-]+/)*$")] = Field(
        default="/", description="Path of every new role, such as /streaming/."
    )
    name_prefix: Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,18}[a-z0-9]$")] | None = Field(
        default=None, description="Prefix of every name, before project and environment."
    )
    qualifier: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]{1,10}$")] | None = Field(
        default=None, description="Qualifier of the CDK bootstrap stack, if it is not the default."
    )
    max_month: float | None = Field(
        default=None,
        gt=0,
        description="Most US dollars that the plan may cost in a month, with every worker all month; a plan above it is not "
        "deployed.",
        examples=[5000],
    )
    on_demand_advantage: bool = Field(
        default=False,
        description="The account has Kinesis On-demand Advantage, a setting of the account: on-demand streams cost no fee each and "
        "less a GB, and take 50 fan-out consumers in place of 20. Millrace does not set it.",
        examples=[True],
    )
    other_accounts: tuple[Annotated[str, StringConstraints(pattern=r"^[0-9]{12}$")], ...] = Field(
        default=(),
        description="Accounts beside the environment's own that its ARNs and images may be of.",
        examples=[["444455556666"]],
    )
    bootstrap_key: KeyArn | None = Field(
        default=None,
        description="The customer managed key of the CDK bootstrap's bucket, if it has one: jobs need it to read "
        "their files. Leave it out for S3 managed keys and the AWS managed key.",
        examples=["arn:aws:kms:us-east-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab"],
    )


_ID = "[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}"
Channel = Annotated[
    str,
    StringConstraints(
        pattern=rf"^(slack:[0-9A-Z]+/[0-9A-Za-z]+|teams:{_ID}/{_ID}/[\w=+.,-]*%3[aA][\w=+.,-]*%40[\w=+.,-]*)$"
    ),
]
"""Ids as CloudFormation's schemas of the two kinds of channel have them."""


class Observability(Model):
    """Recipients of alarms, and storage of metrics in addition to CloudWatch."""

    notify: tuple[Annotated[str, StringConstraints(pattern=r"^[^@\s]+@[^@\s]+\.[^@\s]+$")], ...] = Field(
        default=(),
        description="E-mail addresses for alarms; each recipient must confirm the subscription once.",
    )
    channels: tuple[Channel, ...] = Field(
        default=(),
        description="Chat channels for alarms: `slack:WORKSPACE/CHANNEL` or `teams:TEAM/TENANT/CHANNEL`, by their ids. An "
        "administrator first authorises the workspace or team in Amazon Q Developer in chat applications.",
        examples=[["slack:T0123ABCD/C0123ABCD"]],
    )
    channel_role: RoleArn | None = Field(
        default=None,
        description="Role with which that service draws an alarm's metric; it trusts chatbot.amazonaws.com.",
        examples=["arn:aws:iam::111122223333:role/alarms-in-chat"],
    )
    alarms: Literal["together", "by-job"] = Field(
        default="together",
        description="Stack of the alarms of jobs: the observability stack, and numbered ones beside it for more alarms than "
        "a stack can have; or the stack of each job.",
    )
    prometheus: bool = Field(
        default=False,
        description="Creates a Managed Prometheus workspace, to which jobs on EMR Serverless write.",
    )
    prometheus_retention: Duration = Field(
        default=timedelta(days=150),
        ge=timedelta(days=30),  # its quotas
        le=timedelta(days=1095),
        description="Retention of the workspace's samples: a number of days.",
    )


Https = Annotated[
    str, StringConstraints(pattern=r"^https://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9/._~-]*)?$")
]


class SignIn(Model):
    """OpenID Connect provider at which people sign in before the load balancer lets them through."""

    issuer: Https = Field(description="Issuer, as in the provider's /.well-known/openid-configuration.")
    authorization_endpoint: Https = Field(
        description="The identity provider's authorization endpoint, from its OpenID configuration."
    )
    token_endpoint: Https = Field(description="The identity provider's token endpoint.")
    user_info_endpoint: Https = Field(description="The identity provider's user info endpoint.")
    client_id: str = Field(
        pattern=r"^[A-Za-z0-9._~-]{1,200}$",
        description="Id of the client that is registered for this server at the identity provider.",
    )
    secret: SecretArn = Field(
        description="Secret of Secrets Manager with client_secret, as JSON. CloudFormation reads it; it is not in "
        "the template."
    )
    scope: str = Field(
        default="openid",
        pattern=r"^openid( [A-Za-z0-9._:/-]+)*$",
        description="Scope of the request; begins with `openid`.",
    )
    session: Duration = Field(  # type: ignore[assignment]  # pydantic parses the default (validate_default)
        default="8h",
        ge=timedelta(minutes=1),
        le=timedelta(days=7),
        description="Time until people must sign in again, 1m to 7d.",
    )


class HistoryServer(Model):
    """Spark's history server over the event logs of all jobs, inside the VPC."""

    image: (
        Annotated[
            str,
            StringConstraints(
                pattern=r"^[0-9]{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/[a-z0-9/._-]+(:[A-Za-z0-9_.-]+|@sha256:[0-9a-f]{64})$"
            ),
        ]
        | None
    ) = Field(
        default=None,
        description="An image with Spark in a private ECR repository; left out, an image is copied from the "
        "public gallery (docs/history-server.md).",
    )
    certificate: CertificateArn | None = Field(
        default=None, description="ACM certificate of the load balancer; without one it uses HTTP."
    )
    clients: tuple[str, ...] = Field(
        description="Private IPv4 ranges that can reach it; no other address can.", min_length=1
    )
    sign_in: SignIn | None = Field(
        default=None,
        description="Sign-in of people; needs a certificate. Left out, everybody who can reach it sees the logs.",
    )
    vcpu: Literal[1, 2, 4] = Field(default=1, description="vCPU of the history server's task.")
    memory_gib: int = Field(
        default=4,
        ge=2,
        le=30,
        description="Memory of its task; replaying the event log of a long run needs much.",
    )
