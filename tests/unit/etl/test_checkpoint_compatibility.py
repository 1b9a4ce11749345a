"""Each change of a query is compatible or incompatible with its checkpoint, a row for every rule."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, StructType

import millrace.etl as etl
from millrace.etl.checkpoints import manifest, manifest_changes
from millrace.etl.checkpoints.manifest import Manifest, ManifestError
from millrace.etl.launch import settings
from millrace.etl.launch.sources import KafkaReadingOptions
from millrace.etl.launch.typed_json import versioned_json
from millrace.etl.sinks.delivery.keyed_rows import type_in_identity
from tests.launch_document_defaults import with_route
from tests.unit.etl.test_launch_arguments import LAND, SETTINGS

KINESIS: dict[str, Any] = {
    "kind": "kinesis", "name": "clicks", "stream": "shop-clicks", "region": "eu-west-1", "start": "earliest",
    "records_per_shard": 1000, "fetch_seconds": 1.0, "retention_seconds": 86400, "consumer": None, "role": None,
    "records_per_batch": None,
}  # fmt: skip
KAFKA: dict[str, Any] = LAND["source"]
STATE: dict[str, Any] = {
    "watermark": {"time": "at", "delay_seconds": 60.0, "ahead_seconds": 3600}, "distinct": [], "key": ["page"], "join": None, "output_mode": "update",
}  # fmt: skip
DERIVE: dict[str, Any] = {
    "kind": "derive", "name": "pages", "source_table": "lake.landed", "enrich": [], "transform": None,
    "sink": {"kind": "iceberg", "table": "lake.pages"}, "trigger_seconds": 10, "state": STATE,
    "dead_letters": None, "route": None, "latest_by": [],
}  # fmt: skip
ROUTE: dict[str, Any] = {
    key: LAND[key] for key in ("source", "format", "schema", "decompress_up_to", "redact", "rules")
} | {"name": "a", "changes_of": None, "origin": "flights"}


def topic(name: str, connection: str = "main") -> dict[str, Any]:
    return {**KAFKA, "name": name, "topic": name, "connection": connection}


def routed(*names: str) -> dict[str, Any]:
    routes = [
        {**ROUTE, "name": name, "changes_of": None, "origin": name, "source": topic(name)} for name in names
    ]
    kept = {key: LAND[key] for key in ("table", "trigger_seconds", "repartition")}
    return {"kind": "route", "name": "land", "routes": routes, **kept}


def made(
    query: dict[str, Any],
    *,
    engine: str = "glue",
    spark: str = "3.5.4",
    partitions: str = "8",
    schema: bytes = b"a int",
    operators: tuple[str, ...] | None = None,
) -> Manifest:
    connections = {
        **SETTINGS["connections"],
        "other": {"cluster": "d", "bootstrap_servers": None, "authentication": "iam"},
    }
    job = settings.parse_job_settings(
        {**SETTINGS, "connections": connections, "engine": engine, "queries": [with_route(query)]}
    )
    conf = {manifest.PARTITIONS: partitions}.get
    result = manifest.make_manifest(job, job.queries[0], spark=spark, conf=conf, schema_text=lambda _: schema)
    return dataclasses.replace(result, operators=operators)


LANDED = LAND
STREAMED = {**LAND, "source": KINESIS}


def with_state(**changed: Any) -> dict[str, Any]:
    return {**DERIVE, "state": {**STATE, **changed}}


def with_join(time: str = "at", route: str | None = None) -> dict[str, Any]:
    join = {"source_table": "lake.paid", "watermark": {**STATE["watermark"], "time": time}, "route": route}
    return with_state(key=[], join=join)


def by_0_1_0(manifest: Manifest, **changed: Any) -> Manifest:
    """As the first release wrote it."""
    return dataclasses.replace(manifest, texts=1, **changed)


def into(**sink: Any) -> Manifest:
    """Manifest of a query with a sink outside the lake."""
    return made({**DERIVE, "state": None, "sink": sink})


JDBC: dict[str, Any] = {
    "kind": "jdbc", "url": "jdbc:postgresql://db.example.com:5432/shop?connectTimeout=10", "table": "public.pages", "secret": "s",
    "region": "eu-west-1", "connections": 2, "tls": "verify-full", "authorities": None,
}  # fmt: skip
SEARCH: dict[str, Any] = {
    "kind": "opensearch",
    "endpoint": "https://a.example.com",
    "index": "pages",
    "region": "eu-west-1",
}
TOPIC: dict[str, Any] = {
    "kind": "kafka",
    "topic": "pages",
    "connection": "main",
    "key": None,
    "max_record_bytes": 1_000_000,
}
DYNAMODB: dict[str, Any] = {"kind": "dynamodb", "table": "pages", "region": "eu-west-1"}


def directly(**tables: str) -> Manifest:
    """Manifest of a query that writes the topic of each route to a table."""
    own = {"enrich": [], "transform": None}
    routes = [
        {**ROUTE, **own, "name": name, "sink": {"kind": "iceberg", "table": table}}
        for name, table in tables.items()
    ]
    query = {
        "kind": "direct-route",
        "name": "pages",
        "routes": routes,
        "dead_letters": "lake.dead",
        "trigger_seconds": 10,
    }
    return made({**query, "repartition": None})


OTHER_CLUSTER = {**LAND, "source": topic("flights", "other")}


def with_topics(changes_of: str | None = None, **topics: str) -> dict[str, Any]:
    """A query of routes, each with its topic."""
    whole = routed(*topics)
    for route in whole["routes"]:
        of = topics[route["name"]]
        route |= {"origin": of, "source": topic(of), "changes_of": changes_of}
    return whole


def of_partitions(*partitions: int) -> dict[str, Any]:
    options = dataclasses.asdict(KafkaReadingOptions(partitions=partitions, partition_count=5))
    return {**LAND, "source": {**KAFKA, "reading": options | {"partitions": list(partitions)}}}


REFUSED = {
    "Kinesis from Glue to EMR": (made(STREAMED), made(STREAMED, engine="emr"), "source 1's connector"),
    "all partitions become a list": (made(LANDED), made(of_partitions(0, 2)), "was all and is 0, 2: Spark's source"),
    "topics of routes that change places": (
        made(routed("a", "b")), made(with_topics(a="b", b="a")), "what takes route a was a and is b: what reads the route's rows",
    ),
    "tables of a route of changes": (
        made(with_topics(changes_of="shop.a", a="t")), made(with_topics(changes_of="shop.b", a="t")), "was t shop.a and is t shop.b",
    ),
    "a partition that another job takes": (
        made(of_partitions(0, 2, 4)), made(of_partitions(0, 2)), "was 0, 2, 4 and is 0, 2: Spark's source goes on only with all",
    ),
    "Kinesis from EMR to Glue": (made(STREAMED, engine="emr"), made(STREAMED), "source 1's connector"),
    "another stream": (
        made(STREAMED), made({**LAND, "source": {**KINESIS, "stream": "other"}}), "source 1 was kinesis eu-west-1/shop-clicks",
    ),
    "another region": (made(STREAMED), made({**LAND, "source": {**KINESIS, "region": "eu-west-2"}}), "source 1"),
    "another name of the stream in the file": (
        made(STREAMED), made({**LAND, "source": {**KINESIS, "name": "bookings"}}), "shop-clicks in the file was clicks and is bookings",
    ),
    "another name of the topic in the file": (
        made(LANDED), made({**LAND, "source": {**KAFKA, "name": "bookings"}}), "in the file was flights and is bookings",
    ),
    "a topic in the stream's place": (made(STREAMED), made(LANDED), "source 1 was kinesis"),
    "another topic": (made(LANDED), made({**LAND, "source": topic("other")}), "what is unread of flights would be passed"),
    "a topic gone": (made(routed("a", "b")), made(routed("a")), "what is unread of b"),
    "another connection": (made(LANDED), dataclasses.replace(made(LANDED), legs=(manifest.ManifestSource("kafka", "d"),)), "source 1"),
    "one source more": (
        made(routed("a")),
        made({**routed("a"), "routes": [*routed("a")["routes"], {**ROUTE, "name": "b", "changes_of": None, "origin": "shop-clicks", "source": KINESIS}]}),
        "what it reads",
    ),
    "another kind": (made(LANDED), dataclasses.replace(made(LANDED), kind="direct"), "the query's kind was land and is direct"),
    "another table": (made(LANDED), made({**LAND, "table": "lake.other"}), "the sink was iceberg lake.flights"),
    "another table under the route's other name": (directly(a="lake.a"), directly(b="lake.b"), "was iceberg lake.a and is iceberg lake.b"),
    "another database": (
        into(**JDBC), into(**JDBC | {"url": "jdbc:postgresql://db.example.com:5432/other"}),
        "the server of the sink was db.example.com:5432/shop and is db.example.com:5432/other: the other one lacks what",
    ),
    "another domain": (into(**SEARCH), into(**SEARCH | {"endpoint": "https://b.example.com"}), "was a.example.com:443 and is b.example.com:443"),
    "another cluster of a sink's topic": (into(**TOPIC), into(**TOPIC | {"connection": "other"}), "of the sink was c and is d"),
    "another region of a sink": (into(**DYNAMODB), into(**DYNAMODB | {"region": "eu-west-2"}), "was eu-west-1 and is eu-west-2"),
    "another landing table": (made(DERIVE), made({**DERIVE, "source_table": "lake.x"}), "source 1 was iceberg lake.landed"),
    "state where there was none": (made({**DERIVE, "state": None}), made(DERIVE), "state was none and is kept"),
    "no state where there was some": (made(DERIVE), made({**DERIVE, "state": None}), "state was kept and is none"),
    "another key": (made(DERIVE), made(with_state(key=["page", "country"])), "the key was page and is page, country"),
    "another watermark's column": (
        made(DERIVE), made(with_state(watermark={"time": "seen", "delay_seconds": 60.0, "ahead_seconds": 3600})), "watermark's column",
    ),
    "another route": (made({**DERIVE, "route": "a"}), made({**DERIVE, "route": "b"}), "source 1 was iceberg lake.landed (route a)"),
    "a route of all": (made(DERIVE), made({**DERIVE, "route": "b"}), "source 1 was iceberg lake.landed and is iceberg lake.landed (route b)"),
    "another joined route": (made(with_join()), made(with_join(route="b")), "source 2 was iceberg lake.paid and is"),
    "another watermark of the joined": (
        made(with_join()), made(with_join(time="seen")), "the watermark's column was at, at and is at, seen",
    ),
    "other distinct fields": (made(with_state(distinct=["a"])), made(with_state(distinct=["a", "b"])), "distinct"),
    "other operators": (
        made(DERIVE, operators=("Aggregate by page string",)),
        made(DERIVE, operators=("Aggregate by upper string",), spark="3.5.6"),
        "what keeps state was Aggregate by page string",
    ),
    "an earlier Spark, with state": (made(DERIVE, spark="4.0.0"), made(DERIVE, spark="3.5.4"), "Spark was 4.0.0 and is 3.5.4"),
    "Kinesis in the sandbox to Spark 4": (
        made(STREAMED, engine="sandbox"), made(STREAMED, engine="sandbox", spark="4.1.1"),
        "connector was kinesis and is millrace-kinesis: the positions are those of Glue's connector or one of its family",
    ),
    "Kinesis in the sandbox back from Spark 4": (
        made(STREAMED, engine="sandbox", spark="4.1.1"), made(STREAMED, engine="sandbox"), "positions are those of the sandbox's own reader",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_checkpoint_that_would_be_misread_is_refused(name: str) -> None:
    old, new, said = REFUSED[name]
    result = manifest_changes.incompatible_changes(manifest_changes.find_changes(old, new))
    assert any(said in str(change) for change in result), result


def test_a_cluster_with_another_name_needs_no_other_topic() -> None:
    """Clusters that are known by their brokers are compared by their names in the file; another stream's name would double the records."""
    old = made(LANDED)
    new = dataclasses.replace(old, legs=(dataclasses.replace(old.legs[0], of="d"),))
    wrong = manifest_changes.incompatible_changes(manifest_changes.find_changes(old, new))
    said = manifest_changes.advice_for_changes("dev", "job", "land", wrong)
    assert said.startswith(f"{manifest_changes.RENAMED_CLUSTER}{manifest_changes.ANOTHER_NAME}; then ")


LATEST = {**DERIVE, "state": None, "latest_by": ["page"]}
IN_ANOTHER_FORM = {
    "an order": (LATEST, {**LATEST, "latest_order": "at"}),
    "another order": ({**LATEST, "latest_order": "at"}, {**LATEST, "latest_order": "seen"}),
    "another key of the last record": (LATEST, {**LATEST, "latest_by": ["page", "country"]}),
    "another key of results": (DERIVE, with_state(key=["page", "country"])),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_ANOTHER_FORM)
def test_a_reset_after_another_key_or_order_needs_another_sink(name: str) -> None:
    """What the sink has stays in it, or is never replaced: two rows for a page, or the earlier one for ever."""
    old, new = map(made, IN_ANOTHER_FORM[name])
    wrong = manifest_changes.incompatible_changes(manifest_changes.find_changes(old, new))
    said = manifest_changes.advice_for_changes("dev", "job", "pages", wrong)
    assert said.startswith(
        f"{manifest_changes.ANOTHER_SINK}; then `millrace checkpoint reset job pages --env dev`"
    )
    moved = made(
        {
            **IN_ANOTHER_FORM[name][1],
            "sink": {"kind": "iceberg", "table": "lake.other"},
            "state": None,
            "latest_by": [],
        }
    )
    plain = made({**LATEST, "latest_by": []})
    wrong = manifest_changes.incompatible_changes(manifest_changes.find_changes(plain, moved))
    assert manifest_changes.advice_for_changes("dev", "job", "pages", wrong).startswith(
        "`millrace checkpoint reset"
    )


CONTINUED = {
    "nothing": (made(LANDED), made(LANDED), []),
    "changed code": (made(LANDED), dataclasses.replace(made(LANDED), code={"t": "1"}, core="9"), []),
    "a schema that grew": (made(LANDED), made(LANDED, schema=b"a int, b int"), []),
    "Kafka from Glue to EMR": (made(LANDED), made(LANDED, engine="emr", spark="3.5.6"), []),
    "Kinesis from Glue to the sandbox": (made(STREAMED), made(STREAMED, engine="sandbox"), []),
    "a later Spark": (made(LANDED), made(LANDED, spark="4.0.0"), []),
    "an earlier Spark": (made(LANDED, spark="4.0.0"), made(LANDED, spark="3.5.4"), ["a query without state"]),
    "Kinesis on Glue to Spark 4 and back": (made(STREAMED, spark="4.1.1"), made(STREAMED), ["a query without state"]),
    "an earlier patch": (made(LANDED, spark="3.5.6"), made(LANDED, spark="3.5.4"), []),
    "other limits": (made(STREAMED), made({**LAND, "source": {**KINESIS, "records_per_shard": 9}}), []),
    "another start": (made(LANDED), made({**LAND, "source": {**KAFKA, "start": "latest"}}), []),
    "a route's other name": (directly(a="lake.a"), directly(b="lake.a"), []),
    "a route more": (directly(a="lake.a"), directly(a="lake.a", b="lake.b"), []),
    "other options of a database's driver": (into(**JDBC), into(**JDBC | {"url": JDBC["url"].replace("10", "20")}), []),
    "a database's default port, left out": (into(**JDBC), into(**JDBC | {"url": JDBC["url"].replace(":5432", "").replace("db.", "DB.")}), []),
    "a domain's default port": (into(**SEARCH), into(**SEARCH | {"endpoint": SEARCH["endpoint"] + ":443"}), []),
    "a server of a release that did not write it": (
        dataclasses.replace(into(**SEARCH), servers={}), into(**SEARCH | {"endpoint": "https://b.example.com"}), [],
    ),
    "a list of a version that did not write it": (dataclasses.replace(made(LANDED), partitions=None), made(of_partitions(0, 2)), []),
    "a partition more": (made(of_partitions(0, 2)), made(of_partitions(0, 2, 4)), []),
    "all partitions": (made(of_partitions(0, 2)), made(LANDED), []),
    "a topic more": (made(routed("a")), made(routed("a", "b")), ["the new ones are read from their start"]),
    "a longer delay": (
        made(DERIVE), made(with_state(watermark={"time": "at", "delay_seconds": 600.0, "ahead_seconds": 3600})), [],
    ),
    "more cores": (made(DERIVE), made(DERIVE, partitions="16"), ["the checkpoint keeps its own"]),
    "more cores without state": (made(LANDED), made(LANDED, partitions="16"), []),
    "operators of another Spark": (
        made(DERIVE, operators=("a",), spark="3.5.4"), made(DERIVE, operators=("b",), spark="4.0.1"), [],
    ),
    "operators of the first release": (by_0_1_0(made(DERIVE), operators=("a",)), made(DERIVE, operators=("b",)), []),
    "a route of the first release": (by_0_1_0(made(DERIVE)), made({**DERIVE, "route": "a"}), []),
    "a join of the first release": (
        by_0_1_0(made(with_join()), state=dataclasses.replace(made(with_join()).state, time="at")), made(with_join()), [],
    ),
    "types of a key of a release that did not write them": (made(LATEST), dataclasses.replace(made(LATEST), types={"page": "string"}), []),
    "operators that were not told": (made(DERIVE), made(DERIVE, operators=("b",)), []),
}  # fmt: skip


@pytest.mark.parametrize("name", CONTINUED)
def test_what_a_checkpoint_can_bear_is_no_reason_to_stop(name: str) -> None:
    old, new, said = CONTINUED[name]
    result = manifest_changes.find_changes(old, new)
    assert manifest_changes.incompatible_changes(result) == ()
    assert len(result) == len(said)
    for change, text in zip(result, said, strict=True):
        assert text in str(change)


def nested(whole: str, decimal: str) -> StructType:
    elements = StructType().add("b", decimal)["b"].dataType
    return StructType().add("a", whole).add("b", ArrayType(elements))


TYPES_OF_A_KEY = [
    ("integer", "long", True), ("short", "decimal(9,0)", True), ("decimal(9,2)", "decimal(18,2)", True),
    (nested("byte", "decimal(9,2)"), nested("integer", "decimal(12,2)"), True),
    (nested("byte", "decimal(9,2)"), nested("byte", "decimal(9,3)"), False),
    ("decimal(9,2)", "decimal(9,3)", False), ("decimal(9,2)", "long", False), ("integer", "string", False), ("float", "double", False),
    ("timestamp", "long", False), ("timestamp", "timestamp_ntz", False), ("date", "timestamp", False),
]  # fmt: skip


@pytest.mark.parametrize(("before", "after", "same"), TYPES_OF_A_KEY)
def test_a_key_may_become_a_type_in_which_its_values_have_the_same_identity(
    before: Any, after: Any, same: bool
) -> None:
    old, new = (
        dataclasses.replace(made(LATEST), types={"page": type_in_identity(StructType().add("page", kind)["page"].dataType)})
        for kind in (before, after)
    )  # fmt: skip
    wrong = manifest_changes.incompatible_changes(manifest_changes.find_changes(old, new))
    assert (wrong == ()) is same
    assert [change.first for change in wrong] == [] if same else [manifest_changes.ANOTHER_SINK]


def test_a_manifest_with_keys_of_a_later_version_is_read() -> None:
    text = versioned_json(made(LANDED), manifest.FORMAT)
    assert manifest.parse_manifest(json.dumps({**json.loads(text), "later": {"a": 1}})) == made(LANDED)


@pytest.mark.parametrize("query", [LANDED, STREAMED, DERIVE, routed("a", "b")], ids=["land", "stream", "derive", "route"])  # fmt: skip
def test_a_manifest_is_read_back_as_it_was_written(query: dict[str, Any]) -> None:
    whole = made(query, operators=("Aggregate by page string",))
    assert manifest.parse_manifest(versioned_json(whole, manifest.FORMAT)) == whole


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "not a manifest"),
        ("[]", "format version None is not supported"),
        ('{"version": 2}', "format version 2 is not supported; this release reads version 1"),
        ('{"version": 1}', "not a manifest"),
        (
            json.dumps({**json.loads(versioned_json(made(LAND), manifest.FORMAT)), "legs": [1]}),
            "not a manifest",
        ),
    ],
)
def test_what_is_no_manifest_is_refused(text: str, said: str) -> None:
    with pytest.raises(ManifestError, match=said):
        manifest.parse_manifest(text)


def test_the_code_of_a_transform_is_in_its_manifest() -> None:
    plain = made({**DERIVE, "transform": "pipelines.flights.transforms:departures", "state": None})
    assert list(plain.code) == ["pipelines.flights.transforms:departures"]
    assert made({**DERIVE, "transform": "no.such.module:f"}).code == {}


def test_the_core_tells_its_version() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    assert etl.__version__ == project["project"]["version"]
