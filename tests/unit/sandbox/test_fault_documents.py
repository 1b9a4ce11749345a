"""The core reads the launch documents of the fault programs."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.config import load
from millrace.etl.launch.settings import parse_job_settings
from tests.faults import crashed_job, kill_during_sink_writes, small_job_documents
from tests.faults.crashed_job import KINDS
from tests.faults.kafka_round_setup import KafkaStage
from tests.faults.round_setup import Stage
from tests.faults.routed_round_setup import RoutedStage
from tests.faults.topic_split import SplitStage

SECRET = "arn:aws:secretsmanager:us-east-1:000000000000:secret:db-AbCdEf"
DATABASE = SimpleNamespace(url="jdbc:postgresql://127.0.0.1:1/postgres", run=lambda _: [])


class Server:
    """Stands where a Kinesis would be, which nobody asks."""

    endpoint = "http://127.0.0.1:1"

    def client(self) -> None:
        return None


@pytest.mark.parametrize("kind", ["land", "direct", "derive", "state", "join", "latest"])
def test_jobs_of_one_or_two_queries(kind: str) -> None:
    queries = small_job_documents.queries(
        kind, small_job_documents.topic("events", 5), Path("/schema.ddl"), lambda what: f"faults.{what}"
    )
    assert len(
        parse_job_settings(
            small_job_documents.settings("job", queries, "/checkpoints", "127.0.0.1:1")
        ).queries
    ) in (1, 2)


@pytest.mark.parametrize("kind", [Stage, KafkaStage, RoutedStage, SplitStage])
def test_stages_of_rounds(kind: type[Stage], tmp_path: Path) -> None:
    stage: Any = kind(Server(), tmp_path / "round", "events", random.Random(1), bootstrap="127.0.0.1:1")  # type: ignore[arg-type]
    stage.lists = [[0, 1], [2, 3]]
    assert parse_job_settings(stage._job_settings(Path("/schema.ddl"))).queries
    stage.catalog.close()


def test_every_sink() -> None:
    asked = kill_during_sink_writes.direct_sinks(DATABASE.url, SECRET, Server.endpoint)
    settings = parse_job_settings(kill_during_sink_writes.direct_job(asked, "127.0.0.1:1"))
    assert {query.name for query in settings.queries} == set(asked)


def test_the_sinks_that_are_deployed(tmp_path: Path) -> None:
    file = tmp_path / "sinks.yaml"
    file.write_text(kill_during_sink_writes.SHOP.format(url=DATABASE.url, secret=SECRET))
    queries = load(str(file)).jobs["clicks"].queries
    assert set(queries) - {"land-clicks"} <= set(
        kill_during_sink_writes.direct_sinks(DATABASE.url, SECRET, Server.endpoint)
    )


@pytest.mark.parametrize("name", KINDS)
def test_crash_points(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = SimpleNamespace(
        exceptions=SimpleNamespace(ResourceExistsException=ValueError),
        create_secret=lambda **_: None,
        describe_secret=lambda **_: {"ARN": SECRET},
    )
    servers: Any = SimpleNamespace(
        stack=SimpleNamespace(client=lambda _: secrets, region="us-east-1"),
        broker=SimpleNamespace(bootstrap="127.0.0.1:1"),
        database=DATABASE,
        port=2,
        points=SimpleNamespace(),
    )
    monkeypatch.setattr(
        crashed_job.Crashed, "_topic", lambda _: (None, small_job_documents.topic("events", 5))
    )
    monkeypatch.setattr(
        crashed_job.Crashed, "_stream", lambda _: (None, small_job_documents.stream("events", "us-east-1"))
    )
    job = crashed_job.Crashed(servers, KINDS[name], "crashed", tmp_path)
    settings = parse_job_settings(job.settings)
    assert KINDS[name].query in {query.name for query in settings.queries}
