"""Queries that cannot run in bounded runs are refused, all at once, each with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.config import ConfigurationError, load
from tests.unit.config.conftest import GOOD

CLICKS = "jobs.clicks.queries"
KAFKA_QUERY = """\
        source: orders
        table: orders_landed
"""


def problems(project: Path, text: str) -> dict[str, tuple[str, str]]:
    (project / "environments").mkdir(exist_ok=True)
    (project / "environments" / "turns.yaml").write_text(text)
    try:
        load("turns", root=project)
    except ConfigurationError as error:
        return {problem.key: (problem.value, problem.allowed) for problem in error.problems}
    return {}


def in_turns(every: str, text: str = GOOD) -> str:
    return text.replace("    latency: 60s\n", f"    latency: 15m\n    run_every: {every}\n")


def test_a_good_file_may_run_in_turns(project: Path) -> None:
    assert problems(project, in_turns("10m")) == {}


def test_all_that_does_not_go_with_runs_is_told_at_once(project: Path) -> None:
    bad = in_turns("90s").replace("    worker: G.1X\n", "    worker: G.025X\n")
    bad = bad.replace(
        "        source: clicks\n", "        source: clicks\n        start: latest\n        trigger: 5s\n"
    )
    bad = bad.replace("    engine: emr\n", "    engine: emr\n    run_every: 10m\n    latency: 20m\n")
    bad = bad.replace(
        KAFKA_QUERY,
        KAFKA_QUERY + "        start: latest\n        kafka: {min_records_per_batch: 5, max_delay: 9s}\n",
    )
    result = problems(project, bad)
    assert {key: value for key, (value, _) in result.items()} == {
        "jobs.clicks.worker": "G.025X",
        "jobs.clicks.run_every": "90s",
        f"{CLICKS}.land-clicks.trigger": "5s",
        # A topic has its start in the checkpoint from the first run on.
        f"{CLICKS}.land-clicks.start": "latest",
        "jobs.orders.queries.land-orders.kafka.min_records_per_batch": "5",
    }
    assert result["jobs.clicks.run_every"][1] == "whole minutes, 5 minutes to a day"
    assert "streaming jobs only" in result["jobs.clicks.worker"][1]


@pytest.mark.parametrize("tables", [("clicks_landed", "orders_landed"), ("orders_landed", "clicks_landed")])
def test_a_joined_table_of_a_run_is_as_one_that_is_read(project: Path, tables: tuple[str, str]) -> None:
    first, second = tables
    third = f"""\
  both:
    engine: glue
    latency: 5m
    rate: 1000
    queries:
      both:
        kind: derive
        source: {first}
        transform: pipelines.shop.transforms:joined
        sink: {{kind: iceberg, table: both}}
        state:
          watermark: {{time: at, delay: 10m}}
          join: {{source: {second}, watermark: {{time: at, delay: 1m}}}}
"""
    begin = GOOD.index("  orders:\n    engine: emr")
    result = problems(project, in_turns("10m", GOOD[:begin] + third + GOOD[begin:]))
    assert result["jobs.both.queries.both.source"][0] == "clicks_landed"


@pytest.mark.parametrize("lands", [True, False])
def test_a_run_derives_what_it_has_landed_itself(project: Path, lands: bool) -> None:
    """The other job would read a table between two of its commits, or wait for a period that is not its own."""
    derive = GOOD[GOOD.index("      count-clicks:") : GOOD.index("  orders:\n    engine: emr")]
    apart = GOOD.replace(derive, "") + derive
    if not lands:
        apart = apart.replace("    engine: emr\n", "    engine: emr\n    run_every: 10m\n    latency: 20m\n")
    result = problems(project, in_turns("10m", apart) if lands else apart)
    assert list(result) == ["jobs.orders.queries.count-clicks.source"]
    assert problems(project, apart.replace("    run_every: 10m\n", "")) == {}
