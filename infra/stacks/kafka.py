"""MSK clusters that this environment owns, and their topics."""

from __future__ import annotations

import base64

from aws_cdk import CfnOutput, Tags
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_msk as msk
from constructs import Construct

from millrace.config.aws.resource_names import Names
from millrace.config.kafka.clusters import TIME_LIMITS
from millrace.config.model import Environment, KafkaTopic, MskCluster
from millrace.sizing.plan_model import Plan

from ..constructs.encryption import existing_or_new_encryption_key
from ..constructs.msk_cluster import ExistingCluster, ProvisionedCluster, ServerlessCluster
from ..removal_policies import removal_policy
from .base import EnvironmentStack


class KafkaStack(EnvironmentStack):
    """Clusters and topics with brokers, storage and partitions from the plan.

    Attributes
    ----------
    clusters
        MSK clusters by logical name, existing ones included: the environment's topics may be on them.
    """

    def __init__(
        self,
        scope: Construct,
        *,
        names: Names,
        plan: Plan,
        vpc: ec2.IVpc,
        subnets: tuple[ec2.ISubnet, ...],
        workers: ec2.ISecurityGroup,
        logs_key: kms.IKey,
    ) -> None:
        super().__init__(
            scope, names=names, part="kafka", stateful=True, description=f"Kafka clusters of {names.prefix}"
        )
        environment = names.environment
        owned = environment.created_clusters
        key = None
        if any(settings.tier != "serverless" for settings in owned.values()):
            key = existing_or_new_encryption_key(
                self,
                "Key",
                environment=environment,
                data_class="kafka",
                disposable=all(settings.disposable for settings in owned.values()),
            )
        self.clusters: dict[str, ProvisionedCluster | ServerlessCluster | ExistingCluster] = {
            name: ExistingCluster(settings.existing)
            for name, settings in environment.kafka.items()
            if isinstance(settings, MskCluster) and settings.existing is not None
        }
        for name, settings in owned.items():
            if settings.tier == "serverless":
                self.clusters[name] = ServerlessCluster(
                    self,
                    name,
                    names=names,
                    cluster=name,
                    settings=settings,
                    vpc=vpc,
                    subnets=subnets,
                    workers=workers,
                )
            else:
                assert key is not None
                self.clusters[name] = ProvisionedCluster(
                    self,
                    name,
                    names=names,
                    cluster=name,
                    settings=settings,
                    plan=plan.clusters[name],
                    vpc=vpc,
                    subnets=subnets,
                    workers=workers,
                    key=key,
                    logs_key=logs_key,
                )
        for name, topic in owned_topics(environment).items():
            self._add_topic(name, topic, plan)
        CfnOutput(
            self,
            "Clusters",
            value=self.to_json_string({name: cluster.arn for name, cluster in self.clusters.items()}),
        )

    def _add_topic(self, name: str, settings: KafkaTopic, plan: Plan) -> None:
        partitions = plan.streams[name].partitions
        assert partitions is not None, f"{name}: a Kafka topic without partitions in the plan"
        cluster = self.clusters[settings.cluster]
        topic = msk.CfnTopic(
            self,
            f"Topic-{name}",
            cluster_arn=cluster.arn,
            topic_name=self.names.stream(name),
            partition_count=partitions.value,
            replication_factor=cluster.replicas,
            configs=base64.b64encode(topic_properties_text(settings).encode()).decode(),
        )
        topic.apply_removal_policy(removal_policy(self.names.environment, disposable=settings.disposable))
        Tags.of(topic).add("millrace:stream", name)


def topic_properties_text(settings: KafkaTopic) -> str:
    """Write a topic's properties, one ``name=value`` a line, as ``AWS::MSK::Topic`` takes them."""
    return "\n".join(
        (
            f"compression.type={settings.compression}",
            f"retention.ms={round(settings.retention.total_seconds() * 1000)}",
            *(f"{name}={value}" for name, value in TIME_LIMITS.items()),
        )
    )


def owned_topics(environment: Environment) -> dict[str, KafkaTopic]:
    """Return the topics that the environment makes: its own, on any MSK cluster of this account."""
    return {
        name: stream
        for name, stream in environment.streams.items()
        if isinstance(stream, KafkaTopic) and stream.is_created_on(environment.kafka)
    }
