"""Output of a deployed job's runs: lines of CloudWatch Logs, and the failures in them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from millrace.config.aws.pagination import list_all
from millrace.lifecycle.account.deployed_environment import DeployedEnvironment
from millrace.lifecycle.aws_error_messages import translating_aws_errors

Kind = Literal["failed", "refused", "traceback", "exception"]

_WINDOWS = tuple(timedelta(hours=hours) for hours in (1, 6, 24, 24 * 7, 24 * 30))
"""Windows of a search, one after the other: CloudWatch returns the oldest events of a window first."""

_BEGINNINGS = ('{ $.event = "failed" }', '?"Traceback (most" ?"Exception in thread" ?"error: " ?" ERROR "')
"""Filter patterns ("Filter pattern syntax", CloudWatch Logs user guide): Millrace's lines, and all others."""

_BLOCK_EVENTS = 200
"""Events that are read of a trace, after an error's first line."""

_MOST_LINES = 80
"""Lines that are kept of one failure: the rest of a trace is frames."""

_LOGGED = re.compile(r"^\S+ \S+ ERROR ")
"""Prefix of Log4j's default pattern in Spark: date, time, level."""

_FIRST_LINES: tuple[tuple[re.Pattern[str], Kind], ...] = (
    (re.compile("error: "), "refused"),
    (re.compile(r"Traceback \(most recent call last\):"), "traceback"),
    (re.compile("Exception in thread "), "exception"),
    (_LOGGED, "exception"),
)
"""Beginnings of a failure's first line, each with the kind of the failure."""

_CONTINUED = re.compile(
    r"^(\s|Caused by: |Traceback |During handling of |The above exception |\.\.\. \d+ more|$)"
)
_RAISED = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Exit|Interrupt|Warning)?(: |$)")


@dataclass(frozen=True)
class LogLine:
    """One line.

    Attributes
    ----------
    at
        Time of writing, UTC; None where unknown.
    source
        Log group and stream, or a file.
    place
        Place in its source, as several lines may have the same text: the event's id, or the start in the file.
    """

    at: datetime | None
    source: str
    text: str
    place: str = ""


@dataclass(frozen=True)
class LoggedFailure:
    """A failure, in the words of the failed program.

    Attributes
    ----------
    kind
        ``failed``: a query, by the core's own line. ``refused``: the job did not start. ``traceback``:
        Python's. ``exception``: the JVM's, on the driver or an executor.
    query
        None where no query is named.
    place
        Of its first line, see :class:`LogLine`.
    """

    kind: Kind
    at: datetime | None
    source: str
    query: str | None
    text: str
    place: str = ""


def log_groups(aws: DeployedEnvironment, job: str) -> list[str]:
    """Return the log groups of a job.

    Glue writes below the job's group, or appends the name of the job's security configuration, which ends with a digest
    (``infra/stacks/glue_job.py``).
    """
    prefix = f"/{aws.names.prefix}/jobs/{job}"
    own = re.compile(rf"{re.escape(prefix)}(-{re.escape(aws.names.job(job))}-[0-9a-f]{{8}})?(/.*)?")
    with translating_aws_errors(f"cannot list the log groups of {job}"):
        asked = list_all(aws.client("logs"), "describe_log_groups", "logGroups", logGroupNamePrefix=prefix)
        names = [str(group["logGroupName"]) for group in asked]
    # Groups of a job whose name has this one as a prefix do not count.
    return [group for group in names if own.fullmatch(group)]


def newest_lines(aws: DeployedEnvironment, job: str, since: datetime, most: int) -> list[LogLine]:
    """Return a job's last lines, the oldest of them first.

    Parameters
    ----------
    since
        Start of the search.
    most
        Number of lines.

    Raises
    ------
    AwsError
        AWS refused a call.
    """
    return [line for line, _ in _newest_lines_with_group_and_stream(aws, job, since, most, None)][-most:]


def logged_events(aws: DeployedEnvironment, job: str, since: datetime, event: str) -> list[dict[str, Any]]:
    """Return the events of one kind that the core's runs of a job logged, the oldest first.

    Parameters
    ----------
    since
        Start of the search.
    event
        The kind, such as ``replayed`` (``docs/launch-document.md``).

    Raises
    ------
    AwsError
        AWS refused a call.
    """
    result = (
        parse_event_line(line.text)
        for line, _ in _newest_lines_with_group_and_stream(
            aws, job, since, 1, (f'{{ $.event = "{event}" }}',)
        )
    )
    return [each for each in result if each is not None and each["event"] == event]


def newest_failures(aws: DeployedEnvironment, job: str, since: datetime, most: int) -> list[LoggedFailure]:
    """Return a job's last failures with their traces, the oldest of them first.

    Raises
    ------
    AwsError
        AWS refused a call.
    """
    result: list[LoggedFailure] = []
    seen: set[tuple[str, datetime | None, str]] = set()
    for line, (group, stream) in _newest_lines_with_group_and_stream(aws, job, since, most, _BEGINNINGS):
        if (line.source, line.at, line.text) in seen or not find_failures([line]):
            continue  # in the trace before, or a word that only looks like a failure
        block = [line]
        if not line.text.startswith("{"):
            block = _stream_lines_after(aws, group, stream, line)
        first = replace(find_failures(block)[0], place=line.place)
        # A trace may name further errors, which are not failures of their own.
        seen |= {(each.source, each.at, each.text) for each in block[: len(first.text.splitlines())]}
        result.append(first)
    return sorted(result, key=lambda failure: failure.at or since)[-most:]


def _newest_lines_with_group_and_stream(
    aws: DeployedEnvironment, job: str, since: datetime, most: int, patterns: Sequence[str] | None
) -> list[tuple[LogLine, tuple[str, str]]]:
    """Return lines with the group and stream of each, from the shortest window that holds enough of them."""
    logs = aws.client("logs")
    now = datetime.now(UTC)
    own = log_groups(aws, job)
    result: dict[str, tuple[LogLine, tuple[str, str]]] = {}
    for begin in (*(max(since, now - window) for window in _WINDOWS), since):
        for group in own:
            for pattern in patterns or ("",):
                with translating_aws_errors(f"cannot read the log lines of {job}"):
                    for event in list_all(
                        logs,
                        "filter_log_events",
                        "events",
                        logGroupName=group,
                        startTime=int(begin.timestamp() * 1000),
                        **({"filterPattern": pattern} if pattern else {}),
                    ):
                        stream = str(event["logStreamName"])
                        place, text = str(event["eventId"]), str(event["message"]).rstrip()
                        result[place] = (
                            LogLine(_time_of_event(event), f"{group} {stream}", text, place),
                            (group, stream),
                        )
        if len(result) >= most or begin == since:
            break
    return sorted(result.values(), key=lambda each: each[0].at or since)


def _stream_lines_after(aws: DeployedEnvironment, group: str, stream: str, first: LogLine) -> list[LogLine]:
    """Return the lines of a stream from a given one on."""
    assert first.at is not None, "CloudWatch knows the time of every event"
    request = {"logGroupName": group, "logStreamName": stream, "startFromHead": True, "limit": _BLOCK_EVENTS}
    request["startTime"] = int(first.at.timestamp() * 1000)
    block: list[dict[str, Any]] = []
    with translating_aws_errors("cannot read the log lines after an error"):
        while len(block) < _BLOCK_EVENTS:
            # An answer may hold few events or none before the stream's end, which repeats the token (API reference).
            answer = aws.client("logs").get_log_events(**request)
            block += answer["events"]
            token = answer.get("nextForwardToken")
            if token in (None, request.get("nextToken")):
                break
            request["nextToken"] = token
    lines = [LogLine(_time_of_event(event), first.source, str(event["message"]).rstrip()) for event in block]
    at = next((n for n, line in enumerate(lines) if line.text == first.text), None)
    return [first] if at is None else lines[at:]


def _time_of_event(event: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(event["timestamp"] / 1000, UTC)


def find_failures(lines: Iterable[LogLine]) -> list[LoggedFailure]:
    """Find failures in the lines of one stream, in their order.

    An event may hold several lines, and a trace several events; both are split into lines.
    """
    apart = [replace(line, text=text) for line in lines for text in line.text.splitlines() or [""]]
    return list(_yield_failures(apart))


def _yield_failures(lines: Sequence[LogLine]) -> Iterator[LoggedFailure]:
    at = 0
    while at < len(lines):
        line = lines[at]
        at += 1
        if (own := parse_event_line(line.text)) is not None:
            if own.get("event") == "failed":
                why = str(own.get("error", "no reason given"))
                yield LoggedFailure("failed", line.at, line.source, own.get("query"), why, line.place)
            continue
        if (kind := next((kind for first, kind in _FIRST_LINES if first.match(line.text)), None)) is None:
            continue
        end = _index_after_failure(lines, at, kind)
        text = "\n".join(each.text for each in lines[at - 1 : min(end, at - 1 + _MOST_LINES)])
        yield LoggedFailure(kind, line.at, line.source, None, text, line.place)
        at = end


def parse_event_line(text: str) -> dict[str, Any] | None:
    """Return the content of a line by the core; None for any other line."""
    if not (text.startswith("{") and text.endswith("}")):
        return None
    try:
        parsed = json.loads(text)
    except json.JSONDecodeError:
        return None  # another program's, which only looks like one of the core
    return parsed if isinstance(parsed, dict) and "event" in parsed else None


def _index_after_failure(lines: Sequence[LogLine], at: int, kind: Kind) -> int:
    """Return the end of a failure's text: Python names the exception after its frames, a logger before them."""
    raised = kind != "traceback" and not _LOGGED.match(lines[at - 1].text)
    while at < len(lines):
        text = lines[at].text
        if _CONTINUED.match(text):
            # Each chained exception names its own; an empty line separates them.
            raised = raised and not text.startswith("Traceback ")
        elif raised or not _RAISED.match(text):
            break
        else:
            raised = True
        at += 1
    return at
