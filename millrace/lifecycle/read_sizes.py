"""Sizes of what is deployed, read from the deployed templates for the plan."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millrace.config.deployed_sizes import DeployedCluster, DeployedSizes
from millrace.config.names import Names
from millrace.lifecycle.deployed_stacks import deployed_template
from millrace.lifecycle.deployment_changes import of_type
from millrace.lifecycle.problems import translate_aws_errors
from millrace.lifecycle.state_machine import Aws
from millrace.lifecycle.update_rules import Template, at


def read_sizes(aws: Aws) -> DeployedSizes:
    """Read the sizes of an environment's deployed clusters, topics and network.

    Raises
    ------
    AwsError
        AWS refused a request.
    """
    cloudformation, names = aws.client("cloudformation"), aws.names
    with translate_aws_errors("reading the deployed sizes"):
        kafka, network = (
            deployed_template(cloudformation, names.stack(part)) for part in ("kafka", "network")
        )
    return sizes(names, kafka or {}, network or {})


def sizes(names: Names, kafka: Template, network: Template) -> DeployedSizes:
    """Find sizes in the templates of an environment's clusters and of its network."""
    clusters = _by(of_type(kafka, "AWS::MSK::Cluster"), "ClusterName")
    topics = _by(of_type(kafka, "AWS::MSK::Topic"), "TopicName")
    own = {name: topics.get(names.stream(name)) for name in names.environment.streams}
    partitions = {name: int(topic["PartitionCount"]) for name, topic in own.items() if topic is not None}
    found = {}
    for name in names.environment.kafka:
        cluster = clusters.get(names.cluster(name)) if names.cluster_arn(name) else None
        if cluster is not None:
            copies = [
                int(topic["ReplicationFactor"])
                for stream, topic in own.items()
                if topic is not None and names.environment.streams[stream].cluster_name == name
            ]
            found[name] = DeployedCluster(
                brokers=int(cluster["NumberOfBrokerNodes"]),
                broker_type=at(cluster, "BrokerNodeGroupInfo/InstanceType"),
                storage_gib=at(cluster, "BrokerNodeGroupInfo/StorageInfo/EBSStorageInfo/VolumeSize"),
                replication=max(copies, default=None),
            )
    subnets = len(of_type(network, "AWS::EC2::Subnet"))
    # A public subnet in each zone holds its gateway.
    zones = subnets // 2 if of_type(network, "AWS::EC2::NatGateway") else subnets
    return DeployedSizes(found, partitions, zones or None)


def _by(resources: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {each["Properties"].get(key): each["Properties"] for each in resources.values()}
