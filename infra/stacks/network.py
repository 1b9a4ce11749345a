"""Network of the jobs: a VPC, the endpoints or gateways through which jobs reach AWS, their security group."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import IPv4Network

from aws_cdk import Aws, CfnOutput
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_route53resolver as route53resolver
from constructs import Construct

from millrace.config.aws.foreign_accounts_and_hosts import ports_of_urls
from millrace.config.aws.iam_statements import allow
from millrace.config.aws.resource_names import Names
from millrace.config.base import arn_region_account_resource
from millrace.config.model import Environment, ExternalCluster
from millrace.sizing.costs.endpoints_or_nat_gateways import domains_to_resolve
from millrace.sizing.plan_model import NetworkPlan

from ..constructs.job_role import JobRole
from ..constructs.log_groups import EncryptedLogGroup
from .base import EnvironmentStack

HTTPS = 443
MSK_PORTS = {"iam": 9098, "scram-sha-512": 9096, "mutual-tls": 9094, "tls": 9094, "none": 9092}
"""Brokers' port inside AWS for each kind of authentication (MSK developer guide, "Port information")."""

_AWS_OWNED_BUCKETS = (
    # Glue reads its own libraries (the bucket that its developer guide and images name), EMR Serverless what its user
    # interface and logs need. Not `aws-glue-*`: anybody may own a bucket of such a name.
    "arn:{partition}:s3:::aws-glue-jes-prod-{region}-assets/*",
    "arn:{partition}:s3:::prod.{region}.appinfo.src/*",
)
_IMAGE_LAYERS = "arn:{partition}:s3:::prod-{region}-starport-layer-bucket/*"
"""Bucket of the layers of ECR's images (ECR user guide, "VPC endpoints")."""

_ENDPOINT_IDS = {
    "kinesis-streams": "Kinesis",
    "secretsmanager": "SecretsManager",
    "aps-workspaces": "Prometheus",
    "ecr.dkr": "EcrDocker",
}
"""Construct ids of endpoints whose service has a name that reads badly in PascalCase."""

_PRIVATE = "Private"
_PUBLIC_MASK = 28
"""The smallest possible subnet: it holds one NAT gateway."""


class NetworkStack(EnvironmentStack):
    """The VPC, made here or existing, and the security group of every job.

    Attributes
    ----------
    vpc
        The VPC.
    subnets
        Private subnets for jobs and brokers, in as many zones as the environment asks for.
    workers
        Security group of all jobs: members reach everything on the ports of HTTPS, Kafka and databases, but not each
        other; endpoints and brokers admit it. Each job has another group, inside which its workers reach each other.
    endpoints
        Security group of the interface endpoints, made even where there are no endpoints; ``None`` in an
        existing VPC.
    """

    def __init__(self, scope: Construct, *, names: Names, plan: NetworkPlan, logs_key: kms.IKey) -> None:
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
            owned = self._add_vpc(logs_key, nat=plan.egress.value == "nat")
            self.vpc: ec2.IVpc = owned
            self.subnets = self._private_subnets_in_zones(owned)
        else:
            # Nothing is looked up, so that a synthesis needs no credentials: zones and route tables stay
            # unknown. A subnet's zone is then a property that is left out.
            self.vpc = ec2.Vpc.from_vpc_attributes(
                self, "Vpc", vpc_id=network.vpc, availability_zones=self.availability_zones
            )
            self.subnets = tuple(
                ec2.Subnet.from_subnet_attributes(
                    self,
                    subnet,
                    subnet_id=subnet,
                    availability_zone=network.zones.get(subnet, Aws.NO_VALUE),
                    route_table_id=Aws.NO_VALUE,
                )
                for subnet in network.subnets
            )
        self.workers = self._add_worker_security_group()
        self.endpoints: ec2.SecurityGroup | None = None
        if network.vpc is None:
            self._add_s3_gateway()
            if any("dynamodb" in sink.gateways for sink in self.names.environment.sinks):
                self.vpc.add_gateway_endpoint(
                    "DynamoDb", service=ec2.GatewayVpcEndpointAwsService.DYNAMODB
                ).add_to_policy(
                    _endpoint_policy_statement(
                        "OwnAccount", ["dynamodb:*"], ["*"], {"aws:PrincipalAccount": self.account}
                    )
                )
            # With NAT gateways, too: another stack uses it while the egress changes.
            self.endpoints = self._add_endpoint_security_group()
            if plan.egress.value == "endpoints":
                self._add_endpoints(plan, self.endpoints)
            if network.allowed_domains is not None:
                self._add_dns_firewall()
        self.export_permanently(
            self.vpc.vpc_id,
            self.workers.security_group_id,
            *(subnet.subnet_id for subnet in self.subnets),
            *(() if self.endpoints is None else (self.endpoints.security_group_id,)),
        )
        CfnOutput(self, "VpcId", value=self.vpc.vpc_id)
        CfnOutput(self, "WorkersSecurityGroup", value=self.workers.security_group_id)

    def _add_vpc(self, logs_key: kms.IKey, *, nat: bool) -> ec2.Vpc:
        network = self.names.environment.network
        subnets = [
            ec2.SubnetConfiguration(
                name=_PRIVATE,
                subnet_type=ec2.SubnetType.PRIVATE_WITH_EGRESS if nat else ec2.SubnetType.PRIVATE_ISOLATED,
                # A quarter of the range each, with or without gateways: when a new plan finds the other egress
                # cheaper, the subnets of jobs and brokers must not be replaced.
                cidr_mask=IPv4Network(network.cidr).prefixlen + 2,
            )
        ]
        if nat:
            subnets.append(
                ec2.SubnetConfiguration(
                    name="Public",
                    subnet_type=ec2.SubnetType.PUBLIC,
                    cidr_mask=_PUBLIC_MASK,
                    map_public_ip_on_launch=False,
                )
            )
        vpc = ec2.Vpc(
            self,
            "Vpc",
            ip_addresses=ec2.IpAddresses.cidr(network.cidr),
            availability_zones=self.availability_zones,
            # One in each zone: a zone that fails takes only its own egress with it.
            nat_gateways=self.names.environment.zone_count if nat else 0,
            subnet_configuration=subnets,
            # Closing the default group takes a Lambda function, and nothing here uses that group.
            restrict_default_security_group=False,
        )
        group = EncryptedLogGroup(
            self,
            "FlowLogs",
            environment=self.names.environment,
            name=f"/{self.names.prefix}/flow-logs",
            key=logs_key,
            stays=True,
        )
        vpc.add_flow_log(
            "FlowLog",
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(
                group, self._existing_or_new_flow_logs_role(group)
            ),
        )
        return vpc

    def _add_dns_firewall(self) -> None:
        """Refuse all names but the allowed ones: who owns a domain reads what is asked for below it."""
        allowed = list(domains_to_resolve(self.names.environment))
        lists = (("Allowed", "ALLOW", allowed), ("Others", "BLOCK", ["*"]))
        rules = []
        for number, (title, action, domains) in enumerate(lists, start=1):
            listed = route53resolver.CfnFirewallDomainList(self, f"{title}Domains", domains=domains)
            rules.append(
                route53resolver.CfnFirewallRuleGroup.FirewallRuleProperty(
                    action=action,
                    block_response="NXDOMAIN" if action == "BLOCK" else None,
                    firewall_domain_list_id=listed.attr_id,
                    # Services of AWS answer with aliases outside of their own domain.
                    firewall_domain_redirection_action="TRUST_REDIRECTION_DOMAIN"
                    if action == "ALLOW"
                    else None,
                    priority=number,
                )
            )
        group = route53resolver.CfnFirewallRuleGroup(self, "DnsRules", firewall_rules=rules)
        route53resolver.CfnFirewallRuleGroupAssociation(
            self,
            "DnsFirewall",
            firewall_rule_group_id=group.attr_id,
            vpc_id=self.vpc.vpc_id,
            # From 101: those below are Firewall Manager's (botocore's model of AssociateFirewallRuleGroup).
            priority=101,
        )

    def _private_subnets_in_zones(self, vpc: ec2.Vpc) -> tuple[ec2.ISubnet, ...]:
        """Return the private subnets, each in the zone that the environment names for it."""
        private = tuple(vpc.select_subnets(subnet_group_name=_PRIVATE).subnets)
        zones = self.names.environment.network.zone_ids
        if not zones:
            return private
        placed = []
        for number, zone in enumerate(zones):
            for subnet in (private[number], *vpc.public_subnets[number : number + 1]):
                resource = subnet.node.default_child
                assert isinstance(resource, ec2.CfnSubnet)
                resource.availability_zone = None
                resource.availability_zone_id = zone
            made = private[number].node.default_child
            assert isinstance(made, ec2.CfnSubnet)
            # The construct would give Glue the name of the zone that it would have chosen.
            placed.append(
                ec2.Subnet.from_subnet_attributes(
                    self,
                    f"Zone{number + 1}",
                    subnet_id=private[number].subnet_id,
                    availability_zone=made.attr_availability_zone,
                    route_table_id=private[number].route_table.route_table_id,
                )
            )
        return tuple(placed)

    def _existing_or_new_flow_logs_role(self, group: EncryptedLogGroup) -> iam.IRole:
        own = self.names.environment.network.flow_logs_role
        if own is not None:
            return iam.Role.from_role_arn(self, "FlowLogsRole", own, mutable=False)
        # CDK's own role for this trusts the service on behalf of any account (VPC user guide,
        # "IAM role for publishing flow logs to CloudWatch Logs", names the two conditions).
        role = JobRole(
            self,
            "FlowLogsRole",
            service="vpc-flow-logs.amazonaws.com",
            account=self.names.account,
            source_arn=f"arn:{self.names.aws_partition}:ec2:{self.names.environment.region}:{self.names.account}:vpc-flow-log/*",
            description=f"Writes the flow logs of {self.names.prefix}",
            grants=[
                allow(
                    "WriteFlows",
                    ["logs:CreateLogStream", "logs:DescribeLogStreams", "logs:PutLogEvents"],
                    [group.log_group_arn],
                )
            ],
        )
        return role.without_policy_updates()

    def _add_worker_security_group(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "Workers",
            vpc=self.vpc,
            description=f"Jobs of {self.names.prefix}",
            allow_all_outbound=False,
        )
        # S3's gateway has public addresses; only a look-up would give their list.
        group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(HTTPS), "AWS services")
        for port in kafka_ports(self.names.environment):
            group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "Kafka brokers")
        for port in server_ports_without_kafka(self.names.environment):
            group.add_egress_rule(ec2.Peer.any_ipv4(), ec2.Port.tcp(port), "Databases")
        return group

    def _add_s3_gateway(self) -> None:
        environment = self.names.environment
        gateway = self.vpc.add_gateway_endpoint("S3", service=ec2.GatewayVpcEndpointAwsService.S3)
        own = {"aws:PrincipalAccount": self.account}
        gateway.add_to_policy(
            _endpoint_policy_statement(
                "OwnBuckets", ["s3:*"], ["*"], own | {"aws:ResourceAccount": self.account}
            )
        )
        engines = [*_AWS_OWNED_BUCKETS, *[_IMAGE_LAYERS] * (environment.history is not None)]
        gateway.add_to_policy(
            _endpoint_policy_statement(
                "EngineBuckets",
                ["s3:GetObject"],
                [bucket.format(partition=self.partition, region=self.region) for bucket in engines],
            )
        )
        # Buckets and tables that exist already may be in another account.
        arns = [f"arn:{self.partition}:s3:::{name}" for name in environment.storage.buckets.values()]
        if arns:
            gateway.add_to_policy(
                _endpoint_policy_statement(
                    "GivenBuckets", ["s3:*"], [*arns, *(f"{bucket}/*" for bucket in arns)], own
                )
            )
        places = [table.location.removeprefix("s3://") for table in environment.tables.values()]
        if places:
            buckets = sorted({place.split("/", 1)[0] for place in places})
            gateway.add_to_policy(
                _endpoint_policy_statement(
                    "GivenTables",
                    ["s3:GetObject", "s3:ListBucket"],
                    [
                        *(f"arn:{self.partition}:s3:::{bucket}" for bucket in buckets),
                        *(f"arn:{self.partition}:s3:::{place.rstrip('/')}/*" for place in places),
                    ],
                    own,
                )
            )

    def _add_endpoint_security_group(self) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "Endpoints",
            vpc=self.vpc,
            description=f"Endpoints of AWS services in {self.names.prefix}",
            allow_all_outbound=False,
        )
        group.add_ingress_rule(self.workers, ec2.Port.tcp(HTTPS), "Jobs")
        return group

    def _add_endpoints(self, plan: NetworkPlan, group: ec2.SecurityGroup) -> None:
        # A role of another account, assumed to read its stream, is a principal of that account.
        roles = [
            (stream.cross_account_role, stream.services)
            for stream in self.names.environment.streams.values()
            if stream.cross_account_role is not None
        ]
        accounts = sorted({self.account, *(arn_region_account_resource(role)[1] for role, _ in roles)})
        lent = {service for _, services in roles for service in services}
        for service in plan.services:
            endpoint = self.vpc.add_interface_endpoint(
                _ENDPOINT_IDS.get(
                    service, service.replace(".", " ").replace("-", " ").title().replace(" ", "")
                ),
                service=ec2.InterfaceVpcEndpointAwsService(service),
                subnets=ec2.SubnetSelection(subnets=list(self.subnets)),
                security_groups=[group],
                open=False,
            )
            principals: str | list[str] = accounts if service in lent and len(accounts) > 1 else self.account
            endpoint.add_to_policy(
                _endpoint_policy_statement("OwnAccount", ["*"], ["*"], {"aws:PrincipalAccount": principals})
            )


def _endpoint_policy_statement(
    sid: str, actions: list[str], resources: list[str], equals: Mapping[str, str | list[str]] | None = None
) -> iam.PolicyStatement:
    return iam.PolicyStatement(
        sid=sid,
        principals=[iam.AnyPrincipal()],
        actions=actions,
        resources=resources,
        conditions=None if equals is None else {"StringEquals": equals},
    )


def server_ports_without_kafka(environment: Environment) -> tuple[int, ...]:
    """Return the ports of the servers that jobs call, such as databases and schema registries, without Kafka's brokers."""
    tree = environment.value_locations.tree
    jobs = None if tree is None else tree.child("jobs")
    ports = {port for _, value in jobs.leaves for port in ports_of_urls(value)} if jobs else set()
    ports |= {port for sink in environment.sinks for port in sink.ports_outside_vpc}
    ports |= {port for stream in environment.streams.values() for port in stream.ports_outside_vpc}
    return tuple(sorted(ports))


def kafka_ports(environment: Environment) -> tuple[int, ...]:
    """Return the ports on which the environment's Kafka brokers listen."""
    ports: set[int] = set()
    for cluster in environment.kafka.values():
        if isinstance(cluster, ExternalCluster):
            ports |= {int(server.rpartition(":")[2]) for server in cluster.bootstrap_servers.split(",")}
        else:
            ports.add(MSK_PORTS[cluster.authentication.kind])
    return tuple(sorted(ports))
