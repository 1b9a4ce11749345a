"""``millrace traffic``: sends test records to any stream, and writes a ledger of them."""

from __future__ import annotations

import dataclasses
import json
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event as Stop
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from millrace.cli.shared.console import confirm_or_exit
from millrace.cli.shared.options import (
    AsJson,
    EnvironmentName,
    KafkaAddress,
    KinesisAddress,
    Yes,
    load_environment_with_stream,
    refuse_options_if,
)
from millrace.config.model import Environment
from millrace.config.queries import Payload, Route
from millrace.config.units import parse_duration

if TYPE_CHECKING:
    from millrace.sandbox.records.traffic import SentTraffic, TrafficFeed, TrafficShape
    from millrace.sandbox.records.traffic_targets import TrafficTarget

_SHOWN = 5
"""Number of records in a dry run, unless more are requested."""

_REPORT_SECONDS = 10.0

_MOST_CALLS_PER_SECOND = 10
"""Most PutRecords calls a second; at a low rate a call has fewer than 500 records, so that records do not wait."""


def traffic(
    stream: Annotated[str, typer.Argument(metavar="STREAM", help="A stream of the environment.")],
    env: EnvironmentName,
    rate: Annotated[float, typer.Option(min=0.01, help="Records per second.")] = 100.0,
    records: Annotated[int | None, typer.Option(min=1, help="Stop after this many records.")] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, help="Stop after this time. Default: 60.")] = None,
    burst: Annotated[
        str | None,
        typer.Option(
            metavar="FACTORxLENGTH/EVERY", help="Bursts: 5x10s/60s is 5 times the rate, for 10 s, every 60 s."
        ),
    ] = None,
    dirty: Annotated[
        float, typer.Option(min=0, max=1, help="Share of records that the query must refuse, from 0 to 1.")
    ] = 0.0,
    duplicates: Annotated[
        float, typer.Option(min=0, max=1, help="Share of records that are sent twice, from 0 to 1.")
    ] = 0.0,
    late: Annotated[
        float, typer.Option(min=0, max=1, help="Share of records with a timestamp in the past, from 0 to 1.")
    ] = 0.0,
    late_by: Annotated[
        float,
        typer.Option(
            min=0.001,
            help="Delay of late records in seconds: the mean, or the maximum for --lateness uniform.",
        ),
    ] = 30.0,
    lateness: Annotated[
        Literal["exponential", "uniform"], typer.Option(help="Distribution of the delay.")
    ] = "exponential",
    time_field: Annotated[
        str | None, typer.Option("--time", help="Field of the timestamp. Default: the first timestamp field.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            help="Field with the key of the record, which chooses the partition. Default: the first required text field."
        ),
    ] = None,
    keys: Annotated[
        int | None, typer.Option(min=1, help="Use this many random keys instead of a field.")
    ] = None,
    hot: Annotated[float, typer.Option(min=0, max=1, help="Share of records that have the same key.")] = 0.0,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            exists=True,
            dir_okay=False,
            help="Send the lines of this file in order, as they are; JSON lines for Avro and Protobuf.",
        ),
    ] = None,
    sample: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="Draw records from this file (JSON lines or CSV), with new timestamps.",
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(help="The same seed gives the same records, except for their timestamps.")
    ] = 0,
    query: Annotated[
        str | None,
        typer.Option(
            help="JOB.QUERY that gives the format; needed where queries read the stream in several formats."
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="Parquet file that lists the records sent, to compare tables with. Default: below .millrace.",
        ),
    ] = None,
    kafka: KafkaAddress = None,
    kinesis: KinesisAddress = None,
    aws: Annotated[
        bool, typer.Option("--aws", help="Send to the deployed stream, which costs money.")
    ] = False,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print some records and send none.")] = False,
    as_json: AsJson = False,
) -> None:
    """Send test records to a stream of the running sandbox or, with --aws, of the deployed environment.

    Generates records from the schema of the query that reads the stream, or takes them from a file. Writes a ledger of the
    acknowledged records: identity, hash, and what was made wrong on purpose.

    [bold]Examples[/bold]

      millrace traffic departures --env local --rate 200 --seconds 30 --dirty 0.01

      millrace traffic departures --env local --dry-run
    """
    from millrace.sandbox import operate_running_sandbox
    from millrace.sandbox.programs.child_processes import RUN
    from millrace.sandbox.records import traffic_targets
    from millrace.sandbox.records.traffic import TrafficShape

    factor, length, every = _parse_burst(burst)
    shape = TrafficShape(
        per_second=rate, burst_factor=factor, burst_every=every, burst_seconds=length, dirty=dirty,
        duplicates=duplicates, late=late, late_seconds=late_by, lateness=lateness, time=time_field, key=key,
        keys=keys or 10_000, hot=hot,
    )  # fmt: skip
    refuse_options_if(
        (key is not None and keys is not None, "--key and --keys cannot be combined"),
        (source is not None and sample is not None, "--from and --sample cannot be combined"),
        (
            source is not None and bool(dirty or late),
            "--from sends records as they are: --dirty and --late cannot be combined with it, but with --sample",
        ),
        (aws and bool(kafka or kinesis), "--aws cannot be combined with --kafka or --kinesis"),
    )
    environment = load_environment_with_stream(env, stream)
    feed, in_file = _feed_and_record_count(
        environment,
        _query_or_route_with_format(environment, stream, query),
        shape,
        source,
        sample,
        seed,
        own_keys=keys is None,
    )
    if records is None and seconds is None:
        records, seconds = (in_file, None) if in_file else (None, 60.0)
    if dry_run:
        _print_first_records(
            feed, min(records or _SHOWN, _SHOWN if records is None else records), as_json=as_json
        )
        return
    target = (
        traffic_targets.deployed_stream_target(environment, stream)
        if aws
        else traffic_targets.sandbox_stream_target(environment, stream, kafka=kafka, kinesis=kinesis)
    )
    if aws and not yes:
        confirm_or_exit(
            f"Send {_expected_records(feed, records, seconds):,} records to {target.where}?", yes=False
        )
    path = ledger or RUN / "traffic" / f"{stream}-{time.strftime('%Y%m%dT%H%M%S')}.parquet"
    sent = _send_with_ledger(feed, target, records, seconds, path)
    outcome = {
        "stream": stream,
        "target": target.where,
        **dataclasses.asdict(sent),
        "records_per_second": round(sent.records_per_second, 1),
        "asked_per_second": rate,
        "seed": seed,
        "ledger": str(path),
    }
    typer.echo(json.dumps(outcome) if as_json else _traffic_sentence(outcome))
    if not (aws or kafka or kinesis):
        typer.echo(operate_running_sandbox.NO_JOB_RUNS.format(env), err=True)


def _parse_burst(text: str | None) -> tuple[float, float, float]:
    """Return factor, length and period of bursts; length and period in seconds."""
    if text is None:
        return 1.0, 10.0, 60.0
    try:
        factor, _, times = text.partition("x")
        length, _, every = times.partition("/")
        burst = float(factor), parse_duration(length).total_seconds(), parse_duration(every).total_seconds()
    except ValueError:
        burst = (0.0, 0.0, 0.0)
    if not (burst[0] >= 1 and 0 < burst[1] <= burst[2]):
        raise typer.BadParameter(
            f"--burst {text}: must be FACTORxLENGTH/EVERY, such as 5x10s/60s for 5 times the rate during 10 "
            "s of each 60 s"
        )
    return burst


def _query_or_route_with_format(environment: Environment, stream: str, chosen: str | None) -> Payload:
    """Return the query, or its route, that gives the records' format."""
    payloads = {
        ".".join((job, name, *place[1:])): reading
        for job, name, query in environment.queries
        for place, reading in query.stream_readings_by_place.items()
        if reading.source == stream
    }
    if chosen is not None:
        if chosen not in payloads:
            raise typer.BadParameter(
                f"--query {chosen} does not read {stream}; queries that do: "
                f"{', '.join(payloads) or 'no query'}"
            )
        return payloads[chosen]
    if not payloads:
        raise typer.BadParameter(f"no query reads {stream}, so the format of its records is unknown")
    ways = {(str(q.format), q.schema_) for q in payloads.values()}
    # Of several tables, the first one changes.
    if len(ways) > 1 and not all(isinstance(q, Route) and q.changes_of for q in payloads.values()):
        raise typer.BadParameter(
            f"queries read {stream} in several formats: choose one of them with --query: "
            f"{', '.join(payloads)}"
        )
    return next(iter(payloads.values()))


def _feed_and_record_count(
    environment: Environment,
    query: Payload,
    shape: TrafficShape,
    source: Path | None,
    sample: Path | None,
    seed: int,
    *,
    own_keys: bool,
) -> tuple[TrafficFeed, int | None]:
    """Return the feed, and the number of records if it sends a file."""
    from millrace.sandbox import payloads as making
    from millrace.sandbox.payloads.read_file_records import read_file_records
    from millrace.sandbox.records.traffic import (
        TrafficFeed,
        default_key_field,
        generated_feed,
        source_of_file_records,
    )

    payloads = making.payload_writers_of_query(query, environment.value_locations.root)
    if shape.key is None and own_keys:
        shape = dataclasses.replace(shape, key=default_key_field(payloads))
    if source is not None:
        records = read_file_records(source, query.format, payloads)
        source_records = source_of_file_records(records)
        return TrafficFeed(source_records, payloads, shape, random.Random(seed)), len(records)
    return generated_feed(payloads, shape, seed, sample), None


def stream_feed_and_record_count(
    environment: Environment, stream: str, shape: TrafficShape, seed: int, source: Path | None = None
) -> tuple[TrafficFeed, int | None]:
    """Return a feed with the schema of the query that reads a stream, and the number of its records if it is a file.

    Raises
    ------
    typer.BadParameter
        No query reads it, or several read it in different formats.
    """
    query = _query_or_route_with_format(environment, stream, None)
    return _feed_and_record_count(environment, query, shape, source, None, seed, own_keys=True)


def _expected_records(feed: TrafficFeed, records: int | None, seconds: float | None) -> int:
    shape, most = feed.shape, records or sys.maxsize
    if seconds is None:
        return most
    share = shape.burst_seconds / shape.burst_every * (shape.burst_factor - 1)
    return min(most, round(seconds * shape.per_second * (1 + share)))


def _send_with_ledger(
    feed: TrafficFeed, target: TrafficTarget, records: int | None, seconds: float | None, path: Path
) -> SentTraffic:
    """Send records and return what was sent; write the ledger also after a failure."""
    from millrace.sandbox.records.traffic import send_feed

    most = feed.shape.per_second * feed.shape.burst_factor
    producer = target.producer(max(1, min(500, round(most / _MOST_CALLS_PER_SECOND))))
    try:
        with _interrupt_as_stop_event() as stop:
            return send_feed(
                feed, producer, most=records, seconds=seconds, stop=stop, sent=_progress_printer()
            )
    finally:
        producer.ledger.write(path)


@contextmanager
def _interrupt_as_stop_event() -> Iterator[Stop]:
    """Let Ctrl-C end the sending after all acknowledgements; a second Ctrl-C aborts."""
    stop = Stop()

    def request_stop(number: int, _: Any) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    before = signal.signal(signal.SIGINT, request_stop)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, before)


def _progress_printer() -> Callable[[int], None]:
    """Return a function that writes a line with all records and their rate every ten seconds, on standard error."""
    started = reported = time.monotonic()
    total = 0

    def add_count_and_print_rate(count: int) -> None:
        nonlocal total, reported
        total += count
        now = time.monotonic()
        if now - reported >= _REPORT_SECONDS:
            reported = now
            sys.stderr.write(f"{total:,} records sent, {total / (now - started):,.1f} a second\n")

    return add_count_and_print_rate


def _print_first_records(feed: TrafficFeed, count: int, *, as_json: bool) -> None:
    for event in feed.events(most=count):
        try:
            shown = {"payload": event.payload.decode()}
        except UnicodeDecodeError:
            shown = {"payload_hex": event.payload.hex()}
        line = {"key": event.key.decode(), "dirt": event.dirt, **shown}
        dirt = f" ({event.dirt})" if event.dirt else ""
        [payload] = shown.values()
        typer.echo(json.dumps(line, ensure_ascii=False) if as_json else f"{line['key']}{dirt}\t{payload}")


def _traffic_sentence(outcome: dict[str, Any]) -> str:
    return (
        f"{outcome['records']:,} records to {outcome['target']} in {outcome['seconds']:.1f} s: "
        f"{outcome['records_per_second']:,} per second, {outcome['asked_per_second']:g} requested; "
        f"{outcome['dirty']} dirty, {outcome['late']} late, {outcome['duplicates']} sent twice\n"
        f"ledger: {outcome['ledger']}"
    )
