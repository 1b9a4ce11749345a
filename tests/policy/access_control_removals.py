"""Security controls of access: network, permissions, history server."""

from __future__ import annotations

from typing import Any

from tests.policy.template_mutations import Mutation, Put, Remove

ROLE = "AWS::IAM::Role"
POLICY = "AWS::IAM::Policy"
ENDPOINT = "AWS::EC2::VPCEndpoint"

STATEMENTS = ("Properties", "PolicyDocument", "Statement")
TRUST = ("Properties", "AssumeRolePolicyDocument", "Statement")
ALLOW: dict[str, Any] = {"Effect": "Allow"}
ANYWHERE = "0.0.0.0/0"
ALL_TRAFFIC = {"CidrIp": ANYWHERE, "Description": "one more", "IpProtocol": "-1"}

NETWORK = (
    Mutation(
        "subnet: no public addresses", "AWS::EC2::Subnet", ("Properties", "MapPublicIpOnLaunch"), Put(True)
    ),
    Mutation("VPC: flow log", "AWS::EC2::FlowLog", (), Remove()),
    Mutation(
        "VPC: flow log of all traffic", "AWS::EC2::FlowLog", ("Properties", "TrafficType"), Put("REJECT")
    ),
    Mutation(
        "VPC: no way in",
        "AWS::EC2::RouteTable",
        ("Properties", "Tags"),
        Remove(),
        beside={
            "Open": {
                "Type": "AWS::EC2::Route",
                "Properties": {
                    "RouteTableId": {"Ref": "ANCHOR"},
                    "DestinationCidrBlock": ANYWHERE,
                    "GatewayId": "igw-0123456789abcdef0",
                },
            }
        },
    ),
    Mutation(
        "VPC: no elastic address",
        "AWS::EC2::VPC",
        ("Properties", "Tags"),
        Remove(),
        beside={"Open": {"Type": "AWS::EC2::EIP", "Properties": {"Domain": "vpc"}}},
    ),
    Mutation("endpoint: policy", ENDPOINT, ("Properties", "PolicyDocument"), Remove()),
    Mutation(
        "endpoint: this account's callers",
        ENDPOINT,
        (*STATEMENTS, {"Condition": {}}, "Condition", "StringEquals", "aws:PrincipalAccount"),
        Remove(),
    ),
    Mutation(
        "endpoint: this account's buckets",
        ENDPOINT,
        (*STATEMENTS, {"Condition": {}}, "Condition", "StringEquals", "aws:ResourceAccount"),
        Remove(),
    ),
    Mutation(
        "endpoint: whole names of AWS's buckets",
        ENDPOINT,
        (*STATEMENTS, {"Sid": "EngineBuckets"}, "Resource"),
        Put(["arn:aws:s3:::aws-glue-*/*"]),
    ),
    Mutation("endpoint: private name", ENDPOINT, ("Properties", "PrivateDnsEnabled"), Remove()),
    Mutation(
        "security group: in from groups only",
        "AWS::EC2::SecurityGroupIngress",
        ("Properties",),
        Put(
            {
                "Description": "one more",
                "GroupId": "sg-1",
                "IpProtocol": "tcp",
                "FromPort": 443,
                "ToPort": 443,
                "CidrIp": "10.0.0.0/8",
            }
        ),
    ),
    Mutation(
        "security group: many ports inside one group only",
        "AWS::EC2::SecurityGroupIngress",
        ("Properties", "SourceSecurityGroupId"),
        Put("sg-1"),
        ("Groupfrom",),
    ),
    Mutation(
        "security group: closed to the world",
        "AWS::EC2::SecurityGroup",
        ("Properties", "SecurityGroupIngress"),
        Put([ALL_TRAFFIC]),
    ),
    Mutation(
        "security group: out by single ports",
        "AWS::EC2::SecurityGroup",
        ("Properties", "SecurityGroupEgress"),
        Put([ALL_TRAFFIC]),
    ),
)

PERMISSIONS = (
    Mutation("role: trust tied to this account", ROLE, (*TRUST, {"Condition": {}}, "Condition"), Remove()),
    Mutation(
        "role: trust in services only",
        ROLE,
        (*TRUST, {}, "Principal"),
        Put({"AWS": "arn:aws:iam::999999999999:root"}),
    ),
    Mutation(
        "role: no managed policy",
        ROLE,
        ("Properties", "ManagedPolicyArns"),
        Put(["arn:aws:iam::aws:policy/AdministratorAccess"]),
    ),
    Mutation(
        "role: no policy inside",
        ROLE,
        ("Properties", "Policies"),
        Put(
            [
                {
                    "PolicyName": "All",
                    "PolicyDocument": {
                        "Version": "2012-10-17",
                        "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}],
                    },
                }
            ]
        ),
    ),
    Mutation("permission: named actions", POLICY, (*STATEMENTS, ALLOW, "Action"), Put("*")),
    Mutation(
        "permission: actions of a service",
        POLICY,
        (*STATEMENTS, {"Action": "s3:PutObject"}, "Action"),
        Put("s3:*"),
    ),
    *(
        Mutation(f"permission: {what}", POLICY, (*STATEMENTS, {"Action": action}, "Resource"), Put(resource))
        for what, action, resource in (
            ("the job's prefixes", "s3:PutObject", "arn:aws:s3:::flights-prod-lake/*"),
            ("the environment's buckets", "s3:GetObject", "arn:aws:s3:::*/*"),
            (
                "the job's own assets",
                "s3:GetObject",
                "arn:aws:s3:::cdk-hnb659fds-assets-444455556666-us-east-1/*",
            ),
            ("the job's streams", "kinesis:GetRecords", "arn:aws:kinesis:us-east-1:444455556666:stream/*"),
            ("the job's topics", "kafka-cluster:ReadData", "*"),
            ("the environment's keys", "kms:Decrypt", "*"),
            ("the job's tables", "glue:UpdateTable", "arn:aws:glue:us-east-1:444455556666:*"),
            ("the job itself", "glue:StartJobRun", "*"),
            ("the job's role alone", "iam:PassRole", "arn:aws:iam::444455556666:role/*"),
        )
    ),
    Mutation(
        "permission: role passed to one service",
        POLICY,
        (*STATEMENTS, {"Action": "iam:PassRole"}, "Condition"),
        Remove(),
    ),
    Mutation(
        "permission: metrics of one namespace",
        POLICY,
        (*STATEMENTS, {"Action": "cloudwatch:PutMetricData"}, "Condition"),
        Remove(),
    ),
    *(
        Mutation(f"permission: {what}", POLICY, (*STATEMENTS, {"Sid": sid}), Remove())
        for what, sid in (("no version of a rollback", "NeverVersions"), ("no digest of one", "NeverDigests"))
    ),
    Mutation(
        "permission: versions of all jobs",
        POLICY,
        (*STATEMENTS, {"Sid": "NeverVersions"}, "Resource"),
        Put("arn:aws:s3:::flights-prod-checkpoints/_versions/flights/*"),
    ),
    Mutation(
        "no user",
        ROLE,
        ("Properties", "Tags"),
        Remove(),
        beside={"Somebody": {"Type": "AWS::IAM::User"}},
    ),
    Mutation(
        "no custom resource",
        ROLE,
        ("Properties", "Tags"),
        Remove(),
        beside={"Custom": {"Type": "Custom::Program", "Properties": {}}},
    ),
    Mutation(
        "no function",
        ROLE,
        ("Properties", "Tags"),
        Remove(),
        beside={
            "Function": {
                "Type": "AWS::Lambda::Function",
                "Properties": {
                    "Code": {"ZipFile": "pass"},
                    "Handler": "index.handler",
                    "Runtime": "python3.13",
                    "Role": {"Fn::GetAtt": ["ANCHOR", "Arn"]},
                },
            }
        },
    ),
)

SERVICE = "AWS::ECS::Service"
TASK = "AWS::ECS::TaskDefinition"
BALANCER = "AWS::ElasticLoadBalancingV2::LoadBalancer"
REPOSITORY = "AWS::ECR::Repository"
CONTAINERS: tuple[Any, ...] = ("Properties", "ContainerDefinitions", {})

HISTORY = (
    Mutation(
        "history: no public address",
        SERVICE,
        ("Properties", "NetworkConfiguration", "AwsvpcConfiguration", "AssignPublicIp"),
        Put("ENABLED"),
    ),
    Mutation("history: root file system", TASK, (*CONTAINERS, "ReadonlyRootFilesystem"), Put(False)),
    Mutation("history: privileges", TASK, (*CONTAINERS, "Privileged"), Put(True)),
    Mutation("history: log", TASK, (*CONTAINERS, "LogConfiguration"), Remove()),
    Mutation("history: internal balancer", BALANCER, ("Properties", "Scheme"), Put("internet-facing")),
    Mutation(
        "history: access logs",
        BALANCER,
        ("Properties", "LoadBalancerAttributes", {"Key": "access_logs.s3.enabled"}),
        Remove(),
    ),
    Mutation(
        "history: no broken headers",
        BALANCER,
        ("Properties", "LoadBalancerAttributes", {"Key": "routing.http.drop_invalid_header_fields.enabled"}),
        Remove(),
    ),
    Mutation("history: image scan", REPOSITORY, ("Properties", "ImageScanningConfiguration"), Remove()),
    Mutation("history: image encryption", REPOSITORY, ("Properties", "EncryptionConfiguration"), Remove()),
)
