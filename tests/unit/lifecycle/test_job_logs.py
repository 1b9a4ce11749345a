"""Lines of a job's runs and the failures in them, from moto's CloudWatch Logs and from a sandbox's files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from botocore.stub import Stubber
from typer.testing import CliRunner

from millrace.cli.app import app
from millrace.cli.watch import logs as command
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import TransientError
from millrace.lifecycle.jobs import logs
from millrace.lifecycle.jobs.logs import LogLine
from millrace.sandbox import operate_running_sandbox

FAILED = json.dumps({"event": "failed", "job": "clicks", "query": "land-clicks", "error": "LossError: gone"})
BATCH = json.dumps({"event": "batch", "job": "clicks", "query": "land-clicks", "batch": 7, "read": 12})
PYTHON = """\
Traceback (most recent call last):
  File "/opt/etl/formats/json.py", line 12, in parse
    return table[key]
KeyError: 'x'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/main.py", line 3, in <module>
    main()
etl.record.errors.LossError: records 5 to 9 are gone
"""
JAVA = """\
26/11/21 08:00:02 ERROR Executor: Exception in task 0.0 in stage 3.0 (TID 5)
java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)
Caused by: java.io.IOException: closed
\t... 12 more
"""
LOG = f"26/11/21 08:00:00 INFO SparkContext: Running\n{BATCH}\n{PYTHON}{BATCH}\n{JAVA}26/11/21 08:00:03 WARN x\n"


def line(text: str) -> LogLine:
    return LogLine(datetime(2026, 11, 21, 8, tzinfo=UTC), "here", text)


def test_failures_are_told_with_their_traces_and_nothing_else() -> None:
    result = logs.find_failures([line(text) for text in f"{LOG}{FAILED}".splitlines()])
    assert [each.kind for each in result] == ["traceback", "exception", "failed"]
    assert result[0].text == PYTHON.rstrip()
    assert result[1].text == JAVA.rstrip()
    assert (result[2].query, result[2].text) == ("land-clicks", "LossError: gone")


def test_an_event_may_hold_a_whole_trace() -> None:
    assert logs.find_failures([line(LOG)])[0].text == PYTHON.rstrip()


def test_a_healthy_log_has_none() -> None:
    healthy = ["26/11/21 08:00:00 INFO x: no ERROR at all", BATCH, '{"broken', "{}", "an error: not ours", ""]
    assert logs.find_failures([line(text) for text in healthy]) == []


def put(
    aws: DeployedEnvironment, group: str, *texts: str, stream: str = "driver", ago: timedelta = timedelta()
) -> None:
    client = aws.client("logs")
    if not client.describe_log_groups(logGroupNamePrefix=group)["logGroups"]:
        client.create_log_group(logGroupName=group)
    client.create_log_stream(logGroupName=group, logStreamName=stream)
    first = int((datetime.now(UTC) - ago).timestamp() * 1000)
    client.put_log_events(
        logGroupName=group,
        logStreamName=stream,
        # An event has text: an empty line is none.
        logEvents=[{"timestamp": first + n, "message": text} for n, text in enumerate(texts) if text],
    )


GROUP = "/hello-minimal/jobs/clicks"


def test_the_last_failures_come_from_all_streams_of_the_job_and_of_no_other(aws: DeployedEnvironment) -> None:
    put(aws, GROUP, *LOG.splitlines(), ago=timedelta(minutes=20))
    put(aws, f"{GROUP}-hello-minimal-clicks-0123abcd/error", FAILED, stream="late", ago=timedelta(minutes=5))
    put(aws, f"{GROUP}-two", FAILED.replace("gone", "another job's"))
    result = logs.newest_failures(aws, "clicks", datetime.now(UTC) - timedelta(days=1), 3)
    assert [each.kind for each in result] == ["traceback", "exception", "failed"]
    assert result[0].text == PYTHON.rstrip().replace("\n\n", "\n")
    assert result[2].text == "LossError: gone"
    last = logs.newest_failures(aws, "clicks", datetime.now(UTC) - timedelta(days=1), 1)
    assert [each.text for each in last] == ["LossError: gone"]


def test_older_ones_are_found_where_the_last_hour_has_none(aws: DeployedEnvironment) -> None:
    put(aws, GROUP, FAILED, ago=timedelta(hours=9))
    put(aws, GROUP, BATCH, stream="now")
    assert logs.newest_failures(aws, "clicks", datetime.now(UTC) - timedelta(hours=5), 3) == []
    assert len(logs.newest_failures(aws, "clicks", datetime.now(UTC) - timedelta(days=1), 3)) == 1
    lines = logs.newest_lines(aws, "clicks", datetime.now(UTC) - timedelta(days=1), 1)
    assert [each.text for each in lines] == [BATCH]


@pytest.fixture
def left_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Logs of a sandbox, as files; which of them are a job's goes by their names."""
    monkeypatch.setattr(operate_running_sandbox, "RUN", tmp_path)
    monkeypatch.setattr(
        operate_running_sandbox, "running_sandbox_deployment", lambda environment: environment
    )
    for number, (run, text) in enumerate(
        (
            ("departures-1", LOG),
            ("departures-2", FAILED),
            ("departures-late-1", "of another job"),
            (f"departures-replay-{time.time_ns()}", "error: no such letter"),
        )
    ):
        file = tmp_path / "jobs" / run / "driver.log"
        file.parent.mkdir(parents=True)
        file.write_text(text)
        at = time.time() - 3600 + number
        os.utime(file, (at, at))
    return tmp_path


def run(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["logs", "--env", "local", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_a_sandbox_tells_its_runs_in_their_order(left_running: Path) -> None:
    status, told, _ = run("departures", "--errors", "--json", "--lines", "9")
    assert status == 0
    result = [json.loads(each) for each in told.splitlines()]
    assert [each["kind"] for each in result] == ["traceback", "exception", "failed", "refused"]
    assert result[-1]["text"] == "error: no such letter"
    status, told, _ = run("departures", "--errors", "--lines", "2")
    assert "LossError: gone" in told
    assert "KeyError" not in told
    status, told, _ = run("departures", "--lines", "1")
    assert told == "error: no such letter\n"


def test_runs_that_wrote_nothing_since_are_left_out(left_running: Path) -> None:
    two = left_running / "jobs" / "departures-2" / "driver.log"
    os.utime(two)
    assert run("departures", "--since", "30m")[1] == f"{FAILED}\n"
    assert run("departures", "--since", "30m", "--errors")[1].count("LossError: gone") == 1


def following(monkeypatch: pytest.MonkeyPatch, *meanwhile: Callable[[], None]) -> None:
    """Let something happen in each of the pauses of a command that follows, and then Ctrl-C."""
    turns = iter(meanwhile)

    def sleep(_: float) -> None:
        turn = next(turns, None)
        if turn is None:
            raise KeyboardInterrupt
        turn()

    monkeypatch.setattr(command, "time", SimpleNamespace(sleep=sleep))


def test_following_a_sandbox_shows_what_is_written_and_nothing_again(
    left_running: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = left_running / "jobs"
    file, quiet = (jobs / f"departures-{number}" / "driver.log" for number in (1, 2))
    file.write_text("".join(f"line {number}\n" for number in range(500)))

    def write(path: Path, text: str) -> Callable[[], None]:
        def append() -> None:
            path.parent.mkdir(exist_ok=True)
            with path.open("a") as stream:
                stream.write(text)

        return append

    following(
        monkeypatch,
        write(file, "line 7\n"),  # as another one was, long ago
        lambda: None,
        write(quiet, "\nback\n"),
        write(jobs / "departures-3" / "driver.log", "a new run\n"),
    )
    status, told, _ = run("departures", "--follow", "--lines", "2")
    assert status == 0
    assert told.splitlines() == ["line 498", "line 499", "line 7", "back", "a new run"]
    following(monkeypatch, write(file, PYTHON), write(file, "26/11/21 08:00:03 WARN x\n"))
    assert run("departures", "--follow", "--errors", "--lines", "1")[1].count("KeyError: 'x'") == 1


def test_following_a_deployed_job_shows_what_comes_and_nothing_again(
    aws: DeployedEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command, "connect_to_account", lambda _: aws)
    put(aws, GROUP, *(f"old {number}" for number in range(300)), stream="old", ago=timedelta(minutes=40))
    put(aws, GROUP, *(f"line {number}" for number in range(300)), ago=timedelta(minutes=2))

    def come(stream: str, *texts: str, ago: timedelta = timedelta()) -> Callable[[], None]:
        return lambda: put(aws, GROUP, *texts, stream=stream, ago=ago)

    following(
        monkeypatch,
        come("one", "new", "new"),
        lambda: None,
        come("two", "late", ago=timedelta(minutes=3)),
        come("three", "too late", ago=timedelta(minutes=7)),
    )
    given = ["logs", "clicks", "--env", "minimal", "--follow"]
    done = CliRunner().invoke(app, [*given, "--lines", "2"])
    assert done.stdout.splitlines() == ["line 298", "line 299", "new", "new", "late"]
    following(monkeypatch, come("four", *PYTHON.splitlines()), come("five", FAILED))
    done = CliRunner().invoke(app, [*given, "--errors"])
    assert [done.stdout.count(each) for each in ("etl.record.errors.LossError", "LossError: gone")] == [1, 1]


def test_a_look_that_is_not_answered_ends_no_following(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    looks = iter([TransientError("no network"), [line("new")]])

    def whole(_: datetime | None) -> list[LogLine]:
        result = next(looks)
        if isinstance(result, TransientError):
            raise result
        return result

    following(monkeypatch, lambda: None, lambda: None)
    command._print_new_entries_until_interrupt(
        command._LogReader(lambda _: [], whole, late=None), set(), as_json=False
    )
    assert capsys.readouterr().out == "new\n"


def test_lines_are_looked_for_as_long_as_they_are_kept(aws: DeployedEnvironment) -> None:
    class Kept:
        """Groups as moto has them, and an event of an age that it does not take."""

        asked: ClassVar[list[int]] = []

        def get_paginator(self, name: str) -> Any:
            return self if name == "filter_log_events" else aws.client("logs").get_paginator(name)

        def paginate(self, *, startTime: int, **_: str) -> list[dict[str, Any]]:
            self.asked.append(startTime)
            at = int((datetime.now(UTC) - timedelta(days=80)).timestamp() * 1000)
            event = {"eventId": "1", "timestamp": at, "logStreamName": "driver", "message": "long ago"}
            return [{"events": [event] if at >= startTime else []}]

    aws.client("logs").create_log_group(logGroupName=GROUP)
    place = DeployedEnvironment(aws.names, lambda _: Kept())
    assert [
        each.text for each in logs.newest_lines(place, "clicks", datetime.now(UTC) - timedelta(days=90), 5)
    ] == ["long ago"]
    looks = len(Kept.asked)
    assert logs.newest_lines(place, "clicks", datetime.now(UTC) - timedelta(hours=3), 5) == []
    assert len(Kept.asked) - looks == 2  # an hour, and what is left of three


def test_a_trace_is_read_over_answers_without_events(aws: DeployedEnvironment) -> None:
    """GetLogEvents may answer with few events or none before the end, which repeats the token (API reference)."""
    stub = Stubber(aws.client("logs"))
    first, *rest = PYTHON.splitlines()
    pages = [("1", []), ("2", [first]), ("3", []), ("4", rest), ("4", [])]
    for token, texts in pages:
        events = [{"timestamp": 1_000, "message": text or " "} for text in texts]
        stub.add_response("get_log_events", {"events": events, "nextForwardToken": token})
    with stub:
        place = DeployedEnvironment(aws.names, lambda _: stub.client)
        begin = LogLine(datetime.fromtimestamp(1, UTC), "here", first)
        result = logs._stream_lines_after(place, "group", "stream", begin)
    assert [each.text for each in result] == PYTHON.rstrip().splitlines()
    stub.assert_no_pending_responses()


def test_no_line_is_said_to_be_none(left_running: Path) -> None:
    status, told, said = run("flights", "--errors", "--since", "2h")
    assert (status, told, said) == (0, "", "flights: no error was logged in the last 2h\n")


def test_what_is_no_time_is_refused(left_running: Path) -> None:
    done = CliRunner().invoke(app, ["logs", "--env", "local", "flights", "--since", "yesterday"])
    assert "write a number with its unit" in str(done.exception)
