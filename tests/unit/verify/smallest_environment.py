"""The smallest environment that verifying and billing need: one stream of shards, one job that lands it."""

from __future__ import annotations

TINY = """\
project: tiny
account: "123456789012"
streams:
  clicks:
    kind: kinesis
    traffic: {records_per_second: 100, record_size: 500B}
jobs:
  clicks:
    engine: glue
    rate: {records_per_second_per_core: 5000}
    queries:
      land-clicks:
        kind: land
        source: clicks
        table: clicks_landed
        schema: pipelines/clicks/schemas/click.ddl
"""
