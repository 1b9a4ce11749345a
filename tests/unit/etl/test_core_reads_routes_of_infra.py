"""The core reads the routes that ``infra`` writes, for the environment of ``docs/sources.md``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millrace.cli.run.notebook import build_notebook
from millrace.config import Environment, Names, load
from millrace.etl.launch import typed_json
from millrace.etl.launch.settings import (
    DeriveSettings,
    DirectSettings,
    JobSettings,
    LandSettings,
    parse_job_settings,
)
from millrace.etl.launch.sources import KafkaSource, KinesisSource
from millrace.infra.launch.launch_settings import job_settings
from millrace.infra.permissions.job_permissions import JobPermissions
from millrace.infra.permissions.source_permissions import source_grants
from millrace.sizing import Plan, plan
from millrace.sizing.plan_model import JobPlan

DOCUMENT = (Path(__file__).parents[3] / "docs" / "sources.md").read_text()


def example(heading: str) -> str:
    return DOCUMENT.partition(f"## {heading}")[2].partition("```yaml\n")[2].partition("```")[0]


def loaded(root: Path, name: str, text: str) -> Environment:
    schemas = root / "pipelines" / "airport" / "schemas"
    schemas.mkdir(parents=True)
    (schemas / "any.ddl").write_text("id STRING\n")
    (root / "environments").mkdir()
    (root / "environments" / f"{name}.yaml").write_text(text)
    return load(name, root=root)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return loaded(tmp_path_factory.mktemp("airport"), "airport", example("Route:"))


@pytest.fixture(scope="module")
def planned(environment: Environment) -> Plan:
    return plan(environment)


@pytest.fixture(scope="module")
def names(environment: Environment) -> Names:
    return Names(environment, "111122223333")


@pytest.fixture(scope="module")
def read(environment: Environment, planned: Plan, names: Names) -> JobSettings:
    return read_back(job_settings(environment, planned.jobs["ground"], names))


def read_back(settings: JobSettings) -> JobSettings:
    """Settings as the core reads what is written of them: they are the same."""
    read = parse_job_settings(json.loads(json.dumps(typed_json.to_json_value(settings))))
    assert read == settings
    return read


def test_a_record_is_told_by_its_topic_or_stream(read: JobSettings) -> None:
    query = read.queries[0]
    assert isinstance(query, LandSettings)
    assert {route.name: (route.source.name, route.origin) for route in query.routes} == {
        "bags": ("baggage", "airport-airport-baggage"),
        "bookings": ("bookings", "bookings"),
        "clicks": ("web", "web.clicks"),
        "searches": ("web", "web.searches"),
    }
    assert [type(source) for source in query.sources] == [KinesisSource, KafkaSource, KafkaSource]
    derived = [each.route for each in read.queries if isinstance(each, DeriveSettings)]
    assert derived == ["bags", None]


def test_a_batch_is_shared_out_by_what_arrives(read: JobSettings, planned: Plan) -> None:
    query, limit = read.queries[0], planned.jobs["ground"].queries["land-ground"].records_per_batch
    assert isinstance(query, LandSettings)
    assert limit is not None
    parts = {source.name: source.records_per_batch for source in query.sources}
    assert parts["baggage"] is not None
    assert sum(part or 0 for part in parts.values()) - limit.value in range(3)  # each rounded up
    assert [round((parts[n] or 0) / limit.value, 3) for n in ("baggage", "bookings", "web")] == [
        0.5,
        0.167,
        0.333,
    ]


def test_the_plan_counts_all_that_a_query_reads(planned: Plan) -> None:
    assert "1,200 records/s at peak" in planned.jobs["ground"].cores.why
    # The stream gets shards for its own half of the work, not for all of it.
    shards = planned.streams["baggage"].partitions
    assert shards is not None
    assert shards.value <= planned.jobs["ground"].cores.value


def test_the_role_reads_the_topics_of_a_pattern_and_no_others(names: Names, planned: Plan) -> None:
    grants = {grant.sid: grant for grant in source_grants(names, "ground")}
    topics = [str(resource).rsplit("/", 1)[1] for resource in grants["ReadTopics"].resources]
    assert topics == ["bookings", "web.*"]
    assert "ReadStreams" in grants


def test_a_notebook_samples_each_route(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(environment.value_locations.root)
    cells = ["".join(cell["source"]) for cell in build_notebook(environment, "ground", {})["cells"]]
    assert [c for c in cells if c.startswith("### Route")] == [
        f"### Route `{name}`" for name in ("bags", "bookings", "clicks", "searches")
    ]
    assert sum("'subscribe': 'web.searches'" in cell for cell in cells) == 1


def test_direct_routes_survive_the_core_with_their_sinks_and_permissions(tmp_path: Path) -> None:
    environment = loaded(tmp_path, "terminal", example("Direct routes"))
    planned, names = plan(environment).jobs["boards"], Names(environment, "111122223333")
    read = read_back(job_settings(environment, planned, names))
    (query,) = read.queries
    assert isinstance(query, DirectSettings)
    assert {route.name: (route.origin, route.sink.kind) for route in query.routes} == {
        "gates": ("gates", "iceberg"),
        "clicks": ("web.clicks", "dynamodb"),
        "searches": ("web.searches", "parquet"),
    }
    assert [source.name for source in query.sources] == ["gates", "web"]
    assert read.upkeep is not None
    kept = [table.table for table in read.upkeep.tables]
    assert kept == ["terminal_terminal.gates", "terminal_terminal.boards_letters"]
    keys = (
        "arn:aws:kms:us-east-1:111122223333:key/data",
        "arn:aws:kms:us-east-1:111122223333:key/logs",
        None,
    )
    grants = {grant.sid: grant for grant in JobPermissions(names, planned, *keys, "assets", "logs").grants()}
    assert [str(r).rsplit("/", 1)[1] for r in grants["ReadTopics"].resources] == ["gates", "web.*"]
    assert {"WriteItems", "WriteFiles", "WriteTables"} <= grants.keys()


def test_the_role_may_use_the_groups_that_queries_begin_so(
    names: Names, planned: Plan, tmp_path: Path
) -> None:
    def groups(of: Names, job: JobPlan) -> list[str]:
        grants = {grant.sid: grant for grant in source_grants(of, job.name)}
        return [str(resource).rsplit("/", 1)[1] for resource in grants["ConsumerGroups"].resources]

    assert groups(names, planned.jobs["ground"]) == ["spark-kafka-source-*"]
    asked = "schema: pipelines/airport/schemas/any.ddl, kafka: {group_id_prefix: shop-readers, lag_group: shop-lag}"
    text = example("Direct routes") + (
        f"      gates: {{kind: land, source: gates, table: gates_landed, {asked}}}\n"
    )
    environment = loaded(tmp_path, "terminal", text)
    job = plan(environment).jobs["boards"]
    assert groups(Names(environment, "111122223333"), job) == [
        "spark-kafka-source-*",
        "shop-readers-*",
        "shop-lag",
    ]
    read_back(job_settings(environment, job, Names(environment, "111122223333")))
