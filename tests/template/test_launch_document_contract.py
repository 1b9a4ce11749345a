"""The core reads what ``infra`` writes into launch documents, and no number is written twice."""

from __future__ import annotations

import json

import pytest

from millrace.config import load
from millrace.config.model import EmrJob, GlueJob, KinesisStream
from millrace.config.queries import LandQuery
from millrace.etl.launch import typed_json
from millrace.etl.launch.settings import parse_job_settings
from millrace.etl.launch.typed_json import SettingsError
from millrace.infra.engines.emr import format_gigabytes
from tests.template.conftest import ROOT, Synthesis, Synthesise


def test_settings_survive_the_core_unchanged(each: Synthesis) -> None:
    for job, document in each.documents.items():
        assert typed_json.to_json_value(parse_job_settings(document["settings"])) == document["settings"], job


def test_the_core_refuses_a_key_more_and_a_key_less(prod: Synthesis) -> None:
    settings = prod.documents["flights"]["settings"]
    with pytest.raises(SettingsError, match="unknown keys colour"):
        parse_job_settings({**settings, "colour": "red"})
    for key in settings:
        with pytest.raises(SettingsError, match=f"missing keys {key}"):
            parse_job_settings({name: value for name, value in settings.items() if name != key})


def test_every_query_of_the_file_is_in_the_document(each: Synthesis) -> None:
    for name, job in each.environment.jobs.items():
        written = [query["name"] for query in each.documents[name]["settings"]["queries"]]
        assert written == list(job.queries)


def test_triggers_and_limits_are_the_plans(each: Synthesis) -> None:
    checked = 0
    for name, document in each.documents.items():
        for query in document["settings"]["queries"]:
            planned = each.plan.jobs[name].queries[query["name"]]
            assert query["trigger_seconds"] == planned.trigger_seconds.value
            checked += 1
            if query["kind"] == "derive":
                continue
            source = query["routes"][0]["source"]
            figure, key = (
                (planned.records_per_partition, "records_per_shard")
                if source["kind"] == "kinesis"
                else (planned.records_per_batch, "records_per_batch")
            )
            assert figure is not None
            assert source[key] == figure.value
            assert planned.records_per_batch is not None
            assert source["records_per_batch"] == planned.records_per_batch.value
            shards = planned.cores.value if source["kind"] == "kinesis" else None
            assert query["repartition"] == (planned.repartition.value if planned.repartition else shards)
    assert checked == sum(len(job.queries) for job in each.environment.jobs.values())


def test_sources_are_the_streams_that_are_deployed(each: Synthesis) -> None:
    for name, job in each.environment.jobs.items():
        written = {q["name"]: q for q in each.documents[name]["settings"]["queries"]}
        for query_name, query in job.queries.items():
            if not isinstance(query, LandQuery):
                continue
            stream = each.environment.streams[query.source]
            source = written[query_name]["routes"][0]["source"]
            physical = source["stream" if isinstance(stream, KinesisStream) else "topic"]
            assert source["retention_seconds"] == stream.retention.total_seconds()
            assert physical == each.names.stream(query.source)


def test_a_query_reads_through_the_consumer_that_is_registered_for_it(synthesise: Synthesise) -> None:
    environment = load("minimal", root=ROOT)
    job = environment.jobs["clicks"]
    query = job.queries["land-clicks"].model_copy(update={"fan_out": True})
    jobs = {"clicks": job.model_copy(update={"queries": {"land-clicks": query}})}
    result = synthesise(environment.model_copy(update={"jobs": jobs}))
    registered = result.the("AWS::Kinesis::StreamConsumer", "streams")["ConsumerName"]
    settings = parse_job_settings(result.documents["clicks"]["settings"])
    assert settings.queries[0].sources[0].consumer == registered == "hello-minimal-clicks-land-clicks"
    (allowed,) = [s for _, s in result.statements() if "kinesis:SubscribeToShard" in s["Action"]]
    # A look-up by name is checked against the ARN without the second of its registration (aws/aws-cdk#22184).
    assert [arn.rpartition("/")[2] for arn in allowed["Resource"]] == [registered, f"{registered}:*"]


def test_shards_and_partitions_are_the_plans(each: Synthesis) -> None:
    owned = 0
    for name, stream in each.environment.streams.items():
        planned = each.plan.streams[name].partitions
        physical = each.names.stream(name)
        if isinstance(stream, KinesisStream):
            result = [
                r["Properties"]
                for r in each.resources("AWS::Kinesis::Stream").values()
                if r["Properties"]["Name"] == physical
            ]
            if stream.existing:
                assert result == []
                continue
            (properties,) = result
            if stream.mode == "on-demand":
                assert "ShardCount" not in properties
                assert properties["StreamModeDetails"] == {"StreamMode": "ON_DEMAND"}
                assert planned is None
            else:
                assert planned is not None
                assert properties["ShardCount"] == planned.value
        else:
            (properties,) = [
                r["Properties"]
                for r in each.resources("AWS::MSK::Topic").values()
                if r["Properties"]["TopicName"] == physical
            ]
            assert planned is not None
            assert properties["PartitionCount"] == planned.value
        owned += 1
    assert owned


def test_workers_are_the_plans(each: Synthesis) -> None:
    for name, job in each.environment.jobs.items():
        planned, document = each.plan.jobs[name], each.documents[name]
        workers = planned.max_workers.value
        assert document["workers"]["max"] == workers
        assert document["workers"]["type"] == planned.worker
        if isinstance(job, GlueJob):
            properties = each.the("AWS::Glue::Job", f"job-{name}")
            assert (properties["NumberOfWorkers"], properties["WorkerType"]) == (workers, planned.worker)
        else:
            assert isinstance(job, EmrJob)
            capacity = each.the("AWS::EMRServerless::Application", f"job-{name}")["MaximumCapacity"]
            assert capacity == {
                "Cpu": f"{planned.vcpu * workers} vCPU",
                "Memory": format_gigabytes(planned.memory_gib * workers),
                "Disk": format_gigabytes(planned.disk_gib * workers),
            }
            assert document["spark"]["spark.dynamicAllocation.maxExecutors"] == str(planned.executors.value)
            assert document["retries_per_hour"] == job.retries_per_hour


def test_brokers_are_the_plans(prod: Synthesis) -> None:
    planned = prod.plan.clusters["operations"]
    properties = prod.the("AWS::MSK::Cluster", "kafka")
    assert planned.brokers is not None
    assert planned.broker_type is not None
    assert planned.storage_gib_per_broker is not None
    group = properties["BrokerNodeGroupInfo"]
    assert properties["NumberOfBrokerNodes"] == planned.brokers.value
    assert properties["NumberOfBrokerNodes"] % len(group["ClientSubnets"]) == 0
    assert group["InstanceType"] == planned.broker_type.value
    assert group["StorageInfo"]["EBSStorageInfo"]["VolumeSize"] == planned.storage_gib_per_broker.value


def test_the_glue_job_is_rendered_from_its_document(each: Synthesis) -> None:
    for name, job in each.environment.jobs.items():
        if not isinstance(job, GlueJob):
            continue
        document, properties = each.documents[name], each.the("AWS::Glue::Job", f"job-{name}")
        arguments = properties["NonOverridableArguments"]
        assert properties["Command"]["ScriptLocation"] == document["entry_script"]
        assert properties["GlueVersion"] == document["engine_version"]
        assert arguments["--extra-py-files"] == document["archive"]
        settings = dict(part.split("=", 1) for part in arguments["--conf"].split(" --conf "))
        assert settings == document["spark"]
        output = each.templates[f"job-{name}"]["Outputs"]["LaunchDocument"]["Value"]
        assert arguments["--launch-document"] == output
        # No run chooses other code or settings: everything that the job is started with is fixed.
        assert arguments["--scriptLocation"] == document["entry_script"]
        assert "DefaultArguments" not in properties


def test_documents_are_json_without_template_expressions(each: Synthesis) -> None:
    for job, document in each.documents.items():
        text = json.dumps(document)
        assert "${" not in text, job
        for url in (document["entry_script"], document["archive"], *document["jars"]):
            assert (each.folder / f"asset.{url.rsplit('/', 1)[1]}").is_file(), url
