"""Every number of a plan is in a template or launch document, or is listed with the reason."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import pytest

from millrace.config.model import EmrJob, GlueJob, KinesisStream
from millrace.sizing.plan_model import Figure
from tests.template.conftest import Synthesis

Locate = Callable[[Synthesis, tuple[str, ...]], Any]
"""From a synthesis and what stands for the stars of a pattern to the deployed value."""


@dataclass(frozen=True)
class Leaf:
    """One number of a plan."""

    path: str
    value: Any


def leaves(value: Any, path: str = "") -> Iterator[Leaf]:
    """Every number of dataclasses, mappings and tuples, wherever it stands; text is none."""
    if isinstance(value, Figure):
        yield Leaf(path, value.value)
    elif isinstance(value, bool | str) or value is None:
        return
    elif isinstance(value, int | float):
        yield Leaf(path, value)
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from leaves(each, f"{path}/{key}")
    elif isinstance(value, tuple):
        for place, each in enumerate(value):
            yield from leaves(each, f"{path}/{getattr(each, 'name', place)}".replace("\n", " "))
    elif is_dataclass(value):
        for field in fields(value):
            yield from leaves(getattr(value, field.name), f"{path}/{field.name}" if path else field.name)


WHY_NOT = {
    r".*/cost/.*/usd": "a price is paid, not deployed",
    r"shared/.*/usd": "a price is paid, not deployed",
    r"jobs/[^/]+/worker_usd_hour": "a price is paid, not deployed",
    r"jobs/[^/]+/memory": "a need; what meets it, the worker's memory, is deployed",
    r"jobs/[^/]+/queries/[^/]+/cores": "a share of the job's cores, which Spark gives out itself",
    r"jobs/[^/]+/queries/[^/]+/batch_seconds": "a prediction; the alarm is on the trigger",
    r"jobs/[^/]+/queries/[^/]+/catch_up_seconds": "a prediction",
    r"jobs/glue:[^/]+/(vcpu|memory_gib|disk_gib)": "of the worker type, which is deployed",
    r"jobs/glue:[^/]+/scaling/(min|initial)_executors": "Glue has a largest number only",
    r"jobs/glue:[^/]+/executors": "the workers without the driver; the workers are deployed",
    r"streams/[^/]+/expected_partitions": "what readers find; what is made is `partitions`",
    r"streams/existing:[^/]+/partitions": "somebody else's stream is never changed",
    r"network/zones": "as many subnets as the file says, each with its endpoints",
}
"""Patterns of paths, whole, with the reason. ``glue:`` and such before a name tell kinds apart."""


def query(found: Synthesis, job: str, name: str) -> dict[str, Any]:
    (settings,) = [q for q in found.documents[job]["settings"]["queries"] if q["name"] == name]
    return dict(settings)


def sources(settings: dict[str, Any]) -> list[dict[str, Any]]:
    return [route["source"] for route in settings.get("routes", ())]


def deep(value: Any, key: str) -> list[Any]:
    """All values of a key, however deep."""
    if isinstance(value, dict):
        result = [value[key]] if key in value else []
        return result + [each for inner in value.values() for each in deep(inner, key)]
    if isinstance(value, list):
        return [each for inner in value for each in deep(inner, key)]
    return []


def spark(key: str, job: str, found: Synthesis) -> str:
    return str(found.documents[job]["spark"][f"spark.{key}"])


def alarm(found: Synthesis, name: str) -> dict[str, Any]:
    (properties,) = [
        each["Properties"]
        for each in found.resources("AWS::CloudWatch::Alarm").values()
        if each["Properties"].get("AlarmName", "").endswith(name)
    ]
    return dict(properties)


def stream(found: Synthesis, name: str) -> Any:
    physical = found.names.stream(name)
    for each in found.resources("AWS::Kinesis::Stream").values():
        if each["Properties"]["Name"] == physical:
            return each["Properties"]["ShardCount"]
    for each in found.resources("AWS::MSK::Topic").values():
        if each["Properties"]["TopicName"] == physical:
            return each["Properties"]["PartitionCount"]
    return None


def limit(key: str, found: Synthesis, job: str, name: str, planned: int) -> Any:
    """What the sources of a query take together, or each of them where each has its own."""
    values = deep(query(found, job, name), key)
    return planned if planned in values or sum(values) == planned else values


DEPLOYED: dict[str, Callable[..., Any]] = {
    r"jobs/(glue|emr):([^/]+)/max_workers": lambda f, _e, j: f.documents[j]["workers"]["max"],
    r"jobs/(?:glue|emr):([^/]+)/cores": lambda f, j: int(spark("sql.shuffle.partitions", j, f)),
    r"jobs/emr:([^/]+)/executors": lambda f, j: int(spark("dynamicAllocation.maxExecutors", j, f)),
    r"jobs/(?:glue|emr):([^/]+)/network": lambda f, j: (
        "vpc" if "AWS::EC2::SecurityGroup" in json.dumps(f.templates[f"job-{j}"]) else "none"
    ),
    r"jobs/emr:([^/]+)/vcpu": lambda f, j: int(spark("executor.cores", j, f)),
    r"jobs/emr:([^/]+)/memory_gib": lambda f, j: int(f.documents[j]["workers"]["memory"].split()[0]),
    r"jobs/emr:([^/]+)/disk_gib": lambda f, j: int(spark("emr-serverless.executor.disk", j, f)[:-1]),
    r"jobs/emr:([^/]+)/scaling/min_executors": lambda f, j: int(
        spark("dynamicAllocation.minExecutors", j, f)
    ),
    r"jobs/emr:([^/]+)/scaling/initial_executors": lambda f, j: int(
        spark("dynamicAllocation.initialExecutors", j, f)
    ),
    r"jobs/emr:([^/]+)/scaling/allocation_ratio": lambda f, j: float(
        spark("dynamicAllocation.executorAllocationRatio", j, f)
    ),
    r"jobs/emr:([^/]+)/scaling/idle_timeout_seconds": lambda f, j: int(
        spark("dynamicAllocation.executorIdleTimeout", j, f)[:-1]
    ),
    r"jobs/emr:([^/]+)/scaling/shuffle_timeout_seconds": lambda f, j: int(
        spark("dynamicAllocation.shuffleTracking.timeout", j, f)[:-1]
    ),
    r"jobs/(?:glue|emr):([^/]+)/queries/([^/]+)/trigger_seconds": lambda f, j, q: query(f, j, q)[
        "trigger_seconds"
    ],
    r"jobs/(?:glue|emr):([^/]+)/queries/([^/]+)/latency_seconds": lambda f, j, q: alarm(
        f, f"job/{j}/{q}/record-age"
    )["Threshold"],
    r"jobs/(?:glue|emr):([^/]+)/queries/([^/]+)/repartition": lambda f, j, q: query(f, j, q)["repartition"],
    r"streams/own:([^/]+)/partitions": stream,
    r"clusters/([^/]+)/brokers": lambda f, _c: f.the("AWS::MSK::Cluster", "kafka")["NumberOfBrokerNodes"],
    r"clusters/([^/]+)/broker_type": lambda f, _c: f.the("AWS::MSK::Cluster", "kafka")["BrokerNodeGroupInfo"][
        "InstanceType"
    ],
    r"clusters/([^/]+)/storage_gib_per_broker": lambda f, _c: f.the("AWS::MSK::Cluster", "kafka")[
        "BrokerNodeGroupInfo"
    ]["StorageInfo"]["EBSStorageInfo"]["VolumeSize"],
    r"alarms/(.+)/threshold": lambda f, a: alarm(f, a)["Threshold"],
    r"alarms/(.+)/period": lambda f, a: alarm(f, a)["Period"],
    r"alarms/(.+)/periods": lambda f, a: alarm(f, a)["DatapointsToAlarm"],
    r"alarms/(.+)/of": lambda f, a: alarm(f, a)["EvaluationPeriods"],
    r"network/egress": lambda f: (
        "nat"
        if f.resources("AWS::EC2::NatGateway")
        else "endpoints"
        if f.resources("AWS::EC2::VPCEndpoint")
        else "none"
    ),
}

OF_A_BATCH = {
    r"jobs/(?:glue|emr):([^/]+)/queries/([^/]+)/records_per_batch": "records_per_batch",
    r"jobs/(?:glue|emr):([^/]+)/queries/([^/]+)/records_per_partition": "records_per_shard",
}
"""Limits, which a query with several sources gives to each."""


def marked(found: Synthesis, path: str) -> str:
    """A path with the kind of what it names."""
    parts = path.split("/")
    if parts[0] == "jobs":
        engine = "glue" if isinstance(found.environment.jobs[parts[1]], GlueJob) else "emr"
        assert engine == "glue" or isinstance(found.environment.jobs[parts[1]], EmrJob)
        parts[1] = f"{engine}:{parts[1]}"
    if parts[0] == "streams":
        parts[1] = f"{'existing' if found.environment.streams[parts[1]].existing else 'own'}:{parts[1]}"
    return "/".join(parts)


def check(found: Synthesis, leaf: Leaf) -> str | None:
    """Return what is wrong with a number, or None."""
    path = marked(found, leaf.path)
    for pattern, key in OF_A_BATCH.items():
        if match := re.fullmatch(pattern, path):
            # Of Kinesis the shard's limit is deployed, of Kafka the batch's.
            job, name = match.groups()
            kinesis = any(
                isinstance(found.environment.streams[each], KinesisStream)
                for each in found.environment.jobs[job].queries[name].source_stream_names  # type: ignore[union-attr]
            )
            if kinesis and key == "records_per_batch":
                return None
            deployed = limit(key, found, job, name, leaf.value)
            return None if deployed == leaf.value else f"{leaf.path} is {leaf.value}, deployed is {deployed}"
    for pattern, locate in DEPLOYED.items():
        if match := re.fullmatch(pattern, path):
            deployed = locate(found, *match.groups())
            return None if deployed == leaf.value else f"{leaf.path} is {leaf.value}, deployed is {deployed}"
    if any(re.fullmatch(pattern, path) for pattern in WHY_NOT):
        return None
    return f"{leaf.path} is {leaf.value} and nowhere deployed, and nothing says why"


@pytest.mark.parametrize("name", ["prod", "dev"])
def test_every_number_is_deployed_or_has_a_reason(synthesis: Callable[[str], Synthesis], name: str) -> None:
    result = synthesis(name)
    numbers = list(leaves(result.plan))
    assert len(numbers) > 100
    assert [wrong for leaf in numbers if (wrong := check(result, leaf))] == []


def test_no_reason_is_stale(synthesis: Callable[[str], Synthesis]) -> None:
    paths = [
        marked(synthesis(name), leaf.path)
        for name in ("prod", "dev")
        for leaf in leaves(synthesis(name).plan)
    ]
    for pattern in (*WHY_NOT, *DEPLOYED, *OF_A_BATCH):
        if pattern.startswith("clusters") and not any(path.startswith("clusters") for path in paths):
            continue
        assert any(re.fullmatch(pattern, path) for path in paths), f"{pattern} is no number of a plan"


def test_a_number_that_is_not_deployed_is_found(prod: Synthesis) -> None:
    """Each kind of number once: one more or less than deployed must be told."""
    told: dict[str, bool] = {}
    for leaf in leaves(prod.plan):
        path = marked(prod, leaf.path)
        for pattern in (*DEPLOYED, *OF_A_BATCH):
            if re.fullmatch(pattern, path):
                other = f"{leaf.value}x" if isinstance(leaf.value, str) else leaf.value + 1
                told[pattern] = (
                    told.get(pattern, False) or check(prod, replace(leaf, value=other)) is not None
                )
    assert [pattern for pattern, seen in told.items() if not seen] == []
    strange = Leaf("jobs/flights/colour", 7)
    assert "nothing says why" in str(check(prod, strange))
