"""The table of Kafka's options in ``docs/sources.md``: from the environment file to the connector, row by row."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

import pytest

from millrace.config import Names, load
from millrace.etl.launch.settings import DeriveSettings
from millrace.etl.launch.sources import KafkaSource
from millrace.etl.sources.kafka import topic_stream
from millrace.infra.launch.launch_settings import job_settings
from millrace.sizing import plan

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "sources.md").read_text()

CLUSTER = "bootstrap_servers: 10.0.0.1:9092", "authentication: none"
IAM = "arn: 'arn:aws:kafka:us-east-1:111122223333:cluster/shop/0'"

ENVIRONMENT = """\
project: shop
account: "111122223333"
kafka:
  main:
    kind: external
    {cluster}
streams:
  orders:
    kind: kafka
    cluster: main
    partitions: 4
    existing: true
    {stream}
    traffic: {{records_per_second: 100, record_size: 1KiB}}
jobs:
  orders:
    engine: emr
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land-orders:
        kind: land
        source: orders
        table: orders_landed
        schema: pipelines/shop/schemas/order.ddl
        {query}
"""


def rows() -> list[tuple[str, str, str]]:
    table = DOCUMENT.partition("## Options of Kafka")[2].partition("\n## ")[0]
    lines = [re.split(r"(?<!\\)\|", line.strip("|")) for line in table.splitlines() if line.startswith("|")]
    cells = [[cell.strip().replace("\\|", "|") for cell in line] for line in lines[2:]]
    return [(where, ours, theirs) for where, ours, theirs in cells]


def told(cell: str) -> dict[str, str]:
    return dict(item.split("=", 1) for item in re.findall(r"`([^`]+=[^`]+)`", cell))


def options(project: Path, where: str, ours: str) -> dict[str, str]:
    """What the core gives the connector for an environment file with one line of ours in it."""
    line = ours.strip("`") if where else ""
    cluster = [line, *(each for each in CLUSTER if each.split(":")[0] != line.split(":")[0])]
    parts = {"cluster": "\n    ".join([*(cluster if where == "cluster" else CLUSTER), IAM])}
    parts |= {"stream": line if where == "stream" else "", "query": line if where == "query" else ""}
    (project / "environments" / "shop.yaml").write_text(ENVIRONMENT.format(**parts))
    environment = load("shop", root=project)
    settings = job_settings(environment, plan(environment).jobs["orders"], Names(environment, "111122223333"))
    job = settings
    (query,) = job.queries
    assert not isinstance(query, DeriveSettings)
    [source] = query.sources
    assert isinstance(source, KafkaSource)
    return topic_stream.stream_options(source, job.connections["main"], partitions=query.repartition)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    schemas = tmp_path / "pipelines" / "shop" / "schemas"
    schemas.mkdir(parents=True)
    (schemas / "order.ddl").write_text("id STRING\n")
    (tmp_path / "environments").mkdir()
    return tmp_path


@pytest.mark.parametrize(("where", "ours", "theirs"), rows(), ids=lambda cell: cell[:40])
def test_a_row_is_what_the_core_sets(project: Path, where: str, ours: str, theirs: str) -> None:
    result = options(project, where, ours)
    wanted = told(theirs)
    assert {name: result.get(name) for name in wanted} == wanted
    if not wanted:
        assert not any("sasl" in name or "security" in name for name in result)


def test_no_option_is_left_out_of_the_table(project: Path) -> None:
    named = {name for _, _, theirs in rows() for name in told(theirs)}
    assert {name for where, ours, _ in rows() for name in options(project, where, ours)} == named
    assert len(named) > 15


def test_one_of_the_three_ways_to_name_what_is_read(project: Path) -> None:
    """Spark refuses two of them, and takes the options of another start in silence."""
    ways = {"subscribe", "subscribePattern", "assign"}
    starts = {"startingOffsets", "startingTimestamp"}
    for where, ours, _ in rows():
        result = options(project, where, ours)
        assert len(ways & result.keys()) == 1, ours
        assert len(starts & result.keys()) == 1, ours


def test_the_connector_knows_every_option() -> None:
    jars = list((ROOT / ".millrace/jars/kafka-client").glob("spark-sql-kafka-0-10_*.jar"))
    assert jars, "no JVM jars: run `make jars`"
    with zipfile.ZipFile(jars[0]) as jar:
        code = b"".join(jar.read(n) for n in jar.namelist() if n.endswith(".class")).lower()
    own = {name for _, _, theirs in rows() for name in told(theirs) if not name.startswith("kafka.")}
    assert {name for name in own if name.lower().encode() not in code} == set()
