"""Permissions of the job that maintains a table and of those that read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from millrace.config.aws.resource_names import Names
from millrace.etl.launch.settings import MaintainedTableSettings
from millrace.infra.launch.launch_settings import job_settings
from millrace.infra.permissions.job_permissions import JobPermissions
from millrace.sizing import plan

FILE = """
project: shop
account: "111122223333"
storage: {storage}
streams:
  clicks: {{kind: kinesis, traffic: {{records_per_second: 10, record_size: 500B}}}}
jobs:
  land:
    engine: glue
    rate: {{records_per_second_per_core: 5000}}
    queries:
      land: {{kind: land, source: clicks, table: landed, schema: pipelines/clicks/schemas/click.ddl}}
  derive:
    engine: emr
    rate: {{records_per_second_per_core: 5000}}
    queries:
      copy: {{kind: derive, source: landed, sink: {{kind: iceberg, table: copied}}}}
"""


def environment(tmp_path: Path, storage: str = "{}"):
    file = tmp_path / "tried.yaml"
    file.write_text(FILE.format(storage=storage))
    return load(str(file))


def permissions(tmp_path: Path, job: str, storage: str = "{}") -> dict[str, list[str]]:
    loaded = environment(tmp_path, storage)
    names = Names(loaded, "111122223333")
    keys = ("arn:data", "arn:logs", "arn:streams")
    made = JobPermissions(names, plan(loaded).jobs[job], *keys, assets="assets/job", log_group="logs")
    grants = made.grants()
    return {grant.sid: grant.resources for grant in grants}


def test_a_job_may_see_where_the_readers_of_its_tables_are(tmp_path: Path) -> None:
    loaded = environment(tmp_path)
    names = Names(loaded, "111122223333")
    upkeep = job_settings(loaded, plan(loaded).jobs["land"], names).upkeep
    reader = f"{names.checkpoints_url('derive')}/copy"
    assert upkeep is not None
    assert upkeep.tables == (MaintainedTableSettings(names.table("landed"), (reader,)),)
    seen = permissions(tmp_path, "land")["ReadersCheckpoints"]
    place = reader.removeprefix("s3://")
    assert [arn.split(":::")[1] for arn in seen] == [f"{place}/commits/*", f"{place}/offsets/*"]


def test_nobody_else_may(tmp_path: Path) -> None:
    assert "ReadersCheckpoints" not in permissions(tmp_path, "derive")
    assert "ReadersCheckpoints" not in permissions(tmp_path, "land", "{upkeep: null}")


def test_somebody_elses_upkeep_is_left_to_them(tmp_path: Path) -> None:
    loaded = environment(tmp_path, "{upkeep: null}")
    names = Names(loaded, "111122223333")
    assert job_settings(loaded, plan(loaded).jobs["land"], names).upkeep is None


@pytest.mark.parametrize(
    ("storage", "key"),
    [
        ("{upkeep: {snapshots: 1m}}", "storage.upkeep.snapshots"),
        ("{upkeep: {orphans: 1h}}", "storage.upkeep.orphans"),
        ("{upkeep: {file_size: 1KiB}}", "storage.upkeep.file_size"),
        ("{upkeep: {snapshot: 1d}}", "storage.upkeep.snapshot"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, storage: str, key: str) -> None:
    with pytest.raises(ConfigurationError, match=key):
        environment(tmp_path, storage)


def test_a_reference_is_read_anew_before_its_state_is_forgotten(tmp_path: Path) -> None:
    file = tmp_path / "tried.yaml"
    enrich = "enrich: [{table: airlines, on: {a: b}, columns: {c: d}, refresh: 13h}], sink"
    file.write_text(FILE.format(storage="{}").replace("sink", enrich, 1))
    with pytest.raises(ConfigurationError, match=r"refresh(.|\n)*13h(.|\n)*at most 12h"):
        load(str(file))
