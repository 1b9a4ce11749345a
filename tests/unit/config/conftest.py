"""A project in a temporary folder with one valid environment, which each test changes."""

from pathlib import Path

import pytest

GOOD = """\
project: shop
account: "111122223333"
region: us-east-1
tags:
  team: web
network:
  availability_zones: 3
kafka:
  main:
    kind: msk
    version: 3.9.x
streams:
  clicks:
    kind: kinesis
    retention: 24h
    traffic:
      records_per_second: 800
      record_size: 500B
  orders:
    kind: kafka
    cluster: main
    topic: orders
    traffic: {records_per_second: 100, record_size: 1KiB}
jobs:
  clicks:
    engine: glue
    version: "5.1"
    worker: G.1X
    latency: 60s
    rate: {records_per_second_per_core: 5000, batch_overhead: 2s}
    spark:
      spark.sql.shuffle.partitions: "8"
    queries:
      land-clicks:
        kind: land
        source: clicks
        table: clicks_landed
        schema: pipelines/shop/schemas/click.ddl
      count-clicks:
        kind: derive
        source: clicks_landed
        transform: pipelines.shop.transforms:counted
        enrich:
          - table: pages
            on: {page: page}
            columns: {title: title}
        sink: {kind: iceberg, table: clicks_counted}
  orders:
    engine: emr
    worker: {vcpu: 4, memory: 16GiB}
    rate: {records_per_second_per_core: 5000}
    queries:
      land-orders:
        kind: land
        source: orders
        table: orders_landed
        schema: pipelines/shop/schemas/click.ddl
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shop = tmp_path / "pipelines" / "shop"
    (shop / "schemas").mkdir(parents=True)
    (shop / "schemas" / "click.ddl").write_text("page STRING NOT NULL, at TIMESTAMP\n")
    (shop / "transforms.py").write_text(
        "from pyspark.sql import nothing_of_it_is_imported_here\n\n\ndef counted(clicks):\n    return clicks\n"
        "\n\ndef joined(clicks, others):\n    return clicks\n"
    )
    (shop / "broken.py").write_text("def counted(:\n")
    (tmp_path / "environments").mkdir()
    (tmp_path / "environments" / "shop.yaml").write_text(GOOD)
    return tmp_path
