"""Stacks that hold data: storage, streams, Kafka."""

from __future__ import annotations

import base64
import re
from datetime import timedelta
from typing import Any

import pytest

from millrace.config import load
from millrace.config.model import KafkaTopic, KinesisStream
from millrace.infra.stacks.kafka import topic_properties_text
from tests.template.conftest import ROOT, Synthesis, Synthesise

DATA_TYPES = (
    "AWS::S3::Bucket",
    "AWS::Kinesis::Stream",
    "AWS::KMS::Key",
    "AWS::MSK::Cluster",
    "AWS::MSK::Topic",
    "AWS::Glue::Database",
)


@pytest.mark.parametrize("kind", DATA_TYPES)
def test_data_outlives_its_stack(prod: Synthesis, kind: str) -> None:
    assert prod.environment.removal == "retain"
    result = prod.resources(kind)
    assert result
    for path, resource in result.items():
        assert resource["DeletionPolicy"] == "RetainExceptOnCreate", path
        assert resource["UpdateReplacePolicy"] == "Retain", path


def test_logs_go_with_their_job_whose_next_deployment_needs_their_names(prod: Synthesis) -> None:
    kept = {
        path
        for path, group in prod.resources("AWS::Logs::LogGroup").items()
        if group["DeletionPolicy"] != "Delete"
    }
    assert {path.split("/")[0] for path in kept} == {"network", "kafka"}, (
        "stacks that are protected themselves"
    )


def policies(synthesis: Synthesis) -> dict[str, str]:
    return {
        path: resource["DeletionPolicy"]
        for kind in DATA_TYPES
        for path, resource in synthesis.resources(kind).items()
    }


@pytest.mark.slow
def test_deletion_takes_both_keys(prod: Synthesis, dev: Synthesis, synthesise: Synthesise) -> None:
    assert set(policies(dev).values()) == {"Delete"}, "removal: destroy, and everything marked"
    first_key = synthesise(prod.environment.model_copy(update={"removal": "destroy"}))
    assert set(policies(first_key).values()) == {"RetainExceptOnCreate"}
    second_key = synthesise(dev.environment.model_copy(update={"removal": "retain"}))
    assert set(policies(second_key).values()) == {"RetainExceptOnCreate"}
    fields = type(prod.environment).model_fields
    assert fields["removal"].default == "retain"


def test_each_resource_has_a_second_key_of_its_own(prod: Synthesis, synthesise: Synthesise) -> None:
    environment = prod.environment
    streams = {
        name: stream.model_copy(update={"disposable": name == "positions"})
        for name, stream in environment.streams.items()
    }
    storage = environment.storage.model_copy(update={"disposable": ("event-logs",)})
    result = synthesise(
        environment.model_copy(update={"removal": "destroy", "streams": streams, "storage": storage})
    )
    gone = {path.split("/")[1] for path, policy in policies(result).items() if policy == "Delete"}
    assert {re.sub(r"[0-9A-F]{8}$", "", name) for name in gone} == {"positions", "EventLogs"}


def test_stacks_with_data_are_protected_from_termination(prod: Synthesis, local: Synthesis) -> None:
    def protected(synthesis: Synthesis) -> dict[str, bool]:
        prefix = f"{synthesis.names.prefix}-"
        return {
            name.removeprefix(prefix): artifact["properties"].get("terminationProtection", False)
            for name, artifact in synthesis.manifest.items()
            if artifact["type"] == "aws:cloudformation:stack"
        }

    for part, value in protected(prod).items():
        assert value is not part.startswith(("job-", "observability", "history")), part
    assert not any(protected(local).values())


def test_every_bucket_is_closed_and_encrypted(each: Synthesis) -> None:
    buckets = each.resources("AWS::S3::Bucket")
    assert len(buckets) == 5
    for path, bucket in buckets.items():
        properties = bucket["Properties"]
        assert set(properties["PublicAccessBlockConfiguration"].values()) == {True}, path
        assert properties["OwnershipControls"]["Rules"] == [{"ObjectOwnership": "BucketOwnerEnforced"}]
        (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        if properties["BucketName"] == each.names.bucket("access-logs"):
            assert rule["ServerSideEncryptionByDefault"] == {"SSEAlgorithm": "AES256"}
        else:
            assert rule["BucketKeyEnabled"] is True
            assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
            assert "LoggingConfiguration" in properties


def test_every_bucket_refuses_plain_http(each: Synthesis) -> None:
    policies = each.resources("AWS::S3::BucketPolicy").values()
    assert len(policies) == len(each.resources("AWS::S3::Bucket"))
    for policy in policies:
        denied = [
            s["Condition"]
            for s in policy["Properties"]["PolicyDocument"]["Statement"]
            if s["Effect"] == "Deny" and s["Action"] == "s3:*"
        ]
        assert {"Bool": {"aws:SecureTransport": "false"}} in denied
        assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied


def test_nothing_live_ever_expires(each: Synthesis) -> None:
    for kind in ("lake", "checkpoints", "dead-letters"):
        properties = bucket(each, kind)
        for rule in properties["LifecycleConfiguration"]["Rules"]:
            assert not {"ExpirationInDays", "ExpirationDate", "Transitions"} & rule.keys(), (kind, rule)


def test_exported_dead_letters_go_when_asked(synthesise: Synthesise) -> None:
    environment = load("minimal", root=ROOT)
    storage = environment.storage.model_copy(update={"dead_letter_retention": timedelta(days=90)})
    result = synthesise(environment.model_copy(update={"storage": storage}))
    rules = bucket(result, "dead-letters")["LifecycleConfiguration"]["Rules"]
    assert [rule["ExpirationInDays"] for rule in rules if "ExpirationInDays" in rule] == [90]


def test_versions_are_kept_where_they_help(each: Synthesis) -> None:
    for kind, kept in {"lake": True, "dead-letters": True, "checkpoints": False, "event-logs": False}.items():
        assert ("VersioningConfiguration" in bucket(each, kind)) is kept, kind


def test_keys_rotate(each: Synthesis) -> None:
    for path, key in each.resources("AWS::KMS::Key").items():
        assert key["Properties"]["EnableKeyRotation"] is True, path


def test_the_database_lies_in_the_lake(each: Synthesis) -> None:
    database = each.the("AWS::Glue::Database", "storage")["DatabaseInput"]
    assert database["Name"] == each.names.database
    assert database["LocationUri"].startswith(f"s3://{each.names.bucket('lake')}/warehouse/")


def test_streams_are_encrypted_with_their_own_key(each: Synthesis) -> None:
    for path, stream in each.resources("AWS::Kinesis::Stream").items():
        assert stream["Properties"]["StreamEncryption"]["EncryptionType"] == "KMS", path
        assert "Fn::GetAtt" in stream["Properties"]["StreamEncryption"]["KeyId"], path


def test_what_a_stream_asks_for_is_deployed(synthesise: Synthesise) -> None:
    environment = load("minimal", root=ROOT)
    name, stream = next(iter(environment.streams.items()))
    assert isinstance(stream, KinesisStream)
    asked = stream.model_copy(
        update={
            "retention": timedelta(hours=36),
            "shard_level_metrics": True,
            "max_record_size": 10 * 1024 * 1024,
            "fan_out_consumers": ("audit",),
        }
    )
    result = synthesise(environment.model_copy(update={"streams": {name: asked}}))
    properties = result.the("AWS::Kinesis::Stream", "streams")
    assert properties["RetentionPeriodHours"] == 36
    assert properties["MaxRecordSizeInKiB"] == 10_240
    assert properties["DesiredShardLevelMetrics"] == ["ALL"]
    assert result.the("AWS::Kinesis::StreamConsumer", "streams")["ConsumerName"] == "audit"


def test_an_existing_stream_is_read_and_never_owned(prod: Synthesis) -> None:
    clicks = prod.environment.streams["clicks"]
    assert isinstance(clicks, KinesisStream)
    assert clicks.existing
    assert clicks.existing not in str(prod.templates["streams"])
    readable = [s["Resource"] for part, s in prod.statements() if "kinesis:GetRecords" in s["Action"]]
    assert any(clicks.existing in str(resource) for resource in readable)


def test_brokers_speak_tls_to_iam_identities_only(prod: Synthesis) -> None:
    properties = prod.the("AWS::MSK::Cluster", "kafka")
    assert properties["ClientAuthentication"] == {
        "Sasl": {"Iam": {"Enabled": True}},
        "Unauthenticated": {"Enabled": False},
    }
    encryption = properties["EncryptionInfo"]
    assert encryption["EncryptionInTransit"] == {"ClientBroker": "TLS", "InCluster": True}
    assert "Fn::GetAtt" in encryption["EncryptionAtRest"]["DataVolumeKMSKeyId"]
    assert properties["LoggingInfo"]["BrokerLogs"]["CloudWatchLogs"]["Enabled"] is True


def test_no_topic_is_made_by_accident(prod: Synthesis) -> None:
    text = prod.the("AWS::MSK::Configuration", "kafka")["ServerProperties"]
    assert "auto.create.topics.enable=false" in text.splitlines()


def test_topics_carry_retention_and_compression(prod: Synthesis) -> None:
    for name, settings in prod.environment.streams.items():
        if not isinstance(settings, KafkaTopic):
            continue
        (topic,) = [
            r["Properties"]
            for r in prod.resources("AWS::MSK::Topic").values()
            if r["Properties"]["TopicName"] == prod.names.stream(name)
        ]
        written = base64.b64decode(topic["Configs"]).decode()
        assert written == topic_properties_text(settings)
        assert f"retention.ms={settings.retention // timedelta(milliseconds=1)}" in written
        assert f"compression.type={settings.compression}" in written


@pytest.mark.slow
@pytest.mark.parametrize("tier", ["express", "serverless"])
def test_other_tiers_of_msk(synthesise: Synthesise, tier: str) -> None:
    environment = load("prod", root=ROOT)
    cluster = environment.kafka["operations"].model_copy(update={"tier": tier})
    # Streams know the cluster that they were read with, and plan no partitions for another.
    streams = {
        name: each.model_copy(update={"partitions": 8}) if each.kind == "kafka" else each
        for name, each in environment.streams.items()
    }
    result = synthesise(environment.model_copy(update={"kafka": {"operations": cluster}, "streams": streams}))
    if tier == "serverless":
        assert result.the("AWS::MSK::ServerlessCluster", "kafka")["ClientAuthentication"] == {
            "Sasl": {"Iam": {"Enabled": True}}
        }
    else:
        properties = result.the("AWS::MSK::Cluster", "kafka")
        assert properties["BrokerNodeGroupInfo"]["InstanceType"].startswith("express.")
        assert "StorageInfo" not in properties["BrokerNodeGroupInfo"]
        assert "LoggingInfo" not in properties, "MSK refuses broker logs of Express"
        assert "replication" not in result.the("AWS::MSK::Configuration", "kafka")["ServerProperties"]


def bucket(synthesis: Synthesis, kind: Any) -> dict[str, Any]:
    name = synthesis.names.bucket(kind)
    (result,) = [
        r["Properties"]
        for r in synthesis.resources("AWS::S3::Bucket").values()
        if r["Properties"]["BucketName"] == name
    ]
    return dict(result)
