"""MSK clusters: IAM authentication, TLS only, encrypted, no automatic creation of topics.

The resources are CloudFormation's: CDK's own construct for MSK is
experimental and knows neither Express brokers nor topics
(``docs/design/stacks.md#msk``).
"""

from __future__ import annotations

from dataclasses import dataclass

from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_msk as msk
from constructs import Construct

from millrace.config.aws.resource_names import Names
from millrace.config.model import Environment, MskCluster
from millrace.sizing.kafka_cluster_load import broker_zone_count, replication_factor
from millrace.sizing.plan_model import ClusterPlan

from ..accept_finding import accept_finding_at_construct
from ..removal_policies import removal_policy
from ..stacks.network import MSK_PORTS
from .log_groups import EncryptedLogGroup

_REPLICAS = 3
"""Replicas of a partition on clusters whose zones are not known here; Serverless allows no other number."""


class ProvisionedCluster(Construct):
    """A Standard or Express cluster.

    Attributes
    ----------
    arn
        The cluster's ARN.
    replicas
        Replication factor of its topics.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        names: Names,
        cluster: str,
        settings: MskCluster,
        plan: ClusterPlan,
        vpc: ec2.IVpc,
        subnets: tuple[ec2.ISubnet, ...],
        workers: ec2.ISecurityGroup,
        key: kms.IKey,
        logs_key: kms.IKey,
    ) -> None:
        super().__init__(scope, construct_id)
        assert plan.brokers is not None, f"{cluster}: no brokers in the plan"
        assert plan.broker_type is not None, f"{cluster}: no broker type in the plan"
        environment = names.environment
        brokers = plan.brokers.value
        self.replicas = replication_factor(environment, cluster)
        configuration = msk.CfnConfiguration(
            self,
            "Configuration",
            # The configuration is for any Kafka version: neither its name nor its versions can change, so a
            # configuration for the cluster's version would have to be replaced under the same name.
            name=f"{names.cluster(cluster)}-brokers",
            server_properties=broker_properties_text(settings, replicas=self.replicas),
        )
        group = _add_broker_security_group(self, names=names, cluster=cluster, vpc=vpc, workers=workers)
        resource = msk.CfnCluster(
            self,
            "Resource",
            cluster_name=names.cluster(cluster),
            kafka_version=settings.version,
            number_of_broker_nodes=brokers,
            broker_node_group_info=msk.CfnCluster.BrokerNodeGroupInfoProperty(
                instance_type=plan.broker_type.value,
                client_subnets=[subnet.subnet_id for subnet in subnets[: broker_zone_count(environment)]],
                security_groups=[group.security_group_id],
                storage_info=None
                if plan.storage_gib_per_broker is None
                else msk.CfnCluster.StorageInfoProperty(
                    ebs_storage_info=msk.CfnCluster.EBSStorageInfoProperty(
                        volume_size=plan.storage_gib_per_broker.value,
                        provisioned_throughput=None
                        if plan.volume_mib is None
                        else msk.CfnCluster.ProvisionedThroughputProperty(
                            enabled=True, volume_throughput=plan.volume_mib
                        ),
                    )
                ),
            ),
            client_authentication=msk.CfnCluster.ClientAuthenticationProperty(
                sasl=msk.CfnCluster.SaslProperty(iam=msk.CfnCluster.IamProperty(enabled=True)),
                unauthenticated=msk.CfnCluster.UnauthenticatedProperty(enabled=False),
            ),
            encryption_info=msk.CfnCluster.EncryptionInfoProperty(
                encryption_at_rest=msk.CfnCluster.EncryptionAtRestProperty(
                    data_volume_kms_key_id=key.key_arn
                ),
                encryption_in_transit=msk.CfnCluster.EncryptionInTransitProperty(
                    client_broker="TLS", in_cluster=True
                ),
            ),
            configuration_info=msk.CfnCluster.ConfigurationInfoProperty(
                arn=configuration.attr_arn, revision=configuration.attr_latest_revision_revision
            ),
            enhanced_monitoring="PER_TOPIC_PER_BROKER",
            # "Broker logs are not supported for clusters with Express instance types": an answer of CreateCluster
            # (terraform-aws-modules/terraform-aws-msk-kafka-cluster#47).
            logging_info=None
            if settings.tier == "express"
            else self._add_log_group_for_brokers(environment, f"/{names.prefix}/kafka/{cluster}", logs_key),
        )
        if settings.tier == "express":
            accept_finding_at_construct(
                resource, "AwsSolutions::AwsSolutions-MSK6", "MSK takes no broker logs of Express brokers"
            )
        resource.apply_removal_policy(removal_policy(environment, disposable=settings.disposable))
        self.arn = resource.attr_arn

    def _add_log_group_for_brokers(
        self, environment: Environment, name: str, key: kms.IKey
    ) -> msk.CfnCluster.LoggingInfoProperty:
        group = EncryptedLogGroup(self, "BrokerLogs", environment=environment, name=name, key=key, stays=True)
        return msk.CfnCluster.LoggingInfoProperty(
            broker_logs=msk.CfnCluster.BrokerLogsProperty(
                cloud_watch_logs=msk.CfnCluster.CloudWatchLogsProperty(
                    enabled=True, log_group=group.log_group_name
                )
            )
        )


class ServerlessCluster(Construct):
    """A serverless cluster: it has IAM and TLS only, and its size cannot be chosen.

    Attributes
    ----------
    arn
        The cluster's ARN.
    replicas
        Replication factor of its topics.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        names: Names,
        cluster: str,
        settings: MskCluster,
        vpc: ec2.IVpc,
        subnets: tuple[ec2.ISubnet, ...],
        workers: ec2.ISecurityGroup,
    ) -> None:
        super().__init__(scope, construct_id)
        self.replicas = _REPLICAS
        group = _add_broker_security_group(self, names=names, cluster=cluster, vpc=vpc, workers=workers)
        resource = msk.CfnServerlessCluster(
            self,
            "Resource",
            cluster_name=names.cluster(cluster),
            client_authentication=msk.CfnServerlessCluster.ClientAuthenticationProperty(
                sasl=msk.CfnServerlessCluster.SaslProperty(
                    iam=msk.CfnServerlessCluster.IamProperty(enabled=True)
                )
            ),
            vpc_configs=[
                msk.CfnServerlessCluster.VpcConfigProperty(
                    subnet_ids=[subnet.subnet_id for subnet in subnets],
                    security_groups=[group.security_group_id],
                )
            ],
        )
        resource.apply_removal_policy(removal_policy(names.environment, disposable=settings.disposable))
        self.arn = resource.attr_arn


@dataclass(frozen=True)
class ExistingCluster:
    """A cluster that somebody else owns: it is neither created nor changed here.

    Attributes
    ----------
    arn
        The cluster's ARN.
    replicas
        Replication factor of topics that are made on it.
    """

    arn: str
    replicas: int = _REPLICAS


def broker_properties_text(settings: MskCluster, *, replicas: int) -> str:
    """Write the brokers' properties, one ``name=value`` a line.

    Express brokers manage replication themselves and refuse those properties.
    """
    properties = {"auto.create.topics.enable": "false"}
    if settings.tier == "standard":
        properties |= {
            "default.replication.factor": str(replicas),
            # With one replica offline (a broker is patched), producers with acks=all continue.
            "min.insync.replicas": str(max(replicas - 1, 1)),
            "unclean.leader.election.enable": "false",
        }
    return "\n".join(f"{name}={value}" for name, value in properties.items())


def _add_broker_security_group(
    scope: Construct, *, names: Names, cluster: str, vpc: ec2.IVpc, workers: ec2.ISecurityGroup
) -> ec2.SecurityGroup:
    group = ec2.SecurityGroup(
        scope,
        "Brokers",
        vpc=vpc,
        description=f"Brokers of {names.cluster(cluster)}",
        allow_all_outbound=False,
    )
    group.add_ingress_rule(workers, ec2.Port.tcp(MSK_PORTS["iam"]), "Jobs")
    return group
