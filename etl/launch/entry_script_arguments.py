"""Start of a job: arguments of the entry script, and the launch document that they name."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any

from . import parse_start_position, settings
from .engine_interface_and_registry import ENGINES
from .errors import SettingsError, StartError
from .settings import JobSettings

DOCUMENT_VERSION = 1
_BINDS = (
    "checkpoints",
    "dynamodb.endpoint",
    "kinesis.endpoint",
    "metrics.file",
    "secretsmanager.endpoint",
)
_KAFKA_BIND = re.compile(r"kafka\.(?P<connection>[a-z][a-z0-9-]*)\.(bootstrap|authentication)")


@dataclass(frozen=True)
class ReplayRequest:
    """Dead letters to decode again.

    Attributes
    ----------
    query
        Query whose dead letters they are.
    ids
        Their identities; empty for all.
    corrected
        URL of corrected payloads; None to use the original ones.
    """

    query: str
    ids: tuple[str, ...] = ()
    corrected: str | None = None


@dataclass(frozen=True)
class BackfillRequest:
    """Range of a landing table to derive again, or records for a land query to land again.

    Attributes
    ----------
    query
        A derive query; with ``origin`` a land query.
    since, until
        Range of arrival times in UTC, ``until`` excluded. None for files.
    replace
        True to replace the sink's rows of the range; false to write only missing ones.
    origin
        ``stream`` for the land query's own stream, or the URL of files; None for a derive query's landing table.
    """

    query: str
    since: datetime | None
    until: datetime | None
    replace: bool = False
    origin: str | None = None


@dataclass(frozen=True)
class ScriptArguments:
    """Arguments of the entry script.

    Attributes
    ----------
    document
        URL of the launch document.
    engine
        Engine to use instead of the document's.
    binds
        Values that are known only where the job runs.
    replay
        Replay dead letters instead of running the job.
    backfill
        Backfill a range instead of running the job.
    benchmark
        URL of a schedule of measurements, to run instead of the job.
    unknown
        Unknown arguments; Glue adds some of its own.
    """

    document: str
    engine: str | None
    binds: Mapping[str, str]
    replay: ReplayRequest | None
    backfill: BackfillRequest | None
    benchmark: str | None
    unknown: tuple[str, ...]


def parse_arguments(arguments: Sequence[str]) -> ScriptArguments:
    """Parse the arguments; invalid ones end the process with status 2, as in argparse."""
    parser = argparse.ArgumentParser(prog="main.py", allow_abbrev=False)
    parser.add_argument("--launch-document", required=True, metavar="URL")
    parser.add_argument("--engine", choices=ENGINES)
    parser.add_argument(
        "--bind", action="append", default=[], metavar="NAME=VALUE", type=_parse_name_and_value
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--replay", metavar="QUERY")
    instead.add_argument("--backfill", metavar="QUERY")
    instead.add_argument("--benchmark", metavar="URL")
    parser.add_argument(
        "--id", action="extend", nargs="+", default=[], metavar="IDENTITY", type=_parse_comma_separated
    )
    parser.add_argument("--corrected", metavar="URL")
    parser.add_argument("--since", metavar="TIME", type=_parse_time)
    parser.add_argument("--until", metavar="TIME", type=_parse_time)
    parser.add_argument("--replace", action="store_true")
    parser.add_argument("--from", dest="origin", metavar="stream|URL")
    known, unknown = parser.parse_known_args(list(arguments))
    ids = tuple(dict.fromkeys(i for some in known.id for i in some))
    if known.replay is None and (ids or known.corrected):
        parser.error(f"{'--id' if ids else '--corrected'} works only with --replay QUERY")
    replay = None if known.replay is None else ReplayRequest(known.replay, ids, known.corrected)
    binds = MappingProxyType(dict(known.bind))
    backfill = _parse_backfill_request(parser, known)
    return ScriptArguments(
        known.launch_document, known.engine, binds, replay, backfill, known.benchmark, tuple(unknown)
    )


def _parse_backfill_request(
    parser: argparse.ArgumentParser, arguments: argparse.Namespace
) -> BackfillRequest | None:
    if arguments.backfill is None:
        if arguments.since or arguments.until or arguments.replace or arguments.origin:
            parser.error("--since, --until, --replace and --from work only with --backfill QUERY")
        return None
    if arguments.origin is not None and arguments.replace:
        parser.error(
            "--replace and --from cannot be combined: --from lands only records that the table lacks"
        )
    if arguments.origin not in (None, "stream"):
        if arguments.since or arguments.until:
            parser.error("--since and --until cannot be combined with files, which are read completely")
    elif arguments.since is None or arguments.until is None or arguments.since >= arguments.until:
        parser.error("--backfill QUERY needs --since TIME and a later --until TIME")
    return BackfillRequest(
        arguments.backfill, arguments.since, arguments.until, arguments.replace, arguments.origin
    )


def _parse_time(text: str) -> datetime:
    moment = parse_start_position.parse_time(text)
    if moment is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time in ISO 8601 with its zone, such as 2026-11-21T08:00:00Z"
        )
    return moment


def _parse_comma_separated(text: str) -> tuple[str, ...]:
    """Split a comma-separated argument: Glue accepts each name once. No topic or stream has a comma in its name."""
    ids = tuple(text.split(","))
    if not all(ids):
        raise argparse.ArgumentTypeError(
            f"{text!r} has an empty identity; write identities separated by one comma each"
        )
    return ids


def _parse_name_and_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise argparse.ArgumentTypeError(f"{text!r}: write NAME=VALUE")
    return name, value


def read_settings_of_document(text: str, arguments: ScriptArguments) -> JobSettings:
    """Read a launch document's settings, with the arguments applied.

    Parameters
    ----------
    text
        The document, JSON.
    arguments
        Arguments of the entry script.

    Raises
    ------
    StartError
        Not a document of this version, unknown settings, a bind that the job does not use, or an
        unknown argument (allowed on Glue, which adds its own arguments to the script's).
    """
    where = arguments.document
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise StartError(f"{where}: not JSON: {error}; deploy the job again") from error
    version = document.get("version") if isinstance(document, dict) else None
    if type(version) is not int or version != DOCUMENT_VERSION:
        raise StartError(
            f"{where}: the launch document has format version {version!r}, but the job's code reads version "
            f"{DOCUMENT_VERSION}; deploy the job again"
        )
    try:
        job = settings.parse_job_settings(document.get("settings"))
    except SettingsError as error:
        raise StartError(f"{where}: {error}; deploy the job again") from error
    if arguments.engine:
        job = dataclasses.replace(job, engine=arguments.engine)
    if arguments.unknown and not job.runs_on.ADDS_ARGUMENTS:
        raise StartError(f"unknown arguments: {' '.join(arguments.unknown)}")
    for name in arguments.binds:
        match = _KAFKA_BIND.fullmatch(name)
        if name not in _BINDS and not (match and match["connection"] in job.connections):
            known = ", ".join(_BINDS)
            raise StartError(
                f"--bind {name}: the name must be one of {known}, or a key of one of this job's connections"
            )
    return dataclasses.replace(job, checkpoints=arguments.binds.get("checkpoints", job.checkpoints))
