"""A deployment restarts, drains or keeps each running job, decided from templates and launch documents."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from millrace.cli.run.changes_report import removal_questions
from millrace.lifecycle.changes.deployment_changes import (
    build_job_change,
    compare_templates,
    document_differences,
    source_names_in_templates,
)
from millrace.lifecycle.deploy import DeploymentChanges

APPLICATION = {
    "Type": "AWS::EMRServerless::Application",
    "Properties": {"MaximumCapacity": {"Cpu": "8 vCPU"}},
}
GLUE = {"Type": "AWS::Glue::Job", "Properties": {"NumberOfWorkers": 3}}
ROLE = {
    "Type": "AWS::IAM::Policy",
    "Properties": {
        "Roles": [{"Ref": "Role"}],
        "PolicyDocument": {
            "Statement": [
                {
                    "Effect": "Allow",
                    "Action": ["s3:GetObject", "s3:PutObject"],
                    "Resource": "arn:aws:s3:::lake/*",
                }
            ]
        },
    },
}
DOCUMENT: dict[str, Any] = {
    "workers": {"max": 3},
    "settings": {
        "queries": [
            {
                "name": "land",
                "routes": [{"source": {"kind": "kinesis", "stream": "p-clicks", "records_per_shard": 1000}}],
            },
            {"name": "derive", "source_table": "t"},
        ]
    },
}
STREAMS = frozenset({"p-clicks", "p-other"})


def template(**resources: Any) -> dict[str, Any]:
    return {"Resources": resources}


def change(old: Any, new: Any, **given: Any) -> Any:
    settings: dict[str, Any] = {
        "document": (DOCUMENT, DOCUMENT),
        "document_url": ("s3://a/1", "s3://a/1"),
        "sources": (STREAMS, STREAMS),
    }
    return build_job_change("clicks", stack=(old, new), **(settings | given))


def test_what_does_not_change_is_left_alone() -> None:
    result = change(template(App=APPLICATION), template(App=copy.deepcopy(APPLICATION)))
    assert (result.before, result.after, result.why) == ("leave", "leave", ())


def test_a_job_whose_network_changes_is_drained_first() -> None:
    """The rules by which its workers reached each other are removed with the network's stack, before its own changes."""

    def connected(*groups: str) -> dict[str, Any]:
        requirements = {"PhysicalConnectionRequirements": {"SecurityGroupIdList": list(groups)}}
        connection = {"Type": "AWS::Glue::Connection", "Properties": {"ConnectionInput": requirements}}
        return template(Job=GLUE, Connection1=connection)

    assert change(connected("shared"), connected("shared")).before == "leave"
    result = change(connected("shared"), connected("shared", "own"))
    assert (result.before, result.after) == ("drain", "restart")
    assert "its connections to the network change" in result.why[0]


def with_role(path: str, **resources: Any) -> dict[str, Any]:
    """Return a template whose job runs with a role of its own, and whose other resources refer to it."""
    role = {"Type": "AWS::IAM::Role", "Properties": {"Path": path}}
    arn = {"Fn::GetAtt": ["Role", "Arn"]}
    return {**template(Role=role, **resources), "Outputs": {"RoleArn": {"Value": arn}}}


def test_a_job_whose_role_is_replaced_is_drained_first() -> None:
    """CloudFormation deletes the old role with the update of the stack, before a restart."""
    before = with_role("/", App=APPLICATION)
    assert change(before, with_role("/", App=APPLICATION)).before == "leave"
    result = change(before, with_role("/streaming/", App=APPLICATION))
    assert (result.before, result.after) == ("drain", "restart")
    assert "its role changes" in result.why[0]
    company = {**template(App=APPLICATION), "Outputs": {"RoleArn": {"Value": "arn:aws:iam::1:role/x"}}}
    assert change(before, company).before == "drain"


def test_a_job_whose_security_group_is_replaced_is_drained_first() -> None:
    """Its application and its connections refer to the group as before."""

    def grouped(vpc: str, **other: Any) -> dict[str, Any]:
        return template(Group={"Type": "AWS::EC2::SecurityGroup", "Properties": {"VpcId": vpc}}, **other)

    groups = [{"Fn::GetAtt": ["Group", "GroupId"]}]
    network = {"NetworkConfiguration": {"SecurityGroupIds": groups}}
    for resource in (
        {"Type": "AWS::EMRServerless::Application", "Properties": network},
        {"Type": "AWS::Glue::Connection", "Properties": {"ConnectionInput": groups}},
    ):
        assert change(grouped("a", It=resource), grouped("a", It=resource)).before == "leave"
        assert change(grouped("a", It=resource), grouped("b", It=resource)).before == "drain"


def test_a_new_job_is_started() -> None:
    result = change(None, template(App=APPLICATION), document=(None, DOCUMENT), document_url=(None, "u"))
    assert (result.before, result.after) == ("leave", "start")


def test_an_application_that_changes_is_drained_first() -> None:
    larger = copy.deepcopy(APPLICATION)
    larger["Properties"]["MaximumCapacity"]["Cpu"] = "16 vCPU"  # type: ignore[index]
    result = change(template(App=APPLICATION), template(App=larger))
    assert (result.before, result.after) == ("drain", "restart")
    assert "EMR Serverless refuses" in result.why[0]


def test_a_replaced_application_is_drained_first() -> None:
    result = change(template(App=APPLICATION), template(App2=APPLICATION))
    assert result.before == "drain"


def test_a_stream_that_goes_drains_its_readers_only() -> None:
    gone = (STREAMS, frozenset({"p-other"}))
    result = change(template(Job=GLUE), template(Job=GLUE), sources=gone)
    assert (result.before, result.after, result.why) == ("drain", "restart", ("source p-clicks goes",))
    other = (STREAMS, frozenset({"p-clicks"}))
    assert change(template(Job=GLUE), template(Job=GLUE), sources=other).before == "leave"


def test_a_fan_out_consumer_that_goes_drains_its_reader() -> None:
    reading = copy.deepcopy(DOCUMENT)
    reading["settings"]["queries"][0]["routes"][0]["source"]["consumer"] = "p-orders-land"
    consumer = {"Type": "AWS::Kinesis::StreamConsumer", "Properties": {"ConsumerName": "p-orders-land"}}
    sources = (source_names_in_templates([template(C=consumer)]), frozenset[str]())
    result = change(template(Job=GLUE), template(Job=GLUE), document=(reading, DOCUMENT), sources=sources)
    assert (result.before, result.why[0]) == ("drain", "source p-orders-land goes")


def test_new_code_restarts_after_the_deployment() -> None:
    result = change(template(Job=GLUE), template(Job=GLUE), document_url=("s3://a/1", "s3://a/2"))
    assert (result.before, result.after) == ("leave", "restart")


def test_streams_and_topics_are_found_by_name() -> None:
    clicks = template(A={"Type": "AWS::Kinesis::Stream", "Properties": {"Name": "p-clicks"}}, C=GLUE)
    flights = template(B={"Type": "AWS::MSK::Topic", "Properties": {"TopicName": "flights"}})
    assert source_names_in_templates([clicks, flights, None]) == {"p-clicks", "flights"}


def test_numbers_are_told_by_path() -> None:
    new = copy.deepcopy(DOCUMENT)
    new["workers"]["max"] = 5
    new["settings"]["queries"][0]["routes"][0]["source"]["records_per_shard"] = 2000
    assert list(document_differences(DOCUMENT, new)) == [
        ("settings.queries[0].routes[0].source.records_per_shard", 1000, 2000),
        ("workers.max", 3, 5),
    ]


def test_permissions_are_told_as_statements() -> None:
    wider = copy.deepcopy(ROLE)
    statement = wider["Properties"]["PolicyDocument"]["Statement"][0]  # type: ignore[index]
    statement["Action"] = "s3:*"
    statement["Condition"] = {"Bool": {"aws:SecureTransport": "true"}}
    result = compare_templates("s", template(Policy=ROLE, Job=GLUE), template(Policy=wider, App=APPLICATION))
    assert result.resources == ("+ AWS::EMRServerless::Application App", "- AWS::Glue::Job Job")
    assert result.permissions == (
        "- AWS::IAM::Role Role: Allow s3:GetObject, s3:PutObject on arn:aws:s3:::lake/*",
        '+ AWS::IAM::Role Role: Allow s3:* on arn:aws:s3:::lake/* when {"Bool": {"aws:SecureTransport": "true"}}',
    )
    assert not compare_templates("s", template(Policy=ROLE), template(Policy=ROLE))
    assert compare_templates("s", None, template())


def test_a_changed_resource_names_its_properties() -> None:
    larger = copy.deepcopy(GLUE)
    larger["Properties"]["NumberOfWorkers"] = 9  # type: ignore[index]
    result = compare_templates("s", template(Job=GLUE), template(Job=larger))
    assert result.resources == ("~ AWS::Glue::Job Job: NumberOfWorkers",)


def test_what_becomes_of_a_resource_with_its_stack_is_a_change() -> None:
    """A stream that is to stay is deleted by the next `cdk destroy` as long as this has not been deployed."""
    stream = {"Type": "AWS::Kinesis::Stream", "Properties": {"Name": "x"}, "Metadata": {"a": 1}}
    result = compare_templates(
        "s",
        template(S={**stream, "DeletionPolicy": "Delete"}),
        template(S={**stream, "DeletionPolicy": "Retain"}),
    )
    assert result.resources == ("~ AWS::Kinesis::Stream S: DeletionPolicy",)
    assert not compare_templates("s", template(S=stream), template(S={**stream, "Metadata": {"a": 2}}))


@pytest.mark.parametrize(
    ("policies", "end", "lost"),
    [
        (("Delete", "Delete"), "its data is deleted", ("AWS::MSK::Topic audit",)),
        (("Retain", "Retain"), "the old one stays and is paid for", ()),
        # Which template decides is not documented.
        (("Delete", "Retain"), "its data is deleted", ("AWS::MSK::Topic audit",)),
    ],
)
def test_a_replaced_topic_says_what_becomes_of_its_data(
    policies: tuple[str, str], end: str, lost: tuple[str, ...]
) -> None:
    old, new = (
        template(
            T={"Type": "AWS::MSK::Topic", "UpdateReplacePolicy": policy, "Properties": {"TopicName": name}}
        )
        for policy, name in zip(policies, ("audit", "audit2"), strict=True)
    )
    result = compare_templates("s", old, new)
    assert result.lost == lost
    assert result.resources[0].endswith(f"(is replaced; {end})")
    (question,) = removal_questions(DeploymentChanges((result,), (), {}))
    assert all(each in question for each in lost)


def test_topics_that_are_replaced_with_their_cluster_are_shown() -> None:
    """Their own text stays the same."""

    def topic(name: str) -> dict[str, Any]:
        cluster = {"Type": "AWS::MSK::Cluster", "Properties": {"ClusterName": name}}
        within = {"TopicName": "audit", "ClusterArn": {"Ref": "C"}}
        return template(C=cluster, T={"Type": "AWS::MSK::Topic", "Properties": within})

    result = compare_templates("s", topic("a"), topic("b"))
    assert result.resources[1] == "~ AWS::MSK::Topic T: ClusterArn (is replaced; its data is deleted)"
    assert result.lost == ("AWS::MSK::Cluster a", "AWS::MSK::Topic audit")


def test_another_kind_under_the_same_name_is_a_change() -> None:
    result = compare_templates("s", template(A=GLUE), template(A={**GLUE, "Type": "AWS::Glue::Trigger"}))
    assert result.resources == ("~ AWS::Glue::Trigger A: Type",)


def test_permissions_that_move_beside_their_role_are_no_change() -> None:
    beside = {**copy.deepcopy(ROLE), "Type": "AWS::IAM::ManagedPolicy"}
    assert not compare_templates("s", template(Inside=ROLE), template(Beside=beside))
    beside["Properties"]["PolicyDocument"]["Statement"][0]["Action"] = "s3:GetObject"
    result = compare_templates("s", template(Inside=ROLE), template(Beside=beside))
    assert (result.resources, [line[0] for line in result.permissions]) == ((), ["-", "+"])
