"""What refers to a part of the file that is itself invalid is not told that the part is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import load
from millrace.config.document.problems import ConfigurationError

ROOT = Path(__file__).parents[3]
FILE = """\
project: shape
account: "111122223333"
governance: {other_accounts: ["222233334444"]}
kafka: {mm: {kind: msk}}
streams:
  src:
    kind: kinesis
    existing: arn:aws:kinesis:us-east-1:222233334444:stream/src
    read_role: arn:aws:iam::222233334444:role/reader
    shards: 8
    traffic: {records_per_second: 900, record_size: 400B}
  ticks: {kind: kafka, cluster: mm, traffic: {records_per_second: 900, record_size: 400B}}
  out: {kind: kafka, cluster: mm, traffic: {records_per_second: 900, record_size: 400B}}
jobs:
  all:
    engine: glue
    latency: 5m
    rate: {records_per_second_per_core: 5000}
    queries:
      land-hub:
        kind: route
        table: hub_landed
        routes:
          aa: {source: src, schema: pipelines/clicks/schemas/click.ddl}
          bb: {source: ticks, schema: pipelines/clicks/schemas/click.ddl}
      first: {kind: derive, source: hub_landed, route: aa, sink: {kind: iceberg, table: first}}
      send: {kind: derive, source: hub_landed, route: bb, sink: {kind: kafka, topic: out}, dead_letters: late}
"""
ROUTES = "jobs.all.queries.land-hub.routes"
ROWS = {
    "a cluster's name": ("mm", "m", ["kafka.m", "streams.ticks.cluster", "streams.out.cluster"]),
    "a topic of no cluster": ("out: {kind: kafka, cluster: mm,", "out: {kind: kafka,", ["streams.out.cluster"]),
    "a stream's name": ("  out:", "  o:", ["streams.o", "jobs.all.queries.send.sink.topic"]),
    "a route's source": ("{source: src", "{source: s", [f"{ROUTES}.aa.source"]),
    "a route without schema": (
        "source: ticks, schema: pipelines/clicks/schemas/click.ddl", "source: ticks", [f"{ROUTES}.bb.schema"],
    ),
    "a query's name": ("land-hub", "l", ["jobs.all.queries.l"]),
    "a table's name": ("table: hub_landed", "table: Hub-Landed", ["jobs.all.queries.land-hub.table"]),
    "no table": ("        table: hub_landed\n", "", ["jobs.all.queries.land-hub.table"]),
    "another table": (
        "table: hub_landed", "table: lands",
        ["jobs.all.queries.first.source", "jobs.all.queries.send.source"],
    ),
    "a stream's ARN": ("arn:aws:kinesis", "arn:aws:kinesys", ["streams.src.existing"]),
    "other accounts": ('["222233334444"]', "222233334444", ["governance.other_accounts"]),
}  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_only_the_mistake_is_reported(tmp_path: Path, name: str) -> None:
    file = tmp_path / "shape.yaml"
    assert load(file, ROOT, {file: FILE})
    old, new, keys = ROWS[name]
    assert old in FILE
    with pytest.raises(ConfigurationError) as refused:
        load(file, ROOT, {file: FILE.replace(old, new)})
    assert sorted(each.key for each in refused.value.problems) == sorted(keys), str(refused.value)
    assert "stand_in" not in str(refused.value)
