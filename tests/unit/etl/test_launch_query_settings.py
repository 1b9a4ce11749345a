"""Launch documents are read into three classes of queries, strictly, and lose nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace.etl.launch import typed_json
from millrace.etl.launch.settings import (
    DeriveSettings,
    DirectSettings,
    LandSettings,
    SourceRouteSettings,
    parse_job_settings,
)
from millrace.etl.launch.typed_json import SettingsError
from tests.faults import small_job_documents
from tests.launch_document_defaults import with_route

SINK = {"kind": "iceberg", "table": "d.out"}


def document(*queries: dict[str, Any]) -> dict[str, Any]:
    return small_job_documents.settings("shop", queries, "/checkpoints", "broker:9092")


def flat(kind: str) -> dict[str, Any]:
    """A query as it is written without routes."""
    source = {**small_job_documents.topic("events", 10), "reading": {
        "pattern": False, "partitions": None, "partition_count": None, "min_records_per_batch": None,
        "max_delay_seconds": None, "start_offsets": {"0": 7}, "headers": True, "group_id_prefix": None,
        "lag_group": None, "null_payload": "dead_letter", "min_partitions": None,
    }}  # fmt: skip
    return small_job_documents.queries(kind, source, Path("a.ddl"), "d.{}".format)[0]


def routed(kind: str) -> dict[str, Any]:
    """The same with two routes, of a kind of its own."""
    query = flat(kind)
    keys = {
        "source",
        "format",
        "schema",
        "decompress_up_to",
        "redact",
        "rules",
        "enrich",
        "transform",
        "sink",
    }
    route = {key: query.pop(key) for key in keys & query.keys()}
    routes = [{"name": name, "changes_of": None, "origin": f"topic-{name}", **route} for name in ("a", "b")]
    return {**query, "kind": {"land": "route", "direct": "direct-route"}[kind], "routes": routes}


@pytest.mark.parametrize("made", [flat, routed])
@pytest.mark.parametrize(("kind", "settings"), [("land", LandSettings), ("direct", DirectSettings)])
def test_a_query_with_routes_and_one_without_are_of_one_class(made: Any, kind: str, settings: type) -> None:
    written = document(made(kind))
    read = parse_job_settings(written)
    [query] = read.queries
    assert type(query) is settings
    assert typed_json.to_json_value(read) == written
    assert not isinstance(query, DeriveSettings)
    wanted = [(None, None)] if made is flat else [("a", "topic-a"), ("b", "topic-b")]
    assert [(route.name, route.origin) for route in query.routes] == wanted
    assert all(isinstance(route, SourceRouteSettings) for route in query.routes)
    # Two routes of one stream read it once, also where its offsets cannot be hashed.
    assert [source.name for source in query.sources] == ["events"]


@pytest.mark.parametrize("kind", ["land", "direct"])
def test_a_query_is_read_strictly(kind: str) -> None:
    whole = with_route(flat(kind))
    [route] = whole["routes"]
    for key in route:
        without = {name: value for name, value in route.items() if name != key}
        with pytest.raises(SettingsError, match=rf"settings\.queries\[0\]\.routes\[0\].*missing keys {key}"):
            parse_job_settings(document({**whole, "routes": [without]}))
    for wrong in (flat(kind), {**whole, "colour": "red"}, {**whole, "kind": "lands"}):
        written = {**document(), "queries": [wrong]}
        with pytest.raises(SettingsError, match=r"settings\.queries\[0\]"):
            parse_job_settings(written)
    unnamed = routed(kind)
    unnamed["routes"][0]["name"] = None
    for wrong in (unnamed, {**routed(kind), "kind": kind}):
        with pytest.raises(
            SettingsError,
            match=r"settings\.queries\[0\].routes: land and direct queries need routes without names",
        ):
            parse_job_settings(document(wrong))
