"""Options of the sources are translated to each engine's connector."""

from __future__ import annotations

import dataclasses
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, NoRegionError
from moto import mock_aws

from millrace.etl.checkpoints.checkpoint import source_offset_in_log_entry
from millrace.etl.launch import engine_interface_and_registry
from millrace.etl.launch.settings import Connection
from millrace.etl.launch.sinks import KafkaSinkSettings
from millrace.etl.launch.sources import KafkaReadingOptions, KafkaSource, KinesisSource
from millrace.etl.queries.open_sources import sources_digest
from millrace.etl.record.batch_accounts import BatchAccounts, EventReporter, landing_event_fields
from millrace.etl.record.errors import AccountsError, StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.sinks.base import open_sink
from millrace.etl.sinks.kafka import KafkaSink
from millrace.etl.sources.kafka import connection as kafka
from millrace.etl.sources.kafka import topic_stream
from millrace.etl.sources.kinesis import connector_stream as kinesis

STREAM = KinesisSource("flights", "acme-flights", "eu-west-1", "earliest", 5000, 2.5, 86400)
TOPIC = KafkaSource("flights", "flights", "main", "latest", 1000, 3600)
MSK = Connection("acme-kafka", None, "iam")


def test_commits_name_streams_topics_and_partitions_whatever_their_order() -> None:
    """Jobs that share a topic out read other records, so they own a table together; limits and starts do not count."""
    job: Any = SimpleNamespace(
        connections={"main": MSK, "again": MSK, "theirs": Connection(None, None, "none")}
    )

    def part(*partitions: int, connection: str = "main") -> KafkaSource:
        reading = KafkaReadingOptions(partitions=partitions or None)
        return dataclasses.replace(TOPIC, reading=reading, connection=connection)

    result = [
        sources_digest(job, sources)
        for sources in (
            [TOPIC],
            [part(0, 1)],
            [part(2)],
            [STREAM],
            [TOPIC, STREAM],
            [part(connection="theirs")],
        )
    ]
    assert len(set(result)) == len(result)
    slower = dataclasses.replace(TOPIC, start="earliest", records_per_batch=7, connection="again")
    assert sources_digest(job, [slower]) == result[0]
    assert sources_digest(job, [STREAM, TOPIC]) == result[4]


def test_kinesis_options_of_glue_and_the_sandbox_are_the_same() -> None:
    options = engine_interface_and_registry.engine_of("glue").kinesis_options(STREAM, None)
    assert options == engine_interface_and_registry.engine_of("sandbox").kinesis_options(STREAM, None)
    assert options["endpointUrl"] == "https://kinesis.eu-west-1.amazonaws.com"
    assert options["startingPosition"] == "TRIM_HORIZON"
    assert options["kinesis.executor.maxFetchRecordsPerShard"] == "4999"
    assert options["kinesis.executor.maxRecordPerRead"] == "5000"
    assert options["kinesis.executor.maxFetchTimeInMs"] == "2500"
    assert options["failOnDataLoss"] == "true"


@pytest.mark.parametrize(
    ("limit", "per_call", "reached"),
    [(1, 1, 2), (2, 2, 2), (5000, 5000, 5000), (10_001, 5001, 10_002), (25_000, 8334, 25_002)],
)
def test_a_batch_of_a_shard_ends_at_its_limit(limit: int, per_call: int, reached: int) -> None:
    options = engine_interface_and_registry.engine_of("glue").kinesis_options(
        dataclasses.replace(STREAM, records_per_shard=limit), None
    )
    most, read = (
        int(options[f"kinesis.executor.{k}"]) for k in ("maxFetchRecordsPerShard", "maxRecordPerRead")
    )
    assert read == per_call <= 10_000
    # As the connector was seen to do: another call until it has more than `most`.
    assert (most // read + 1) * read == reached


def test_kinesis_options_of_emr() -> None:
    module = engine_interface_and_registry.engine_of("emr")
    options = module.kinesis_options(STREAM, "http://localhost:1")
    assert module.KINESIS_FORMAT == "aws-kinesis"
    assert options["kinesis.endpointUrl"] == "http://localhost:1"
    assert options["kinesis.maxFetchTimePerShardSec"] == "10"  # the least that the connector takes
    assert options["kinesis.failOnDataLoss"] == "true"
    assert all(name.startswith("kinesis.") for name in options)


def test_fan_out_and_roles_in_each_engines_words() -> None:
    role = "arn:aws:iam::999988887777:role/readers"
    source = dataclasses.replace(STREAM, consumer="acme-land", role=role)
    emr = engine_interface_and_registry.engine_of("emr").kinesis_options(source, None)
    assert (emr["kinesis.consumerType"], emr["kinesis.consumerName"]) == ("SubscribeToShard", "acme-land")
    assert (emr["kinesis.stsRoleArn"], emr["kinesis.stsSessionName"]) == (role, "flights")
    glue = engine_interface_and_registry.engine_of("glue").kinesis_options(source, None)
    assert (glue["fanoutConsumerARN"], glue["awsSTSRoleARN"]) == ("acme-land", role)
    # Interface endpoints serve a region's own STS, and not the global one.
    assert glue["awsSTSEndpoint"] == "https://sts.eu-west-1.amazonaws.com"
    plain = engine_interface_and_registry.engine_of("sandbox").kinesis_options(source, None)
    assert plain == engine_interface_and_registry.engine_of("glue").kinesis_options(STREAM, None)


def test_roles_are_asked_for_in_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older SDKs ask the global STS unless they are told, which no interface endpoint serves."""
    monkeypatch.setenv("AWS_STS_REGIONAL_ENDPOINTS", "legacy")
    make, asked = boto3.client, []

    class Answers:
        def __init__(self, url: str) -> None:
            self.url = url

        def assume_role(self, **_: str) -> dict[str, Any]:
            asked.append(self.url)
            return {"Credentials": dict.fromkeys(("AccessKeyId", "SecretAccessKey", "SessionToken"), "a")}

    def client(service: str, **given: Any) -> Any:
        made = make(service, **given)
        return Answers(made.meta.endpoint_url) if service == "sts" else made

    monkeypatch.setattr(boto3, "client", client)
    for region in ("eu-west-1", "us-east-1"):
        kinesis.make_kinesis_client(
            dataclasses.replace(STREAM, region=region, role="arn:aws:iam::999988887777:role/r")
        )
    assert asked == ["https://sts.eu-west-1.amazonaws.com", "https://sts.us-east-1.amazonaws.com"]


@mock_aws
def test_glue_is_given_the_consumers_arn() -> None:
    client = boto3.client("kinesis", "eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    client.create_stream(StreamName="acme-flights", ShardCount=1)
    stream = client.describe_stream_summary(StreamName="acme-flights")["StreamDescriptionSummary"][
        "StreamARN"
    ]
    made = client.register_stream_consumer(StreamARN=stream, ConsumerName="acme-land")["Consumer"]
    source = dataclasses.replace(STREAM, consumer="acme-land")
    assert kinesis.with_consumer_arn(source, client).consumer == made["ConsumerARN"]
    with pytest.raises(StartError, match="stream acme-flights has no fan-out consumer other"):
        kinesis.with_consumer_arn(dataclasses.replace(STREAM, consumer="other"), client)


def test_the_connector_knows_every_option_of_ours() -> None:
    """It ignores a name that it does not know in silence, which would mean no limit."""
    jars = list((Path(__file__).parents[3] / ".millrace/jars/sandbox").glob("spark-sql-kinesis_*.jar"))
    assert jars, "no JVM jars: run `make jars`"
    with zipfile.ZipFile(jars[0]) as jar:
        code = b"".join(
            jar.read(n) for n in jar.namelist() if "/kinesis/" in n and n.endswith(".class")
        ).lower()
    options = engine_interface_and_registry.engine_of("sandbox").kinesis_options(STREAM, None)
    keys = engine_interface_and_registry.engine_of("sandbox").kinesis_credential_options(
        {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    )
    unknown = [n for n in [*options, *keys] if n.lower().removeprefix("kinesis.").encode() not in code]
    assert unknown == []


def test_kafka_options() -> None:
    bound = kafka.apply_bind_options("main", MSK, {"kafka.main.bootstrap": "b:9098"})
    options = topic_stream.stream_options(TOPIC, bound, partitions=16)
    assert options["kafka.bootstrap.servers"] == "b:9098"
    assert options["startingOffsets"] == "latest"
    assert (options["failOnDataLoss"], options["includeHeaders"]) == ("true", "true")
    assert (options["maxOffsetsPerTrigger"], options["minPartitions"]) == ("1000", "16")
    assert options["kafka.sasl.mechanism"] == "AWS_MSK_IAM"
    plain = topic_stream.stream_options(
        TOPIC, kafka.apply_bind_options("main", bound, {"kafka.main.authentication": "none"}), partitions=None
    )
    assert not any("sasl" in name or "security" in name for name in plain)
    assert "minPartitions" not in plain
    with pytest.raises(StartError, match="authentication=magic: must be one of none, tls, iam"):
        kafka.apply_bind_options("main", MSK, {"kafka.main.authentication": "magic"})


class FakeMsk:
    """Answers as MSK does: the name filter matches prefixes. It refuses calls when a test says so."""

    refused: str | None = None
    refused_call: str | None = None

    def _answers(self, call: str) -> None:
        if self.refused is not None and self.refused_call in (None, call):
            raise ClientError({"Error": {"Code": self.refused, "Message": "no"}}, call)

    def list_clusters_v2(self, **query: str) -> dict[str, Any]:
        self._answers("ListClustersV2")
        names = ["acme-kafka-2", "acme-kafka"]
        wanted = query["ClusterNameFilter"]
        return {
            "ClusterInfoList": [
                {"ClusterName": n, "ClusterArn": f"arn:{n}"} for n in names if n.startswith(wanted)
            ]
        }

    def get_bootstrap_brokers(self, **query: str) -> dict[str, str]:
        self._answers("GetBootstrapBrokers")
        return {"BootstrapBrokerStringSaslIam": f"iam.{query['ClusterArn']}:9098"}


def test_brokers_of_msk_are_looked_up_by_the_exact_name() -> None:
    assert kafka.bootstrap_servers(MSK, client=FakeMsk()) == "iam.arn:acme-kafka:9098"
    with pytest.raises(StartError, match="MSK cluster acme does not exist "):
        kafka.bootstrap_servers(Connection("acme", None, "iam"), client=FakeMsk())
    with pytest.raises(StartError, match="no broker address for authentication tls"):
        kafka.bootstrap_servers(Connection("acme-kafka", None, "tls"), client=FakeMsk())


@pytest.mark.parametrize("call", ["ListClustersV2", "GetBootstrapBrokers"])
def test_a_refusal_of_msk_is_told_in_one_message(call: str) -> None:
    msk = FakeMsk()
    msk.refused, msk.refused_call = "AccessDeniedException", call
    with pytest.raises(StartError, match=rf"MSK cluster acme-kafka: .*AccessDeniedException.*{call}"):
        kafka.bootstrap_servers(MSK, client=msk)


def test_a_connection_whose_brokers_were_looked_up_asks_no_more() -> None:
    connection = kafka.with_resolved_brokers(dataclasses.replace(MSK, bootstrap_servers="b:9098"))
    assert connection == dataclasses.replace(MSK, bootstrap_servers="b:9098")
    spark: Any = None
    job: Any = SimpleNamespace(connections={"msk": MSK})
    run = JobRun(spark, job, {}, EventReporter("flights"))
    settings = KafkaSinkSettings("alerts", "msk", None, 1000)
    msk = FakeMsk()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kafka, "_msk_client", lambda: msk)
        sink = open_sink(settings, run)
        assert isinstance(sink, KafkaSink)
        msk.refused = "TooManyRequestsException"
        # As each batch has it, while the control plane is busy.
        assert sink.spark_sink_options()["kafka.bootstrap.servers"] == "iam.arn:acme-kafka:9098"
        with pytest.raises(StartError, match="TooManyRequestsException"):
            open_sink(settings, run)


def test_what_keeps_from_asking_kinesis_is_told_in_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """The role, the region, the consumer: each before or beside the question itself."""
    source = dataclasses.replace(STREAM, consumer="acme-land", role="arn:aws:iam::999988887777:role/readers")

    class Denied:
        def assume_role(self, **_: str) -> None:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "AssumeRole")

        def describe_stream_summary(self, **_: str) -> None:
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "no"}}, "DescribeStreamSummary")

    def nowhere(*_: Any, **__: Any) -> None:
        raise NoRegionError

    with pytest.raises(StartError, match=r"stream acme-flights: .*AccessDenied.*DescribeStreamSummary"):
        kinesis.with_consumer_arn(source, Denied())
    monkeypatch.setattr(boto3, "client", lambda *_, **__: Denied())
    for ask in (lambda: kinesis.count_open_shards(source, None), lambda: kinesis.with_consumer_arn(source)):
        with pytest.raises(StartError, match=r"stream acme-flights: .*AccessDenied.*AssumeRole"):
            ask()
    monkeypatch.setattr(boto3, "client", nowhere)
    with pytest.raises(StartError, match="stream acme-flights: You must specify a region"):
        kinesis.count_open_shards(STREAM, None)


def test_offset_log() -> None:
    assert source_offset_in_log_entry('v1\n{"batchWatermarkMs":0}\n{"t":{"0":5}}') == {"t": {"0": 5}}
    assert source_offset_in_log_entry("v1\n{}\n-") is None
    with pytest.raises(ValueError, match="not an entry"):
        source_offset_in_log_entry("")


def test_accounts_balance_or_are_refused() -> None:
    assert landing_event_fields(read=5, landed=3, bad=1) == {
        "read": 5,
        "duplicates": 2,
        "landed": 3,
        "good": 2,
        "bad": 1,
    }
    assert BatchAccounts(read=9, offered=6, written=4).event_fields() == {
        "read": 9,
        "duplicates": 2,
        "filtered": 3,
        "written": 4,
    }
    for impossible in ((1, 2, 0), (5, 3, 4), (5, 3, -1)):
        with pytest.raises(AccountsError):
            landing_event_fields(*impossible)
    with pytest.raises(AccountsError):
        BatchAccounts(read=1, offered=1, written=2)
