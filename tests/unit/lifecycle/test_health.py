"""Health of jobs: every query ends triggers, none is behind, none has failed."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from millrace.config import Names, load
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.jobs import health
from millrace.lifecycle.jobs.health import UnhealthyJobError, read_job_health, wait_until_healthy
from millrace.sandbox.programs.toolchain import ROOT


def put_lines(
    aws: DeployedEnvironment, *events: dict[str, Any], group: str = "/hello-minimal/jobs/clicks"
) -> None:
    logs = aws.client("logs")
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName="driver")
    now = int(time.time() * 1000)
    logs.put_log_events(
        logGroupName=group,
        logStreamName="driver",
        logEvents=[{"timestamp": now + i, "message": json.dumps(e)} for i, e in enumerate(events)],
    )


def put_metric(
    aws: DeployedEnvironment,
    name: str,
    value: float,
    seconds: float,
    *,
    namespace: str = "Millrace/hello-minimal-clicks",
    **dimensions: str,
) -> None:
    """Write one value so many seconds after now."""
    aws.client("cloudwatch").put_metric_data(
        Namespace=namespace,
        MetricData=[
            {
                "MetricName": name,
                "Dimensions": [
                    {"Name": key, "Value": text}
                    for key, text in (
                        dimensions or {"job": "hello-minimal-clicks", "query": "land-clicks"}
                    ).items()
                ],
                "Timestamp": datetime.now(UTC) + timedelta(seconds=seconds),
                "Value": value,
            }
        ],
    )


QUICK: dict[str, Any] = {"progress": lambda _: None, "poll_seconds": 0.01, "patience_seconds": 0.05}


def test_a_job_is_healthy_when_every_query_ends_triggers(aws: DeployedEnvironment) -> None:
    put_metric(aws, "Triggers", 1, 0)
    said: list[str] = []
    result = wait_until_healthy(aws, "clicks", since=time.time() - 120, **(QUICK | {"progress": said.append}))
    assert (result.waiting, result.failures, result.oldest_seconds) == ((), (), None)
    assert said == ["clicks: healthy, every query ends its triggers; records: no record came yet"]


def test_the_last_trigger_of_an_earlier_run_does_not_count(aws: DeployedEnvironment) -> None:
    put_metric(aws, "Triggers", 1, -90)
    now = time.time()
    assert read_job_health(aws, "clicks", now - 300).waiting == ()
    assert read_job_health(aws, "clicks", now).waiting == ("land-clicks",)
    with pytest.raises(
        UnhealthyJobError, match=r"no trigger has ended yet of land-clicks.*/hello-minimal/jobs/c"
    ):
        wait_until_healthy(aws, "clicks", since=now, **QUICK)


def test_old_records_are_not_healthy_whatever_the_source(aws: DeployedEnvironment) -> None:
    before = time.time() - 120
    put_metric(aws, "Triggers", 1, 0)
    put_metric(aws, "RecordAge", 4000, -60)
    assert read_job_health(aws, "clicks", before).oldest_seconds == 4000
    with pytest.raises(UnhealthyJobError, match=r"catching up, records are 4000 s old, 60 s are allowed"):
        wait_until_healthy(aws, "clicks", since=before, **QUICK)
    # The newest minute counts.
    put_metric(aws, "RecordAge", 7, 0)
    assert wait_until_healthy(aws, "clicks", since=before, **QUICK).oldest_seconds == 7
    # Kinesis' own figure tells of records that no batch has committed.
    put_metric(
        aws,
        "GetRecords.IteratorAgeMilliseconds",
        90_000,
        -30,
        namespace="AWS/Kinesis",
        StreamName=aws.names.stream("clicks"),
    )
    assert read_job_health(aws, "clicks", before).oldest_seconds == 90


def test_a_replay_without_ages_does_not_hide_how_far_behind_it_is(aws: DeployedEnvironment) -> None:
    """The first batch after a run that was cut short."""
    put_metric(aws, "Triggers", 1, 0)
    put_metric(aws, "BacklogSeconds", 468, 0)
    with pytest.raises(UnhealthyJobError, match=r"catching up, records are 468 s old, 60 s are allowed"):
        wait_until_healthy(aws, "clicks", since=time.time() - 120, **QUICK)


def test_a_query_that_has_caught_up_is_not_behind(aws: DeployedEnvironment) -> None:
    put_metric(aws, "Triggers", 1, 0)
    put_metric(aws, "BacklogSeconds", 0, 0)
    result = wait_until_healthy(aws, "clicks", since=time.time() - 120, **QUICK)
    assert result.oldest_seconds is None


def test_a_failure_is_told_with_its_reason(aws: DeployedEnvironment) -> None:
    put_metric(aws, "Triggers", 1, 0)
    put_lines(
        aws,
        {"event": "batch", "job": "clicks", "query": "land-clicks", "seconds": 1},
        {"event": "failed", "job": "clicks", "query": "land-clicks", "error": "no such table"},
    )
    with pytest.raises(UnhealthyJobError, match="after the start: land-clicks: no such table"):
        wait_until_healthy(aws, "clicks", since=time.time() - 120, **QUICK)


def test_failures_of_a_job_whose_name_begins_alike_are_not_ours(aws: DeployedEnvironment) -> None:
    put_lines(aws, {"event": "failed", "error": "theirs"}, group="/hello-minimal/jobs/clicks-late")
    assert read_job_health(aws, "clicks", time.time() - 120).failures == ()
    # Glue writes to the group with its security configuration's name.
    put_lines(
        aws,
        {"event": "failed", "error": "ours"},
        group="/hello-minimal/jobs/clicks-hello-minimal-clicks-0123abcd",
    )
    assert read_job_health(aws, "clicks", time.time() - 120).failures == ("a query: ours",)


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
    monkeypatch.setattr(health, "_metric_values_by_query", lambda *_: {"land": []})
    monkeypatch.setattr(health, "_iterator_ages", lambda *_: ())
    monkeypatch.setattr(health.logs, "newest_failures", lambda *_: ())
    said = {"finished": [{"event": "finished"}] if finished else []}
    monkeypatch.setattr(health.logs, "logged_events", lambda _aws, _job, _since, event: said[event])
    waiting = health.read_job_health(aws, "clicks", 0.0).waiting
    assert waiting == (() if finished and every else ("land",))
