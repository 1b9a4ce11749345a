"""Buckets, and what becomes of data when its resource leaves a stack."""

from __future__ import annotations

from collections.abc import Iterator

from toolchain.policy.rules._policy import Fault, PolicyRule, Resource, listed, properties, refers_to

OLDEST_TLS = 1.2


class BucketRefusesPlainHttp(PolicyRule):
    """Checkov looks at no bucket policy for this."""

    id = "E9101"
    shortdesc = "A bucket denies requests without TLS 1.2"
    description = "Each bucket has a policy that denies s3:* to all, without TLS and with an older one"
    source_url = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/security-best-practices.html"
    kinds = ("AWS::S3::Bucket",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Look for both denials among the policies of this bucket."""
        denied = [
            statement.get("Condition", {})
            for policy in found.others("AWS::S3::BucketPolicy")
            if policy.value("Bucket") == {"Ref": found.name}
            for statement in listed(policy.value("PolicyDocument", "Statement"))
            if statement.get("Effect") == "Deny"
            and statement.get("Action") == "s3:*"
            and statement.get("Principal") in ("*", {"AWS": "*"})
            and len([place for place in listed(statement.get("Resource")) if refers_to(place, found.name)])
            > 1
        ]
        if not any(
            str(condition.get("Bool", {}).get("aws:SecureTransport")).lower() == "false"
            for condition in denied
        ):
            yield properties(), "nothing denies aws:SecureTransport false"
        if not any(
            float(condition.get("NumericLessThan", {}).get("s3:TlsVersion", 0)) >= OLDEST_TLS
            for condition in denied
        ):
            yield properties(), f"nothing denies s3:TlsVersion below {OLDEST_TLS}"


class BucketHasOwnKey(PolicyRule):
    """Checkov is content with any encryption."""

    id = "E9102"
    shortdesc = "A bucket is encrypted with a key of the environment"
    description = (
        "aws:kms with a key that is named, and a bucket key; a target of access logs cannot have one"
    )
    source_url = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucket-key.html"
    kinds = ("AWS::S3::Bucket",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check the default encryption, except of the buckets to which S3 delivers access logs."""
        if any(
            bucket.value("LoggingConfiguration", "DestinationBucketName") == {"Ref": found.name}
            for bucket in found.others("AWS::S3::Bucket")
        ):
            return
        rules = listed(found.value("BucketEncryption", "ServerSideEncryptionConfiguration"))
        if not rules:
            yield properties(), "no BucketEncryption"
        for rule in rules:
            default = rule.get("ServerSideEncryptionByDefault", {})
            if default.get("SSEAlgorithm") != "aws:kms" or not default.get("KMSMasterKeyID"):
                yield properties("BucketEncryption"), "its key is not named"
            if rule.get("BucketKeyEnabled") is not True:
                yield properties("BucketEncryption"), "BucketKeyEnabled is not true"


class BucketHasOneOwner(PolicyRule):
    """Scanners are silent on access lists that are off."""

    id = "E9103"
    shortdesc = "A bucket knows no access lists"
    description = "Object ownership is BucketOwnerEnforced"
    source_url = "https://docs.aws.amazon.com/AmazonS3/latest/userguide/about-object-ownership.html"
    kinds = ("AWS::S3::Bucket",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check the ownership controls."""
        owners = [rule.get("ObjectOwnership") for rule in listed(found.value("OwnershipControls", "Rules"))]
        if owners != ["BucketOwnerEnforced"]:
            yield properties(), f"ObjectOwnership is {owners or 'not set'}"


class BucketLifecycle(PolicyRule):
    """Scanners ask for a lifecycle and do not read it."""

    id = "E9104"
    shortdesc = "A bucket's lifecycle drops what is dead and nothing else"
    description = (
        "Uploads are given up, replaced versions expire, and the buckets named in `kept` never lose "
        "a live object: docs/design/stacks.md#buckets"
    )
    kinds = ("AWS::S3::Bucket",)

    def __init__(self) -> None:
        super().__init__()
        self.config_definition = {"kept": {"default": [], "type": "list", "itemtype": "string"}}
        self.configure()

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read the rules that are enabled."""
        rules = [
            rule
            for rule in listed(found.value("LifecycleConfiguration", "Rules"))
            if rule.get("Status") == "Enabled"
        ]
        if not any("AbortIncompleteMultipartUpload" in rule for rule in rules):
            yield properties(), "incomplete uploads stay for ever"
        versioned = found.value("VersioningConfiguration", "Status") == "Enabled"
        if versioned and not any("NoncurrentVersionExpiration" in rule for rule in rules):
            yield properties(), "replaced versions stay for ever"
        if str(found.value("BucketName")) in self.config["kept"]:
            for rule in rules:
                ends = sorted(
                    {"ExpirationInDays", "ExpirationDate", "Transitions", "Transition"} & rule.keys()
                )
                if ends:
                    yield (
                        properties("LifecycleConfiguration"),
                        f"live objects are subject to {', '.join(ends)}",
                    )


class DataOutlivesItsStack(PolicyRule):
    """Scanners know deletion policies of databases only."""

    id = "E9105"
    shortdesc = "Data outlives its stack"
    description = (
        "Unless the environment says `removal: destroy`, what holds data is kept when it leaves a stack"
    )
    source_url = (
        "https://docs.aws.amazon.com/AWSCloudFormation/latest/UserGuide/aws-attribute-deletionpolicy.html"
    )
    kinds = (
        "AWS::S3::Bucket",
        "AWS::Kinesis::Stream",
        "AWS::KMS::Key",
        "AWS::MSK::Cluster",
        "AWS::MSK::ServerlessCluster",
        "AWS::MSK::Topic",
        "AWS::Glue::Database",
        "AWS::APS::Workspace",
    )

    def __init__(self) -> None:
        super().__init__()
        self.config_definition = {"removal": {"default": "retain", "type": "string"}}
        self.configure()

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Compare both policies with what the environment asks for."""
        if self.config["removal"] == "destroy":
            return
        if found.body.get("DeletionPolicy") not in ("Retain", "RetainExceptOnCreate"):
            yield [], f"DeletionPolicy is {found.body.get('DeletionPolicy')}"
        if found.body.get("UpdateReplacePolicy") != "Retain":
            yield [], f"UpdateReplacePolicy is {found.body.get('UpdateReplacePolicy')}"
