"""Environments loaded from YAML text."""

from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.config import Environment, load
from millrace.sizing import planning

Loader = Callable[[str], Environment]

TEMPLATE = """\
project: advice
account: "111122223333"
{top}
streams:
  clicks:
    kind: kinesis
    {stream}
    traffic: {{records_per_second: {rate}, record_size: {size}, basis: {basis}}}
jobs:
  clicks:
    engine: glue
    latency: {sla}
    rate: {{records_per_second_per_core: {per_core}, batch_overhead: {overhead}, basis: {measured}}}
    {job}
    queries:
      land:
        kind: land
        source: clicks
        table: clicks_landed
        schema: pipelines/clicks/schemas/click.ddl
{more}
"""

DERIVE = """\
      derive:
        kind: derive
        source: clicks_landed
        sink: {kind: iceberg, table: clicks_derived}
"""

DEFAULTS = {
    "top": "",
    "stream": "mode: provisioned",
    "rate": "23500",
    "size": "100B",
    "basis": "measured",
    "sla": "16s",
    "per_core": "1000",
    "overhead": "2s",
    "measured": "measured",
    "job": "worker: G.1X",
    "more": "",
}


def text(**changes: str) -> str:
    return TEMPLATE.format(**{**DEFAULTS, **changes})


@pytest.fixture
def from_text(tmp_path: Path) -> Loader:
    schema = tmp_path / "pipelines" / "clicks" / "schemas" / "click.ddl"
    schema.parent.mkdir(parents=True)
    schema.write_text("page STRING\n")
    (tmp_path / "environments").mkdir()

    def loaded(yaml: str) -> Environment:
        (tmp_path / "environments" / "advice.yaml").write_text(yaml)
        return load("advice", root=tmp_path)

    return loaded


@pytest.fixture
def without_remedies(monkeypatch: pytest.MonkeyPatch) -> None:
    """No relation asks what would make a refused environment possible, which takes many plans."""
    monkeypatch.setattr(planning, "findings_with_remedies", lambda _, problems, __: problems)
