"""Health of a job that runs in turns: a run that has finished, whatever its queries found to read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from millrace.config import Names, load
from millrace.lifecycle.jobs import health
from millrace.sandbox.programs.toolchain import ROOT


@pytest.mark.parametrize("every", [None, "10m"])
@pytest.mark.parametrize("finished", [True, False])
def test_a_run_that_has_finished_is_what_a_start_waits_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any, every: str | None, finished: bool
) -> None:
    file = tmp_path / "turns.yaml"
    turns = "" if every is None else f"run_every: {every}, "
    file.write_text(
        'project: turns\naccount: "111122223333"\n'
        "streams:\n  clicks: {kind: kinesis, traffic: {records_per_second: 5, record_size: 1KiB}}\n"
        f"jobs:\n  clicks:\n    {{engine: glue, latency: 15m, {turns}queries: {{land: {{kind: land, source: clicks, table: landed, "
        "schema: pipelines/clicks/schemas/click.ddl}}}\n"
    )
    aws: Any = SimpleNamespace(names=Names(load(file, ROOT), "111122223333"))
    monkeypatch.setattr(health, "_values", lambda *_: {"land": []})
    monkeypatch.setattr(health, "_iterator_ages", lambda *_: ())
    monkeypatch.setattr(health, "_failures", lambda *_: ())
    said = {"finished": [{"event": "finished"}] if finished else []}
    monkeypatch.setattr(health.logs, "events", lambda _aws, _job, _since, event: said[event])
    waiting = health.read_health(aws, "clicks", 0.0).waiting
    assert waiting == (() if finished and every else ("land",))
