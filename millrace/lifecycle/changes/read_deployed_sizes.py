"""Sizes of what is deployed, read from the deployed templates for the plan."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from millrace.config.aws.deployed_sizes_to_keep import DeployedCluster, DeployedSizes
from millrace.config.aws.resource_names import Names
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.lifecycle.changes.deployment_changes import resources_of_type
from millrace.lifecycle.changes.refused_updates import Template, property_at
from millrace.lifecycle.changes.undeclared_stacks import deployed_template

_NOT_DUE = "NotDue"
_MODES = {"PROVISIONED": "provisioned", "ON_DEMAND": "on-demand", None: "provisioned"}


def read_deployed_sizes(aws: DeployedEnvironment) -> DeployedSizes:
    """Read the sizes of an environment's deployed clusters, topics, network and jobs.

    Raises
    ------
    AwsError
        AWS refused a request.
    """
    cloudformation, names = aws.client("cloudformation"), aws.names
    jobs = names.environment.jobs
    with translating_aws_errors("cannot read the deployed sizes"):
        kafka, network, streams, *own = (
            deployed_template(cloudformation, names.stack(part))
            for part in ("kafka", "network", "streams", *(f"job-{job}" for job in jobs))
        )
    by_job = dict(zip(jobs, own, strict=True))
    return sizes_in_templates(names, kafka or {}, network or {}, streams or {}, by_job)


def sizes_in_templates(
    names: Names, kafka: Template, network: Template, streams: Template, jobs: Mapping[str, Template | None]
) -> DeployedSizes:
    """Find sizes in the templates of an environment's clusters, of its network, streams and jobs."""
    clusters = _resource_properties_by_value(resources_of_type(kafka, "AWS::MSK::Cluster"), "ClusterName")
    topics = _resource_properties_by_value(resources_of_type(kafka, "AWS::MSK::Topic"), "TopicName")
    own = {name: topics.get(names.stream(name)) for name in names.environment.streams}
    partitions = {name: int(topic["PartitionCount"]) for name, topic in own.items() if topic is not None}
    result = {}
    for name in names.environment.kafka:
        cluster = clusters.get(names.cluster(name)) if names.cluster_arn(name) else None
        if cluster is not None:
            copies = [
                int(topic["ReplicationFactor"])
                for stream, topic in own.items()
                if topic is not None and names.environment.streams[stream].cluster_name == name
            ]
            result[name] = DeployedCluster(
                brokers=int(cluster["NumberOfBrokerNodes"]),
                broker_type=property_at(cluster, "BrokerNodeGroupInfo/InstanceType"),
                storage_gib=property_at(cluster, "BrokerNodeGroupInfo/StorageInfo/EBSStorageInfo/VolumeSize"),
                replication=max(copies, default=None),
            )
    subnets = len(resources_of_type(network, "AWS::EC2::Subnet"))
    # A public subnet in each zone holds its gateway.
    zones = subnets // 2 if resources_of_type(network, "AWS::EC2::NatGateway") else subnets
    # Only a job in a VPC has a security group.
    inside = {
        job: bool(resources_of_type(each, "AWS::EC2::SecurityGroup")) for job, each in jobs.items() if each
    }
    # A state of the machines of jobs with bounded runs alone.
    in_turns = {job: _NOT_DUE in json.dumps(each) for job, each in jobs.items() if each}
    named = _resource_properties_by_value(resources_of_type(streams, "AWS::Kinesis::Stream"), "Name")
    modes = {
        name: _MODES[property_at(named[names.stream(name)], "StreamModeDetails/StreamMode")]
        for name in names.environment.streams
        if names.stream(name) in named
    }
    return DeployedSizes(result, partitions, zones or None, inside, in_turns, modes)


def _resource_properties_by_value(resources: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {each["Properties"].get(key): each["Properties"] for each in resources.values()}
