"""``millrace demo`` and ``millrace sandbox``: run an environment on one machine."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.markup import escape

from millrace.cli.extras import require_sandbox_extra
from millrace.cli.run import traffic
from millrace.cli.shared.console import print_json, print_rich
from millrace.cli.shared.options import (
    EnvironmentName,
    complete_environment_names,
    complete_job_names,
    load_environment_with_job,
)
from millrace.config import Environment, load
from millrace.config.document.problems import Finding, wrong_option_error
from millrace.config.engines.versions import LINES
from millrace.sizing.readable_numbers import count

if TYPE_CHECKING:
    from millrace.sandbox.environment_trial import TrialFeed
    from millrace.sandbox.trial_results import DerivedTableComparison, TableAfterTrial

_RATE = 50.0
"""Records a second for each stream."""

_FILE_SECONDS = 10
"""Longest time for the records of a file."""

sandbox_app = typer.Typer(
    help="Run an environment on this machine; stop what a sandbox left running.", no_args_is_help=True
)


def demo(
    records: Annotated[
        Literal["few", "month", "all"],
        typer.Option(
            help="Flights to send to Kafka: a few days, a month, or all 336,776. Kinesis gets ten days."
        ),
    ] = "month",
    environment: Annotated[
        str,
        typer.Option(
            "--env",
            help="Environment to deploy; it must have the jobs of the example.",
            autocompletion=complete_environment_names,
        ),
    ] = "local",
    spark: Annotated[
        str | None,
        typer.Option(help="Spark version of both jobs, such as 4.1."),
    ] = None,
    keep: Annotated[bool, typer.Option(help="Leave the servers running and print their addresses.")] = False,
) -> None:
    """Run the flights example on this machine: deploy to LocalStack, run its jobs, kill them, check every record.

    A run like `millrace sandbox run`, with departures from New York in 2013 as records, one in a hundred spoiled on purpose. They
    flow before and after each driver is killed with SIGKILL. The last line is one JSON object. The exit status is 0 only if no
    record is lost or doubled, every dead letter has the bytes that were sent, and no derived row is another one.

    Each job runs on the Spark line of its engine version (`make spark SPARK=4.1` installs one).

    Stops everything that it started, also after Ctrl-C and after a failure.
    """
    require_sandbox_extra()
    from millrace.sandbox.demo import (
        JOBS,
        demo_summary,
        feed_by_stream,
        write_environment_with_spark_version,
    )

    if spark is not None:
        if spark not in LINES:
            raise typer.BadParameter(f"{spark}: must be one of {', '.join(LINES)}", param_hint="--spark")
        environment = str(write_environment_with_spark_version(environment, LINES[spark]))
    loaded = load(environment)
    if any(job not in loaded.jobs for job in JOBS):
        what = f"the example's jobs, {' and '.join(JOBS)}, as in environments/local.yaml"
        raise loaded.value_locations.error_of_findings(
            [Finding(("jobs",), allowed=what, value=", ".join(loaded.jobs))]
        )
    tables = _run_trial_and_print(loaded, environment, JOBS, feed_by_stream(loaded, records), 0.0, keep=keep)
    summary = demo_summary(loaded, tables)
    print_json(summary, indent=None)
    compared = [each.comparison for each in tables.values() if each.comparison is not None]
    raise typer.Exit(
        bool(
            summary["dead_letters_altered"]
            or any(each.reason for each in compared)
            or any(each.is_wrong for each in tables.values())
        )
    )


@sandbox_app.command("run")
def run_here(
    env: EnvironmentName,
    job: Annotated[
        str | None,
        typer.Option(
            metavar="JOB",
            help="Run this job, and those that land what it derives from. Default: all.",
            autocompletion=complete_job_names,
        ),
    ] = None,
    source: Annotated[
        Path | None,
        typer.Option(
            "--from",
            exists=True,
            metavar="FILE|DIR",
            help="Send the lines of this file as they are (JSON lines for Avro and Protobuf), or of the files in this folder "
            "that are named after streams, such as orders.jsonl. Streams without a file get generated records.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(
            min=0.1, help="Records per second that each stream gets. Default: 50; a file within ten seconds."
        ),
    ] = None,
    seconds: Annotated[
        float, typer.Option(min=0, help="How long to send generated records after the restart.")
    ] = 15.0,
    seed: Annotated[int, typer.Option(help="The same seed gives the same records.")] = 1,
    keep: Annotated[
        bool,
        typer.Option(
            "--keep",
            help="Leave the servers and tables running and print their addresses. The next run stops them and begins with "
            "empty tables.",
        ),
    ] = False,
) -> None:
    """Run the jobs of an environment on this machine, on generated records of your schemas or on your own.

    Deploys the environment to LocalStack with the CDK app of the project, starts each job on local Spark from its deployed
    launch document, and sends records to each stream. When each table has its first rows, kills every job with SIGKILL and
    starts it again. Then compares the landing tables with the ledger of what was sent, and the derived tables with one batch of
    their transforms over all that landed, and shows a row of each table. The exit status is 0 only if no record is lost or
    doubled, and no row is another one. What cannot be compared is said.

    The environment may be of any account: own resources stand in for its account, network, keys, buckets, roles, and for
    streams and clusters that exist elsewhere. Stops everything that it started, unless --keep is given.

    [bold]Examples[/bold]

      millrace sandbox run --env dev

      millrace sandbox run --env dev --job orders --from orders.jsonl --keep
    """
    require_sandbox_extra()
    from millrace.sandbox import environment_trial
    from millrace.sandbox.localstack_deployment import make_stand_in

    loaded = load_environment_with_job(env, job, "--job")
    if lacking := list(_findings_of_sinks_without_server(loaded)):
        raise loaded.value_locations.error_of_findings(lacking)
    standing = make_stand_in(loaded, env)
    if standing.replaced:
        typer.echo(
            f"the sandbox replaces these by servers on this machine: {', '.join(standing.replaced)}", err=True
        )
    jobs = environment_trial.jobs_with_upstream(loaded, job)
    feeds = dict(
        _streams_with_feeds(loaded, environment_trial.streams_read_by(loaded, jobs), source, rate, seed)
    )
    tables = _run_trial_and_print(loaded, env, jobs, feeds, seconds, keep=keep)
    if any(landed.is_wrong for landed in tables.values()):
        raise typer.Exit(1)
    if sys.stdout.isatty():  # scripts do not need it
        after = f"millrace plan --env {env}; reshards, replays and more kills: millrace verify --env {env} --sandbox --yes"
        print_rich(f"[dim]next:[/dim] {escape(after)}")


def _run_trial_and_print(
    loaded: Environment,
    env: str,
    jobs: Sequence[str],
    feeds: Mapping[str, TrialFeed],
    seconds: float,
    *,
    keep: bool,
) -> dict[str, TableAfterTrial]:
    """Run a trial; print its steps on standard error, then a verdict on each table, and what keeps running."""
    from millrace.sandbox import environment_trial
    from millrace.sandbox.operate_running_sandbox import spark_of_running_sandbox

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    began = time.monotonic()
    tables = environment_trial.run_trial(
        env, jobs, feeds, seconds=seconds, keep=keep,
        say=lambda text: typer.echo(f"{time.monotonic() - began:4.0f} s  {text} …", err=True),
    )  # fmt: skip
    writers = loaded.table_writers
    for table, landed in tables.items():
        values = (f"{name}={_value_as_text(value)}" for name, value in landed.example.items())
        typer.echo(f"{table}: {_landed_table_sentence(landed)}; example:\n  {', '.join(values)}")
        if (letter := landed.letter) is not None:
            typer.echo(
                f"  a dead letter: {letter['_id']}, stage {letter['_stage']}: {letter['_error']}; its bytes begin "
                f"with {(letter['_bytes'] or b'')[:60]!r}\n  to decode it again: millrace replay {writers[table][-1]} "
                f"--env {env} --id {letter['_id']}"
            )
    for own, name, query in loaded.queries:
        for end in query.sinks_by_place.values() if own in jobs else ():
            if end.sink.catalog_table is None:
                typer.echo(f"{own}.{name}: its rows are not checked, because its sink is {end.sink.kind}")
    if keep:
        spark = spark_of_running_sandbox(loaded)
        typer.echo(
            "these servers run until `millrace sandbox stop` or the next run, which begins with empty "
            f"tables; no job runs:\n  S3 and the other services: {spark.stack.endpoint}\n  Kafka: "
            f"{spark.kafka}\n`millrace replay`, `backfill`, `audit` and `traffic` with --env {env} work on "
            "them"
        )
    return tables


def _streams_with_feeds(
    loaded: Environment, streams: Sequence[str], source: Path | None, rate: float | None, seed: int
) -> Iterator[tuple[str, TrialFeed]]:
    """Yield the feed of each stream: the records of its file, else generated ones."""
    from millrace.sandbox.environment_trial import TrialFeed
    from millrace.sandbox.records.traffic import TrafficShape

    files = {} if source is None else _files_by_stream(source, streams)
    for stream in streams:
        shape = TrafficShape(per_second=rate or _RATE)
        feed, total = traffic.stream_feed_and_record_count(loaded, stream, shape, seed, files.get(stream))
        if total is not None and rate is None:
            shape = replace(feed.shape, per_second=max(_RATE, total / _FILE_SECONDS))
            feed = replace(feed, shape=shape)
        yield stream, TrialFeed(feed, total)


def _files_by_stream(source: Path, streams: Sequence[str]) -> dict[str, Path]:
    """Return the file of each stream that has one.

    Raises
    ------
    ConfigurationError
        It is unclear for which stream a file is, or no file of the folder is named after a stream.
    """
    if source.is_dir():
        files = [
            (stream, each)
            for stream in streams
            for each in sorted(source.glob(f"{stream}.*"))
            if each.is_file()
        ]
        if len(files) > len(dict(files)):
            names = ", ".join(each.name for _, each in files)
            raise wrong_option_error(
                "--from", str(source), f"a folder with one file for each stream; it has several: {names}"
            )
        if files:
            return dict(files)
        raise wrong_option_error(
            "--from",
            str(source),
            f"a folder with a file named after {' or '.join(streams)}, such as {streams[0]}.jsonl",
        )
    if len(streams) > 1 and source.stem not in streams:
        allowed = f"a file named after one of the streams {', '.join(streams)}, a folder of such files, or --job with a job of one stream"
        raise wrong_option_error("--from", str(source), allowed)
    return {source.stem if source.stem in streams else streams[0]: source}


def _value_as_text(value: Any) -> str:
    """Return a value as people read it: times and dates in ISO form, text and numbers plain."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_value_as_text(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return f"[{', '.join(map(_value_as_text, value))}]"
    if isinstance(value, bytes):
        return f"0x{value.hex()}"
    return "null" if value is None else str(value)


def _landed_table_sentence(landed: TableAfterTrial) -> str:
    at = landed.first_seconds
    first = "none while others had theirs" if at is None else f"the first after {at:.0f} s"
    if (account := landed.account) is None:
        return f"{count(landed.rows, 'row')}, {first}; {_comparison_sentence(landed.comparison)}"
    letters = f", {account.dead_letters:,} of them dead letters" if account.dead_letters else ""
    sentence = (
        f"{count(account.produced, 'record')} sent, {count(landed.rows, 'row')}{letters}, {first}; "
        f"over a kill -9 {account.lost} lost, {account.duplicated} doubled, {account.unknown} others"
    )
    if (after := landed.after_kill) is not None:
        sentence += f", the next commit after {after.recovery_seconds:.0f} s"
        if after.records:
            sentence += f"; then {after.p50_seconds:.1f} s (p50) and {after.p95_seconds:.1f} s (p95) from arrival to commit"
    return sentence


def _comparison_sentence(comparison: DerivedTableComparison | None) -> str:
    """Return the verdict on a table without a ledger."""
    if comparison is None:
        return "not compared: its query skips earlier records, or has no landing table"
    if comparison.reason is not None:
        return f"not compared: {comparison.reason}"
    pending = f", {comparison.pending} wait for the watermark" if comparison.pending else ""
    where = f" in {', '.join(comparison.differing)}" if comparison.different else ""
    left_out = f"; {', '.join(comparison.left_out)} differ in each run" if comparison.left_out else ""
    return (
        f"of {count(comparison.rows, 'row')} by one batch {comparison.lost} lost, {comparison.doubled} doubled, "
        f"{comparison.different} different{where}, {comparison.unknown} others{pending}{left_out}"
    )


def _findings_of_sinks_without_server(loaded: Environment) -> Iterator[Finding]:
    """Yield sinks that the sandbox does not support, unless the user provides a LocalStack."""
    if os.environ.get("LOCALSTACK_ENDPOINT"):
        return
    for job, name, query in loaded.queries:
        for place, each in query.sinks_by_place.items():
            if each.sink.not_in_sandbox is not None:
                allowed = (
                    f"a sink that the sandbox has: {each.sink.not_in_sandbox}. Set LOCALSTACK_ENDPOINT to a LocalStack "
                    f"that has it, or write an environment with `extends: {loaded.name}` and null for this query"
                )
                yield Finding(("jobs", job, "queries", name, *place, "sink"), each.sink.kind, allowed)


@sandbox_app.command()
def stop() -> None:
    """Stop the servers that `millrace demo --keep` or a killed demo left running."""
    from millrace.sandbox.programs.child_processes import stop_left_programs

    stopped = stop_left_programs()
    typer.echo(f"stopped: {', '.join(stopped)}" if stopped else "nothing was running")
