"""Default rates of a plan without a benchmark, and their limits."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import load
from millrace.config.formats.protobuf import ProtobufFormat
from millrace.config.model import Environment
from millrace.sizing import plan
from millrace.sizing.number_derivation import derivation_of_number
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.benchmark_figures import QuerySpeed, speed_of_query
from millrace.sizing.queries.environment_demands import query_demands_and_findings

ENVIRONMENT = """\
project: shop
account: "111122223333"
streams:
  clicks: {{kind: kinesis, traffic: {{records_per_second: 2000, peak_factor: 2, record_size: {size}}}}}
jobs:
  clicks:
    engine: {engine}
    latency: 5m
{job}
    queries:
      land: {{kind: land, source: clicks, table: clicks_landed, schema: {schema}, format: {format}{query}}}
      pages: {{kind: derive, source: clicks_landed, sink: {{kind: iceberg, table: pages}}}}
"""
DDL = "pipelines/click.ddl"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "environments").mkdir()
    (tmp_path / "pipelines").mkdir()
    (tmp_path / DDL).write_text("page STRING\n")
    return tmp_path


def made(
    project: Path,
    *,
    size: str = "400B",
    engine: str = "glue",
    job: str = "",
    query: str = "",
    form: str = "json",
) -> Environment:
    text = ENVIRONMENT.format(size=size, engine=engine, job=job, query=query, schema=DDL, format=form)
    (project / "environments" / "shop.yaml").write_text(text)
    return load("shop", root=project)


def of(environment: Environment, query: str = "land") -> QuerySpeed:
    return speed_of_query(environment, "clicks", query)


def test_it_is_what_was_measured_with_caution(project: Path) -> None:
    found, table = of(made(project)), service_limits()
    taken = table["rate.landing.core_seconds"] + table["rate.decoding.core_seconds"]
    assert found.per_record == pytest.approx(taken * table["rate.caution"])
    assert found.basis == "assumed"
    assert "a default for a record of json" in found.origin
    assert "`millrace bench` measures yours" in found.origin


def test_a_larger_record_costs_as_its_bytes_and_a_smaller_one_no_less(project: Path) -> None:
    at = {size: of(made(project, size=size)).per_record for size in ("100B", "400B", "4000B")}
    assert at["100B"] == at["400B"]
    assert at["4000B"] == pytest.approx(10 * at["400B"])


def test_a_format_that_decodes_slowly_is_slower(project: Path) -> None:
    environment = made(project)
    land = environment.jobs["clicks"].queries["land"]
    given = land.model_copy(update={"format": ProtobufFormat(kind="protobuf", message="shop.Click")})
    job = environment.jobs["clicks"].model_copy(update={"queries": {"land": given}})
    changed = environment.model_copy(update={"jobs": {"clicks": job}})
    assert of(changed).per_record > 2 * of(environment).per_record
    assert "a record of protobuf" in of(changed).origin


def test_the_plan_is_marked_and_says_how_to_measure(project: Path) -> None:
    environment = made(project)
    sized = plan(environment)
    job = sized.jobs["clicks"]
    assert job.cores.assumed
    told = [line for line in job.advice if "has no rate" in line]
    assert [line.split()[0] for line in told] == ["land", "pages"]
    assert "default" in repr(derivation_of_number(environment, sized, "jobs.clicks.cores"))


def test_a_jobs_rate_is_for_all_and_a_querys_for_itself(project: Path) -> None:
    environment = made(
        project,
        job="    rate: {records_per_second_per_core: 1000}",
        query=", rate: {records_per_second_per_core: 250, batch_overhead: 4s}",
    )
    assert (of(environment).per_record, of(environment).overhead) == (1 / 250, 4)
    assert (of(environment, "pages").per_record, of(environment, "pages").overhead) == (1 / 1000, 2)
    assert {
        demand.query: demand.work.per_record for demand in query_demands_and_findings(environment)[0]
    } == {
        "land": 1 / 250,
        "pages": 1 / 1000,
    }
    assert not [line for line in plan(environment).jobs["clicks"].advice if "has no rate" in line]
