"""All mistakes of a file are reported at once, also beside an engine or a kind that does not exist."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import load
from millrace.config.document.problems import ConfigurationError

FILE = """\
project: shape
account: "111122223333"
streams:
  clicks: {{kind: {stream}, traffic: {{records_per_second: 9000, record_size: 400B, basis: measured}}}}
  topic: {{kind: kinesis, traffic: {{records_per_second: few, record_size: 1KiB, basis: measured}}}}
jobs:
  clicks:
    {engine}
    latency: 60
    catch_up: {{outage: 10m}}
    worker: G.3X
    rate: {{records_per_second_per_core: -5, batch_overhead: 2}}
    queries:
      land-click: {{kind: {query}, source: click, table: Clicks-Landed, schema: pipelines/none.ddl, trigger: soon}}
      land: {{kind: land, source: clicks, table: Clicks, schema: pipelines/none.ddl}}
"""
KEYS = {
    "jobs.clicks.latency",
    "jobs.clicks.catch_up.within",
    "jobs.clicks.worker",
    "jobs.clicks.rate.batch_overhead",
    "jobs.clicks.rate.records_per_second_per_core",
    "jobs.clicks.queries.land-click.source",
    "jobs.clicks.queries.land-click.table",
    "jobs.clicks.queries.land-click.schema",
    "jobs.clicks.queries.land-click.trigger",
    "jobs.clicks.queries.land.table",
    "jobs.clicks.queries.land.schema",
    "streams.topic.traffic.records_per_second",
}


@pytest.mark.parametrize(
    ("engine", "query", "stream", "more"),
    [
        ("engine: glue", "land", "kinesis", set()),
        ("engine: flink", "land", "kinesis", {"jobs.clicks.engine"}),
        ("maintenance_window: 'Mon:1'", "land", "kinesis", {"jobs.clicks.engine"}),
        (
            "engine: flink",
            "lnad",
            "kinesiss",
            {"jobs.clicks.engine", "jobs.clicks.queries.land-click.kind", "streams.clicks.kind"},
        ),
    ],
)
def test_one_pass_tells_all(tmp_path: Path, engine: str, query: str, stream: str, more: set[str]) -> None:
    file = tmp_path / "environments" / "bad.yaml"
    file.parent.mkdir()
    file.write_text(FILE.format(engine=engine, query=query, stream=stream))
    with pytest.raises(ConfigurationError) as refused:
        load(file, tmp_path)
    keys = {problem.key for problem in refused.value.problems}
    assert keys - {"jobs.clicks.maintenance_window"} == KEYS | more
