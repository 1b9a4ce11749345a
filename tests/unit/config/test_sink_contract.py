"""Contract of all sinks: the launch document is read as it was written, with no key left over."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from millrace.config import Environment, Names, load
from millrace.config.sinks import KINDS
from millrace.config.sinks.base import SinkContext
from millrace.etl.launch import typed_json
from millrace.etl.launch.sinks import SinkSettings

STREAMS = """\
project: shop
kafka: {main: {kind: external, bootstrap_servers: "broker:9092"}}
streams:
  alerts: {kind: kinesis, traffic: {records_per_second: 10, record_size: 500B}}
  totals:
    kind: kafka
    cluster: main
    existing: true
    partitions: 3
    traffic: {records_per_second: 1, record_size: 1KiB}
jobs:
  clicks:
    engine: glue
    latency: 5m
    rate: {records_per_second_per_core: 5000}
    queries:
      land: {kind: land, source: alerts, table: landed, schema: pipelines/clicks/schemas/click.ddl}
"""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    root = tmp_path_factory.mktemp("project")
    (root / "environments").mkdir()
    (root / "environments" / "streams.yaml").write_text(STREAMS)
    (root / "pipelines").symlink_to(Path(__file__).parents[3] / "pipelines")
    return load("streams", root=root)


def examples(kind: str, *, required: bool) -> dict[str, Any]:
    """A sink of the examples that stand on its keys: of all of them, or of those that it cannot do without."""
    fields = KINDS[kind].model_fields.items()
    given = {n: f.examples[0] for n, f in fields if f.examples and (f.is_required() or not required)}
    return {"kind": kind, **given}


@pytest.mark.parametrize("required", [True, False], ids=["required", "all"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_core_reads_what_the_configuration_writes(
    environment: Environment, kind: str, required: bool
) -> None:
    asked = KINDS[kind].model_validate_json(json.dumps(examples(kind, required=required)), strict=True)
    context = SinkContext(Names(environment, "111122223333"), batch_bytes=1e9)
    read = asked.launch_settings(context)
    written = json.loads(json.dumps(typed_json.to_json_value(read)))
    assert typed_json.read_typed(SinkSettings, written, "sink") == read
    assert read.kind_and_target_name.startswith(f"{kind} ")
    assert (read.lake_table is not None) == asked.in_catalog
    # What `millrace erase` does not reach it tells a person to do.
    by_hand = asked.manual_erasure_steps("a = 1", context)
    assert (by_hand is None) == asked.in_catalog
    name = asked.target_key_and_name[1].replace("/", " ").split()[-1]
    assert by_hand is None or name in by_hand, by_hand
    for key in written:
        with pytest.raises(
            typed_json.SettingsError, match=f"missing keys {key}|sink.kind: None is not one of"
        ):
            typed_json.read_typed(SinkSettings, {k: v for k, v in written.items() if k != key}, "sink")
    with pytest.raises(typed_json.SettingsError, match="unknown keys colour"):
        typed_json.read_typed(SinkSettings, {**written, "colour": "red"}, "sink")
    for grant in asked.grants(context):
        assert bool(grant.resources_with_wildcard) == (grant.why is not None), grant


@pytest.mark.parametrize("kind", KINDS)
def test_memory_is_planned_for_each_sink_whose_rows_pass_through_python(kind: str) -> None:
    """Those whose module hands rows to Python tasks; Spark's own writers need no more than the heap."""
    module = typed_json.import_module_of(SinkSettings.KINDS[kind])
    assert KINDS[kind].in_python == ("python_task_writes.send_batch(" in inspect.getsource(module))
