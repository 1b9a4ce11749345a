"""Streams, Kafka, topics for people, state machines."""

from __future__ import annotations

from collections.abc import Iterator

from toolchain.policy.rules._policy import Fault, PolicyRule, Resource, listed, properties, refers_to

SHORTEST_RETENTION_HOURS = 24
"""Kinesis keeps records no shorter (API reference, "CreateStream")."""


class StreamHasOwnKey(PolicyRule):
    """Checkov is content with AWS's own key."""

    id = "E9201"
    shortdesc = "A Kinesis stream is encrypted with a key of the environment and keeps its records a day"
    description = "StreamEncryption names a key other than alias/aws/kinesis; the retention is written down"
    source_url = "https://docs.aws.amazon.com/streams/latest/dev/server-side-encryption.html"
    kinds = ("AWS::Kinesis::Stream",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check key and retention."""
        key = found.value("StreamEncryption", "KeyId")
        if found.value("StreamEncryption", "EncryptionType") != "KMS" or key in (
            None,
            "alias/aws/kinesis",
        ):
            yield properties("StreamEncryption"), "its key is not the environment's"
        hours = found.value("RetentionPeriodHours")
        if not isinstance(hours, int) or hours < SHORTEST_RETENTION_HOURS:
            yield properties("RetentionPeriodHours"), f"RetentionPeriodHours is {hours}"


class TopicRefusesPlainHttp(PolicyRule):
    """Checkov asks for encryption at rest only."""

    id = "E9202"
    shortdesc = "A topic for alerts denies publishing without TLS"
    description = "Each SNS topic has a policy that denies sns:Publish to all without TLS"
    source_url = "https://docs.aws.amazon.com/sns/latest/dg/sns-security-best-practices.html"
    kinds = ("AWS::SNS::Topic",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Look for the denial among the policies of this topic."""
        for policy in found.others("AWS::SNS::TopicPolicy"):
            if not refers_to(policy.value("Topics"), found.name):
                continue
            for statement in listed(policy.value("PolicyDocument", "Statement")):
                plain = statement.get("Condition", {}).get("Bool", {}).get("aws:SecureTransport")
                denies = statement.get("Effect") == "Deny" and statement.get("Principal") in (
                    "*",
                    {"AWS": "*"},
                )
                if (
                    denies
                    and str(plain).lower() == "false"
                    and "sns:Publish" in listed(statement.get("Action"))
                ):
                    return
        yield properties(), "nothing denies aws:SecureTransport false"


class StateMachineIsOnRecord(PolicyRule):
    """Checkov has no check of state machines in CloudFormation."""

    id = "E9203"
    shortdesc = "A state machine logs everything, is traced, and is encrypted with a key of the environment"
    description = "Level ALL with a destination, tracing, and a customer-managed key"
    source_url = "https://docs.aws.amazon.com/step-functions/latest/dg/encryption-at-rest.html"
    kinds = ("AWS::StepFunctions::StateMachine",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check logs, traces and key."""
        logging = found.value("LoggingConfiguration") or {}
        if logging.get("Level") != "ALL" or not listed(logging.get("Destinations")):
            yield properties("LoggingConfiguration"), f"Level is {logging.get('Level', 'OFF')}"
        if found.value("TracingConfiguration", "Enabled") is not True:
            yield properties("TracingConfiguration"), "it is not traced"
        encryption = found.value("EncryptionConfiguration") or {}
        if encryption.get("Type") != "CUSTOMER_MANAGED_KMS_KEY" or not encryption.get("KmsKeyId"):
            yield properties("EncryptionConfiguration"), "its key is not the environment's"


class SamplesHaveOwnKey(PolicyRule):
    """Checkov knows no workspaces."""

    id = "E9204"
    shortdesc = "A Prometheus workspace is encrypted with a key of the environment"
    description = "The key cannot be given later: the workspace would be made anew, without its samples"
    source_url = "https://docs.aws.amazon.com/prometheus/latest/userguide/encryption-at-rest-Amazon-Service-Prometheus.html"
    kinds = ("AWS::APS::Workspace",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check for the key."""
        if not found.value("KmsKeyArn"):
            yield [], "its key is not the environment's"


class BrokersSpeakTls(PolicyRule):
    """Checkov checks MSK in Terraform only."""

    id = "E9301"
    shortdesc = "Kafka brokers speak TLS and store encrypted"
    description = "TLS to clients, TLS among brokers, volumes with a key of the environment"
    source_url = "https://docs.aws.amazon.com/msk/latest/developerguide/msk-encryption.html"
    kinds = ("AWS::MSK::Cluster",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check encryption in transit and at rest."""
        transit = found.value("EncryptionInfo", "EncryptionInTransit") or {}
        if transit.get("ClientBroker") != "TLS":
            yield properties("EncryptionInfo"), f"ClientBroker is {transit.get('ClientBroker', 'not set')}"
        if transit.get("InCluster") is not True:
            yield properties("EncryptionInfo"), "InCluster is not true"
        if not found.value("EncryptionInfo", "EncryptionAtRest", "DataVolumeKMSKeyId"):
            yield properties("EncryptionInfo"), "the volumes' key is not named"


class BrokersKnowTheirClients(PolicyRule):
    """Checkov checks MSK in Terraform only."""

    id = "E9302"
    shortdesc = "Kafka clients sign in with IAM"
    description = "IAM authentication is on, access without any is off by name, nothing is public"
    source_url = "https://docs.aws.amazon.com/msk/latest/developerguide/iam-access-control.html"
    kinds = ("AWS::MSK::Cluster", "AWS::MSK::ServerlessCluster")

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check who may connect."""
        if found.value("ClientAuthentication", "Sasl", "Iam", "Enabled") is not True:
            yield properties("ClientAuthentication"), "IAM is not enabled"
        if found.kind == "AWS::MSK::ServerlessCluster":
            return  # knows nothing but IAM and TLS
        if found.value("ClientAuthentication", "Unauthenticated", "Enabled") is not False:
            yield properties("ClientAuthentication"), "Unauthenticated is not disabled"
        public = found.value("BrokerNodeGroupInfo", "ConnectivityInfo", "PublicAccess", "Type")
        if public not in (None, "DISABLED"):
            yield properties("BrokerNodeGroupInfo"), f"PublicAccess is {public}"


class BrokersLog(PolicyRule):
    """Checkov checks MSK in Terraform only."""

    id = "E9303"
    shortdesc = "Kafka brokers write logs"
    description = "Broker logs go to CloudWatch Logs, S3 or Firehose"
    source_url = "https://docs.aws.amazon.com/msk/latest/developerguide/msk-logging.html"
    kinds = ("AWS::MSK::Cluster",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Look for one destination that is enabled."""
        logs = found.value("LoggingInfo", "BrokerLogs") or {}
        if not any(target.get("Enabled") is True for target in logs.values()):
            yield properties("LoggingInfo"), "no destination is enabled"


class BrokersMakeNoTopics(PolicyRule):
    """A mistyped name would become a topic that nobody owns."""

    id = "E9304"
    shortdesc = "Kafka brokers make no topic by accident and lose no record by election"
    description = "auto.create.topics.enable=false; unclean.leader.election.enable is not true"
    source_url = "https://docs.aws.amazon.com/msk/latest/developerguide/msk-configuration-properties.html"
    kinds = ("AWS::MSK::Configuration",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read the brokers' properties."""
        text = str(found.value("ServerProperties"))
        lines = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        if lines.get("auto.create.topics.enable") != "false":
            yield properties("ServerProperties"), "auto.create.topics.enable is not false"
        if lines.get("unclean.leader.election.enable", "false") != "false":
            yield properties("ServerProperties"), "unclean.leader.election.enable is true"


class ContainerIsSealed(PolicyRule):
    """Checkov looks at volumes of containers only."""

    id = "E9421"
    shortdesc = "A container writes nowhere but into its volumes and its log, and has no privileges"
    description = "Root file system read-only, not privileged, a log driver"
    source_url = "https://docs.aws.amazon.com/AmazonECS/latest/developerguide/security-tasks-containers.html"
    kinds = ("AWS::ECS::TaskDefinition",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Check every container."""
        for container in listed(found.value("ContainerDefinitions")):
            name = container.get("Name")
            if container.get("ReadonlyRootFilesystem") is not True:
                yield properties("ContainerDefinitions"), f"{name} can write to its root file system"
            if container.get("Privileged") is True:
                yield properties("ContainerDefinitions"), f"{name} is privileged"
            if not container.get("LogConfiguration"):
                yield properties("ContainerDefinitions"), f"{name} has no log"
