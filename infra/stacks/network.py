"""Where jobs run: a VPC without a way out, the endpoints that jobs call, their security group."""

from __future__ import annotations

from aws_cdk import Aws, CfnOutput
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from constructs import Construct

from infra.constructs.logs import EncryptedLogGroup
from infra.stacks.base import EnvironmentStack
from millrace.config.model import (
    Environment,
    ExternalCluster,
    KinesisStream,
    MskCluster,
)
from millrace.config.names import Names

HTTPS = 443
MSK_IAM_PORT = 9098
"""Brokers' port for IAM authentication inside AWS (MSK developer guide, "Port information")."""

_AWS_OWNED_BUCKETS = (
    # Glue reads its own libraries, EMR Serverless what its user interface and logs need.
    "arn:{partition}:s3:::aws-glue-*/*",
    "arn:{partition}:s3:::prod.{region}.appinfo.src/*",
)


class NetworkStack(EnvironmentStack):
    """The VPC, made here or brought along, and the security group that every job wears.

    Attributes
    ----------
    vpc
        The VPC.
    subnets
        Private subnets for jobs and brokers, in as many zones as the environment asks for.
    workers
        Security group of all jobs: members reach each other, Glue's condition for a
        connection, and whatever answers on HTTPS or Kafka ports.
    """

    def __init__(self, scope: Construct, *, names: Names, logs_key: kms.IKey) -> None:
        super().__init__(
            scope,
            names=names,
            part="network",
            stateful=True,
            description=f"Network of {names.prefix}",
        )
        network = names.environment.network
        self.subnets: tuple[ec2.ISubnet, ...]
        if network.vpc is None:
            owned = self._own_vpc(logs_key)
            self.vpc: ec2.IVpc = owned
            self.subnets = tuple(owned.isolated_subnets)
        else:
            # Nothing is looked up, so that a synthesis needs no credentials: zones and route tables
            # stay unknown. Whoever asks for a subnet's zone gets a property that is left out.
            self.vpc = ec2.Vpc.from_vpc_attributes(
                self, "Vpc", vpc_id=network.vpc, availability_zones=self.availability_zones
            )
            self.subnets = tuple(
                ec2.Subnet.from_subnet_attributes(
                    self,
                    subnet,
                    subnet_id=subnet,
                    availability_zone=Aws.NO_VALUE,
                    route_table_id=Aws.NO_VALUE,
                )
                for subnet in network.subnets
            )
        self.workers = self._workers()
        if network.vpc is None:
            self._endpoints()
        CfnOutput(self, "VpcId", value=self.vpc.vpc_id)
        CfnOutput(self, "WorkersSecurityGroup", value=self.workers.security_group_id)

    def _own_vpc(self, logs_key: kms.IKey) -> ec2.Vpc:
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(self.names.environment.network.cidr),
            availability_zones=self.availability_zones,
            nat_gateways=0,
            subnet_configuration=[
                ec2.SubnetConfiguration(name="Private", subnet_type=ec2.SubnetType.PRIVATE_ISOLATED)
            ],
            # Closing the default group takes a Lambda function, and nothing here uses that group.
            restrict_default_security_group=False,
        )
        group = EncryptedLogGroup(
            self,
            "FlowLogs",
            environment=self.names.environment,
            name=f"/{self.names.prefix}/flow-logs",
            key=logs_key,
        )
        vpc.add_flow_log("FlowLog", destination=ec2.FlowLogDestination.to_cloud_watch_logs(group))
        return vpc

    def _workers(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "Workers",
            vpc=self.vpc,
            description=f"Jobs of {self.names.prefix}",
            allow_all_outbound=False,
        )
        group.add_ingress_rule(group, ec2.Port.all_tcp(), "Spark between driver and executors")
        group.add_egress_rule(group, ec2.Port.all_tcp(), "Spark between driver and executors")
        # S3's gateway is reached by public addresses, whose list only a look-up would tell.
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "AWS services")
        for port in kafka_ports(self.names.environment):
            group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "Kafka brokers")
        return group

    def _endpoints(self) -> None:
        account_only = {"StringEquals": {"aws:PrincipalAccount": self.account}}
        gateway = self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        gateway.add_to_policy(
            iam.PolicyStatement(
                sid="OwnBuckets",
                principals=[iam.AnyPrincipal()],
                actions=["s3:*"],
                resources=["*"],
                conditions={
                    "StringEquals": {
                        "aws:PrincipalAccount": self.account,
                        "aws:ResourceAccount": self.account,
                    }
                },
            )
        )
        gateway.add_to_policy(
            iam.PolicyStatement(
                sid="EngineBuckets",
                principals=[iam.AnyPrincipal()],
                actions=["s3:GetObject"],
                resources=[
                    bucket.format(partition=self.partition, region=self.region)
                    for bucket in _AWS_OWNED_BUCKETS
                ],
            )
        )
        group = ec2.SecurityGroup(
            self,
            "Endpoints",
            vpc=self.vpc,
            description=f"Endpoints of AWS services in {self.names.prefix}",
            allow_all_outbound=False,
        )
        group.add_ingress_rule(self.workers, ec2.Port.tcp(HTTPS), "Jobs")
        for construct_id, service in interface_endpoints(self.names.environment).items():
            endpoint = self.vpc.add_interface_endpoint(
                construct_id,
                service=service,
                subnets=ec2.SubnetSelection(subnets=list(self.subnets)),
                security_groups=[group],
                open=False,
            )
            endpoint.add_to_policy(
                iam.PolicyStatement(
                    sid="OwnAccount",
                    principals=[iam.AnyPrincipal()],
                    actions=["*"],
                    resources=["*"],
                    conditions=account_only,
                )
            )


def interface_endpoints(environment: Environment) -> dict[str, ec2.InterfaceVpcEndpointAwsService]:
    """Return the services that the environment's jobs call, by construct id.

    Each costs by the hour and zone, so a service that no job calls has no endpoint.
    """
    services = ec2.InterfaceVpcEndpointAwsService
    found = {
        "Logs": services.CLOUDWATCH_LOGS,
        "Monitoring": services.CLOUDWATCH_MONITORING,
        "Kms": services.KMS,
        "Sts": services.STS,
        "Glue": services.GLUE,
    }
    if any(isinstance(stream, KinesisStream) for stream in environment.streams.values()):
        found["Kinesis"] = services.KINESIS_STREAMS
    if any(isinstance(cluster, MskCluster) for cluster in environment.kafka.values()):
        found["Kafka"] = services("kafka")
    return found


def kafka_ports(environment: Environment) -> tuple[int, ...]:
    """Return the ports on which the environment's Kafka brokers listen."""
    ports: set[int] = set()
    for cluster in environment.kafka.values():
        if isinstance(cluster, ExternalCluster):
            ports |= {int(server.rpartition(":")[2]) for server in cluster.bootstrap_servers.split(",")}
        else:
            ports.add(MSK_IAM_PORT)
    return tuple(sorted(ports))
