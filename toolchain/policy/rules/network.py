"""Addresses, routes, endpoints, security groups."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from toolchain.policy.rules._policy import (
    Fault,
    PolicyRule,
    Resource,
    allowed,
    condition_keys,
    listed,
    properties,
    refers_to,
)

ANYWHERE = ("0.0.0.0/0", "::/0")


class NoPublicAddress(PolicyRule):
    """Checkov looks at instances and not at what launches them."""

    id = "E9501"
    shortdesc = "Nothing has a public address"
    description = (
        "Subnets, interfaces, tasks and load balancers ask for none; an elastic address is a NAT gateway's"
    )
    source_url = "https://docs.aws.amazon.com/vpc/latest/userguide/vpc-security-best-practices.html"
    kinds = (
        "AWS::EC2::Subnet",
        "AWS::EC2::EIP",
        "AWS::EC2::Instance",
        "AWS::ECS::Service",
        "AWS::ElasticLoadBalancingV2::LoadBalancer",
    )

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Ask each type in its own words."""
        kind = found.kind.rsplit("::", 1)[1]
        if kind == "Subnet" and found.value("MapPublicIpOnLaunch") is not False:
            # A subnet in which a NAT gateway stands maps none either: the gateway brings its own.
            yield properties("MapPublicIpOnLaunch"), "MapPublicIpOnLaunch is not false"
        elif kind == "EIP" and not any(
            refers_to(gateway.value("AllocationId"), found.name)
            for gateway in found.others("AWS::EC2::NatGateway")
        ):
            yield properties(), "an elastic address that is no NAT gateway's"
        elif kind == "Instance":
            yield properties(), "an instance of our own: jobs are serverless"
        elif kind == "Service":
            vpc = found.value("NetworkConfiguration", "AwsvpcConfiguration") or {}
            if vpc.get("AssignPublicIp", "DISABLED") != "DISABLED":
                yield properties("NetworkConfiguration"), "AssignPublicIp is enabled"
        elif kind == "LoadBalancer" and found.value("Scheme") != "internal":
            yield properties("Scheme"), "Scheme is not internal"


class NoWayIn(PolicyRule):
    """Private is what no route from the internet reaches."""

    id = "E9502"
    shortdesc = "Subnets of jobs have no route to an internet gateway"
    description = "Only the route table of a NAT gateway's subnet may lead there"
    source_url = "https://docs.aws.amazon.com/vpc/latest/userguide/configure-subnets.html"
    kinds = ("AWS::EC2::Route",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Follow route, table, association and subnet to a NAT gateway."""
        if found.value("GatewayId") is None and found.value("EgressOnlyInternetGatewayId") is None:
            return
        subnets = [
            association.value("SubnetId")
            for association in found.others("AWS::EC2::SubnetRouteTableAssociation")
            if association.value("RouteTableId") == found.value("RouteTableId")
        ]
        gateways = [gateway.value("SubnetId") for gateway in found.others("AWS::EC2::NatGateway")]
        if not subnets or not all(subnet in gateways for subnet in subnets):
            yield properties("GatewayId"), "a subnet without a NAT gateway leads to the internet"


class FlowsAreLogged(PolicyRule):
    """Checkov checks flow logs in Terraform only."""

    id = "E9503"
    shortdesc = "A VPC has a flow log of all traffic"
    description = "A flow log with TrafficType ALL refers to each VPC"
    source_url = "https://docs.aws.amazon.com/vpc/latest/userguide/flow-logs.html"
    kinds = ("AWS::EC2::VPC",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Look for it."""
        if not any(
            refers_to(log.value("ResourceId"), found.name) and log.value("TrafficType") == "ALL"
            for log in found.others("AWS::EC2::FlowLog")
        ):
            yield properties(), "it has none"


class EndpointServesOwnAccount(PolicyRule):
    """Without a policy an endpoint carries data to any account of the service."""

    id = "E9504"
    shortdesc = "An endpoint serves this account only, by its private name"
    description = "Each statement asks for the caller's account; without that it only reads objects of buckets that it names"
    source_url = "https://docs.aws.amazon.com/vpc/latest/privatelink/vpc-endpoints-access.html"
    kinds = ("AWS::EC2::VPCEndpoint",)

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read the policy."""
        statements = list(allowed(found.value("PolicyDocument")))
        if not statements:
            yield properties(), "no PolicyDocument"
        for index, statement in statements:
            # Anybody may own a bucket whose name begins like one of AWS's.
            named = not any("*" in _bucket(each) for each in listed(statement.get("Resource")))
            reads = set(listed(statement.get("Action"))) <= {"s3:GetObject"}
            if "aws:principalaccount" not in condition_keys(statement) and not (named and reads):
                yield properties("PolicyDocument"), f"statement {index} asks for no aws:PrincipalAccount"
            # Whoever may write to S3 here could write to a bucket of anybody's.
            gateway = found.value("VpcEndpointType") == "Gateway"
            if gateway and not reads and "aws:resourceaccount" not in condition_keys(statement):
                yield properties("PolicyDocument"), f"statement {index} asks for no aws:ResourceAccount"
        if found.value("VpcEndpointType") == "Interface":
            if found.value("PrivateDnsEnabled") is not True:
                yield properties("PrivateDnsEnabled"), "its private name is off"
            if not listed(found.value("SecurityGroupIds")):
                yield properties(), "no security group"


def _bucket(resource: Any) -> str:
    """Return the name of a bucket in its ARN, or all of a resource without one."""
    return str(resource).rpartition(":::")[2].split("/")[0]


class GroupsReferToGroups(PolicyRule):
    """Checkov asks about ports 22, 80 and 3389 only."""

    id = "E9505"
    shortdesc = "Security groups let groups in, and out by single ports"
    description = (
        "Ingress names a group, and another one with one port, or for a load balancer one port and some addresses; "
        "egress to anywhere is TCP to one port"
    )
    source_url = "https://docs.aws.amazon.com/vpc/latest/userguide/security-group-rules.html"
    kinds = ("AWS::EC2::SecurityGroup", "AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")

    def faults(self, found: Resource) -> Iterator[Fault]:
        """Read rules that are written in the group and those that stand alone."""
        kind = found.kind.rsplit("::", 1)[1]
        own = found.body.get("Properties", {})
        ingress = [own] if kind == "SecurityGroupIngress" else listed(own.get("SecurityGroupIngress"))
        egress = [own] if kind == "SecurityGroupEgress" else listed(own.get("SecurityGroupEgress"))
        if kind == "SecurityGroup" and not egress and not self._egress_of(found):
            # EC2 adds a rule to anywhere when a group is made with none.
            yield properties("SecurityGroupEgress"), "everything may go out"
        people = any(
            refers_to(balancer.value("SecurityGroups"), found.name)
            for balancer in found.others("AWS::ElasticLoadBalancingV2::LoadBalancer")
        )
        for rule in ingress:
            from_where = rule.get("CidrIp") or rule.get("CidrIpv6")
            # People have no security group: they reach a load balancer, by one port, from inside.
            if from_where and not (people and from_where not in ANYWHERE and _one_port(rule)):
                yield properties(), f"addresses may come in: {from_where}"
            elif (
                not from_where
                and not _one_port(rule)
                and rule.get("SourceSecurityGroupId") != rule.get("GroupId")
            ):
                yield properties(), "another group may come in by many ports"
        for rule in egress:
            far = rule.get("CidrIp") in ANYWHERE or rule.get("CidrIpv6") in ANYWHERE
            if far and not _one_port(rule):
                yield properties(), "more than one port to anywhere"

    @staticmethod
    def _egress_of(found: Resource) -> bool:
        return any(
            refers_to(rule.value("GroupId"), found.name)
            for rule in found.others("AWS::EC2::SecurityGroupEgress")
        )


def _one_port(rule: dict[str, Any]) -> bool:
    return rule.get("IpProtocol") == "tcp" and rule.get("FromPort") == rule.get("ToPort") is not None
