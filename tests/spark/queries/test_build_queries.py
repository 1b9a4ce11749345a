"""Queries are built from their settings: sources, guards and tables, without a start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from millrace.etl.commits.commit_batch_once import source_digest
from millrace.etl.job import build_queries
from millrace.etl.launch.settings import parse_job_settings
from millrace.etl.queries import query_and_repair_setup
from millrace.etl.queries.direct import DirectBatchWriter
from millrace.etl.queries.land import LandBatchWriter
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.etl.sources.source_union import LegGuards
from tests.faults import small_job_documents
from tests.spark.source_batches import Events

Names = Callable[[str], Table]
READING = {"pattern": True, "group_id_prefix": "readers"}


def source(name: str, topic: str, connection: str, **reading: Any) -> dict[str, Any]:
    return small_job_documents.topic(topic, 10, label=name, **reading) | {"connection": connection}


def job(folder: Path, *queries: dict[str, Any]) -> Any:
    servers = {"cluster": None, "authentication": "none"}
    connections = {name: servers | {"bootstrap_servers": "127.0.0.1:1"} for name in ("main", "other")}
    return parse_job_settings(
        small_job_documents.settings("shop", queries, str(folder), None) | {"connections": connections}
    )


def innermost(handle: Any) -> Any:
    """What writes a batch, without what looks before and after it."""
    while hasattr(handle, "handle"):
        handle = handle.handle
    return handle


def test_a_query_waits_for_a_table_that_another_job_has_yet_to_make(
    spark: SparkSession, table: Names, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One deployment starts both jobs."""
    landed, taken, told = table("landed_later"), table("taken"), Events()
    derive = {
        "kind": "derive", "name": "take", "source_table": f"tests.{landed.name}", "enrich": [], "transform": None,
        "sink": {"kind": "iceberg", "table": f"tests.{taken.name}"}, "trigger_seconds": 0.0, "state": None,
        "dead_letters": None, "route": None, "latest_by": [],
    }  # fmt: skip
    waits: list[float] = []

    def make(seconds: float) -> None:
        waits.append(seconds)
        if len(waits) == 2:
            schema = tmp_path / "text.ddl"
            schema.write_text("text STRING")
            land = {
                "kind": "land", "name": "later", "source": source("later", "later", "main"), "table": f"tests.{landed.name}",
                "format": {"kind": "text"}, "schema": str(schema), "decompress_up_to": None, "redact": [], "rules": [],
                "trigger_seconds": 1.0, "repartition": None,
            }  # fmt: skip
            build_queries.build_queries(JobRun(spark, job(tmp_path / "lands", land), {}, Events().reporter))

    monkeypatch.setattr(query_and_repair_setup, "sleep", make)
    (query,) = build_queries.build_queries(
        JobRun(spark, job(tmp_path / "derives", derive), {}, told.reporter)
    )
    assert query.name == "take"
    assert innermost(query.handle).checkpoint.source == source_digest([f"tests.{landed.name}"])
    assert len(waits) == 2
    assert [e["table"] for e in told.all() if e["event"] == "waiting_for_table"] == [str(landed)]
    monkeypatch.setattr(query_and_repair_setup, "LANDING_SECONDS", 0.0)
    derive["source_table"] += "_never"
    with pytest.raises(
        StartError, match=r"table .*landed_later_\d+_never does not exist; start the job that writes it first"
    ):
        build_queries.build_queries(JobRun(spark, job(tmp_path / "never", derive), {}, told.reporter))


def test_routes_are_opened_leg_by_leg(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    schema = tmp_path / "text.ddl"
    schema.write_text("text STRING")
    payload: dict[str, Any] = {
        "format": {"kind": "text"},
        "schema": str(schema),
        "decompress_up_to": None,
        "redact": [],
        "rules": [],
    }
    topics = {
        "orders": ("orders", source("orders", "orders", "main")),
        "gifts": ("gifts", source("gifts", "gifts", "main")),
        "clicks": ("web.clicks", source("web", r"web\..*", "main", **READING)),
        "bags": ("bags", source("bags", "bags", "other")),
    }
    routes = [
        {"name": n, "changes_of": None, "origin": o, "source": s, **payload} for n, (o, s) in topics.items()
    ]
    shared = {"trigger_seconds": 1.0, "repartition": None}
    landing, letters, sinks = table("landed"), table("letters"), {n: table(n) for n in topics}
    land = {"kind": "route", "name": "land-all", "routes": routes, "table": f"tests.{landing.name}", **shared}
    ends = [
        {**route, "enrich": [], "transform": None, "sink": {"kind": "iceberg", "table": f"tests.{sink.name}"}}
        for route, sink in zip(routes, sinks.values(), strict=True)
    ]
    direct = {"kind": "direct-route", "name": "boards", "routes": ends, **shared}
    direct["dead_letters"] = f"tests.{letters.name}"
    first, second = build_queries.build_queries(
        JobRun(spark, job(tmp_path, land, direct), {}, Events().reporter)
    )
    lander, director = (innermost(query.handle) for query in (first, second))
    assert isinstance(lander, LandBatchWriter)
    assert isinstance(lander.guards, LegGuards)
    assert isinstance(director, DirectBatchWriter)
    # Commits name what is read, by which a second owner of a table is known.
    assert lander.checkpoint.source == director.checkpoint.source != ""
    for legs in (lander.guards.replayed, director.replayed):
        result = [[each.name for each in leg.sources] for leg in legs]
        assert result == [["gifts", "orders"], ["web"], ["bags"]]
        assert [leg.checkpoint.place for leg in legs] == [0, 1, 2]
    for query in (first, second):
        assert query.rebuild is not None
        again = query.rebuild()
        assert innermost(again.handle) is not innermost(query.handle), "it would know of the failed batch"
        assert again.rebuild is not None
        assert query.rows.isStreaming
        assert query.rows.columns[:2] == ["_id", "_source"]
    routed = {"_route", "orders", "gifts", "clicks", "bags", "_bytes"}
    assert routed <= set(spark.table(str(landing)).columns) == set(spark.table(str(letters)).columns)
    for sink in sinks.values():
        assert {"_id", "text", "_written_at"} <= set(spark.table(str(sink)).columns)
