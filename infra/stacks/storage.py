"""Keys and buckets of an environment, and the catalog's database."""

from __future__ import annotations

from datetime import timedelta

from aws_cdk import CfnOutput, CfnResource, CfnWaitConditionHandle, Duration
from aws_cdk import aws_glue as glue
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from constructs import Construct

from millrace.config.aws.resource_names import VERSIONS, Bucket, Names

from ..constructs.encryption import allow_cloudwatch_log_groups, existing_or_new_encryption_key
from ..launch.job_spark_settings import database_location
from ..permissions.job_permissions import WRITES
from ..removal_policies import is_disposable, removal_policy
from .base import EnvironmentStack

_ABORT_UPLOADS = Duration.days(7)
_KEEP_REPLACED = Duration.days(7)
_KEEP_ACCESS_LOGS = Duration.days(365)


class StorageStack(EnvironmentStack):
    """Everything on S3, the keys that encrypt it, and the Glue database.

    Attributes
    ----------
    data_key
        Encrypts lake, checkpoints and dead letters.
    logs_key
        Encrypts event logs and log groups.
    lake, checkpoints, dead_letters, event_logs, access_logs
        The buckets.
    """

    def __init__(self, scope: Construct, *, names: Names) -> None:
        environment = names.environment
        super().__init__(
            scope,
            names=names,
            part="storage",
            stateful=True,
            description=f"Buckets, keys and database of {names.prefix}",
        )
        storage = environment.storage
        self.data_key = existing_or_new_encryption_key(
            self,
            "DataKey",
            environment=environment,
            data_class="data",
            disposable=is_disposable(environment, "lake", "checkpoints", "dead-letters"),
        )
        self.logs_key = existing_or_new_encryption_key(
            self,
            "LogsKey",
            environment=environment,
            data_class="logs",
            disposable=is_disposable(environment, "event-logs", "logs"),
        )
        allow_cloudwatch_log_groups(self.logs_key, prefix="")
        self.access_logs = self._existing_or_new_access_log_bucket()
        # Buckets that keep versions, with the reasons: docs/design/stacks.md#buckets
        self.lake = self._existing_or_new_bucket("lake", self.data_key, versioned=True)
        self.checkpoints = self._existing_or_new_bucket("checkpoints", self.data_key)
        self._deny_version_writes_to_given_roles()
        self.dead_letters = self._existing_or_new_bucket(
            "dead-letters", self.data_key, versioned=True, expires=storage.dead_letter_retention
        )
        self.event_logs = self._existing_or_new_bucket(
            "event-logs", self.logs_key, expires=storage.event_log_retention
        )
        if environment.history is not None:
            _send_object_events_to_eventbridge(self.event_logs)
        if storage.database is None:
            glue.Database(
                self,
                "Database",
                database_name=names.database,
                description=f"Tables of {names.prefix}",
                location_uri=database_location(names),
                removal_policy=removal_policy(environment, disposable=is_disposable(environment, "database")),
            )
        self.export_permanently(
            self.data_key.key_arn,
            self.logs_key.key_arn,
            self.event_logs.bucket_name,
            self.access_logs.bucket_name,
        )
        if not any(CfnResource.is_cfn_resource(each) for each in self.node.find_all()):
            # Everything exists already. A stack without a resource cannot be deployed, and others look up the
            # outputs below.
            CfnWaitConditionHandle(self, "NothingOfOurs")
        for output, bucket in (
            ("Lake", self.lake),
            ("Checkpoints", self.checkpoints),
            ("DeadLetters", self.dead_letters),
            ("EventLogs", self.event_logs),
        ):
            CfnOutput(self, f"{output}Bucket", value=bucket.bucket_name)
        CfnOutput(self, "DatabaseName", value=names.database)

    def _existing_or_new_bucket(
        self, kind: Bucket, key: kms.IKey, *, versioned: bool = False, expires: timedelta | None = None
    ) -> s3.IBucket:
        existing = self.names.environment.storage.buckets.get(kind)
        if existing is not None:
            return s3.Bucket.from_bucket_attributes(
                self, _construct_id_of_bucket(kind), bucket_name=existing, encryption_key=key
            )
        rules = [s3.LifecycleRule(id="abort-uploads", abort_incomplete_multipart_upload_after=_ABORT_UPLOADS)]
        if versioned:
            rules.append(
                s3.LifecycleRule(
                    id="drop-replaced",
                    noncurrent_version_expiration=_KEEP_REPLACED,
                    expired_object_delete_marker=True,
                )
            )
        if expires is not None:
            rules.append(s3.LifecycleRule(id="expire", expiration=Duration.days(expires.days)))
        return s3.Bucket(
            self,
            _construct_id_of_bucket(kind),
            bucket_name=self.names.bucket(kind),
            encryption=s3.BucketEncryption.KMS,
            encryption_key=key,
            bucket_key_enabled=True,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            versioned=versioned,
            server_access_logs_bucket=self.access_logs,
            server_access_logs_prefix=f"{kind}/",
            lifecycle_rules=rules,
            removal_policy=removal_policy(
                self.names.environment, disposable=is_disposable(self.names.environment, kind)
            ),
        )

    def _deny_version_writes_to_given_roles(self) -> None:
        """Deny roles that exist already to write versions for a rollback: nothing is added to such a role's own policies."""
        roles = sorted({job.role for job in self.names.environment.jobs.values() if job.role is not None})
        if roles:
            # An existing bucket takes no statement: its owner keeps its policy.
            self.checkpoints.add_to_resource_policy(
                iam.PolicyStatement(
                    sid="NeverVersions",
                    effect=iam.Effect.DENY,
                    principals=[iam.AnyPrincipal()],
                    actions=WRITES,
                    resources=[self.checkpoints.arn_for_objects(f"{VERSIONS}/*")],
                    conditions={"ArnEquals": {"aws:PrincipalArn": roles}},
                )
            )

    def _existing_or_new_access_log_bucket(self) -> s3.IBucket:
        existing = self.names.environment.storage.buckets.get("access-logs")
        if existing is not None:
            return s3.Bucket.from_bucket_name(self, _construct_id_of_bucket("access-logs"), existing)
        return s3.Bucket(
            self,
            _construct_id_of_bucket("access-logs"),
            bucket_name=self.names.bucket("access-logs"),
            # S3 delivers access logs only to a bucket with S3-managed keys (S3 user guide,
            # "Enabling Amazon S3 server access logging").
            encryption=s3.BucketEncryption.S3_MANAGED,
            block_public_access=s3.BlockPublicAccess.BLOCK_ALL,
            enforce_ssl=True,
            minimum_tls_version=1.2,
            object_ownership=s3.ObjectOwnership.BUCKET_OWNER_ENFORCED,
            lifecycle_rules=[
                s3.LifecycleRule(
                    id="expire",
                    expiration=_KEEP_ACCESS_LOGS,
                    abort_incomplete_multipart_upload_after=_ABORT_UPLOADS,
                )
            ],
            removal_policy=removal_policy(
                self.names.environment, disposable=is_disposable(self.names.environment, "access-logs")
            ),
        )


def _send_object_events_to_eventbridge(bucket: s3.IBucket) -> None:
    """Send an event for each object to EventBridge; the construct's own way needs a Lambda function."""
    resource = bucket.node.default_child
    if isinstance(resource, s3.CfnBucket):  # the owner configures an existing bucket
        resource.notification_configuration = s3.CfnBucket.NotificationConfigurationProperty(
            event_bridge_configuration=s3.CfnBucket.EventBridgeConfigurationProperty(
                event_bridge_enabled=True
            )
        )


def _construct_id_of_bucket(kind: Bucket) -> str:
    return "".join(part.title() for part in kind.split("-"))
