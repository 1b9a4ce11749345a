"""Executor memory of sinks whose rows pass through Python."""

import pytest

from millrace.sizing import plan
from tests.unit.sizing.conftest import Loader

DIRECT = """\
project: advice
account: "111122223333"
kafka: {{main: {{kind: msk}}}}
streams:
  clicks:
    kind: kafka
    cluster: main
    traffic: {{records_per_second: 1000, record_size: 1KiB, basis: measured}}
jobs:
  clicks:
    engine: glue
    latency: 60s
    rate: {{records_per_second_per_core: 1000, basis: measured}}
    queries:
      send:
{query}
"""
ONE = """\
        kind: direct
        source: clicks
        schema: pipelines/clicks/schemas/click.ddl
        dead_letters: letters
        sink: {sink}
"""
ROUTED = """\
        kind: direct-route
        dead_letters: letters
        routes:
          all: {{source: clicks, schema: pipelines/clicks/schemas/click.ddl, sink: {sink}}}
"""


@pytest.mark.parametrize("query", [ONE, ROUTED], ids=["direct", "direct-route"])
def test_sinks_in_python_take_memory_in_each_kind_of_query(from_text: Loader, query: str) -> None:
    def memory(sink: str) -> str:
        return plan(from_text(DIRECT.format(query=query.format(sink=sink)))).jobs["clicks"].memory.why

    assert "of Python for each task" in memory("{kind: dynamodb, table: clicks}")
    assert "of Python" not in memory("{kind: iceberg, table: clicks}")
