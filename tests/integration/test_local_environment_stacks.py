"""Resources that LocalStack created have the properties that the templates ask for."""

from __future__ import annotations

import io
import json
import zipfile

import pytest

from millrace.etl.launch.settings import parse_job_settings
from millrace.lifecycle.account.deployed_environment import (
    NotDeployedError,
    read_launch_document,
    split_s3_url,
)
from millrace.sizing import plan

# Accepted by LocalStack 4.9 with nothing behind; a change here is worth a look at what a green deploy proves.
PRETENDED = {
    "AWS::CloudWatch::Dashboard",
    "AWS::EC2::FlowLog",
    "AWS::EC2::SecurityGroupEgress",
    "AWS::EC2::SecurityGroupIngress",
    "AWS::EMRServerless::Application",
    "AWS::Glue::Connection",
    "AWS::Glue::Database",
    "AWS::Glue::Job",
    "AWS::Glue::SecurityConfiguration",
    "AWS::MSK::Cluster",
    "AWS::MSK::Configuration",
    "AWS::MSK::Topic",
}

JOBS = ("departures", "flights")


def test_exactly_these_types_are_only_pretended(sandbox):
    cloudformation = sandbox.stack.client("cloudformation")
    pretended: set[str] = set()
    for stack in cloudformation.describe_stacks()["Stacks"]:
        events = cloudformation.describe_stack_events(StackName=stack["StackName"])["StackEvents"]
        pretended |= {e["ResourceType"] for e in events if "fallback" in e.get("ResourceStatusReason", "")}
    assert pretended == PRETENDED


def test_stream_has_the_planned_shards(sandbox, aws):
    summary = aws.client("kinesis").describe_stream_summary(StreamName=sandbox.names.stream("departures"))
    stream = summary["StreamDescriptionSummary"]
    assert stream["OpenShardCount"] == plan(sandbox.environment).streams["departures"].partitions.value
    assert stream["RetentionPeriodHours"] == 24


def test_topic_has_the_planned_partitions(sandbox):
    topics = sandbox.kafka.admin().list_topics(timeout=10).topics
    assert len(topics["flights"].partitions) == plan(sandbox.environment).streams["flights"].partitions.value


@pytest.mark.parametrize("kind", ["lake", "checkpoints", "event-logs", "dead-letters"])
def test_buckets_are_closed(sandbox, aws, kind):
    s3, bucket = aws.client("s3"), sandbox.names.bucket(kind)
    assert all(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values())
    statements = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
    assert any(
        s["Effect"] == "Deny" and "aws:SecureTransport" in json.dumps(s.get("Condition", {}))
        for s in statements
    )


@pytest.mark.parametrize("job", JOBS)
def test_launch_document_is_read_back_and_all_it_names_is_there(sandbox, aws, job):
    document = sandbox.launch_document(job).content
    assert parse_job_settings(document["settings"]).job == job
    for url in [document["entry_script"], document["archive"], *document["jars"]]:
        bucket, key = split_s3_url(url)
        assert aws.client("s3").head_object(Bucket=bucket, Key=key)["ContentLength"] > 0
    bucket, key = split_s3_url(document["archive"])
    archive = zipfile.ZipFile(io.BytesIO(aws.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()))
    assert {"millrace/etl/__init__.py", "pipelines/flights/transforms.py"} <= set(archive.namelist())


def test_a_job_that_is_not_deployed_is_told(sandbox, aws):
    with pytest.raises(NotDeployedError, match="flights-local-job-tea is not deployed"):
        read_launch_document(aws.client("cloudformation"), aws.client("s3"), sandbox.names, "tea")


def test_localstack_leaves_out_a_buckets_key(sandbox, aws):
    """Why encryption is checked in the templates: here every bucket has the service's default."""
    answer = aws.client("s3").get_bucket_encryption(Bucket=sandbox.names.bucket("lake"))
    rule = answer["ServerSideEncryptionConfiguration"]["Rules"][0]
    assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "AES256"
