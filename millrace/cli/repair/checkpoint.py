"""``millrace checkpoint``: shows, resets, copies and moves the checkpoints of a job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated

import typer

from millrace.cli.run.checkpoint_compatibility import checkpoint_refusal_on_other_job
from millrace.cli.shared.console import CommandRefusedError, confirm_or_exit, print_json
from millrace.cli.shared.options import (
    AsJson,
    EnvironmentName,
    JobName,
    Yes,
    check_job_exists,
    load_environment_with_job,
    parse_duration_option,
    wrong_argument_error,
)
from millrace.config import Environment, load
from millrace.config.engines.versions import spark_line_of
from millrace.etl.checkpoints.manifest import FORMAT
from millrace.etl.launch.typed_json import versioned_json
from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.lifecycle.jobs.checkpoints import CheckpointContents, CheckpointRequestError, JobCheckpoints
from millrace.lifecycle.jobs.reset_effects import (
    records_read_again_lines,
    reset_objection,
)

checkpoint_app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Show, reset, copy or rename the checkpoints of a job.",
)

QueryName = Annotated[
    str, typer.Argument(metavar="QUERY", help="Name of the query whose checkpoint it is.", show_default=False)
]
To = Annotated[
    str,
    typer.Argument(
        metavar="[JOB/]QUERY",
        help="Name of the target query, in the same job if no JOB is given.",
        show_default=False,
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, and stop.")]


@checkpoint_app.command()
def show(
    env: EnvironmentName,
    job: JobName,
    query: Annotated[
        str | None,
        typer.Argument(metavar="[QUERY]", help="A query. Default: all of the job.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show for each query: the committed position, the version that wrote the checkpoint, and the current writer.

    [bold]Examples[/bold]

      millrace checkpoint show flights --env prod

      millrace checkpoint show flights land-flights --env prod --json
    """
    environment = load_environment_with_job(env, job)
    names = list(environment.jobs[job].queries)
    if query is not None:
        _check_query_exists(environment, job, query)
        names = [query]
    with translating_aws_errors("cannot read the checkpoints"):
        checkpoints = _job_checkpoints(environment, job)
        contents, holder = [checkpoints.read_contents(name) for name in names], checkpoints.current_writer()
    if as_json:
        queries = [
            {
                "query": each.query,
                "planned": each.planned,
                "committed": each.committed,
                "committed_at": None if each.committed_at is None else each.committed_at.isoformat(),
                "positions": list(each.positions),
                "manifest": each.manifest and json.loads(versioned_json(each.manifest, FORMAT)),
                "begins_at": each.start,
                "damaged": list(each.damaged),
            }
            for each in contents
        ]
        print_json({"held_by": holder, "queries": queries})
        return
    typer.echo(
        f"{job}: {'no job writes its checkpoints now' if holder is None else f'its checkpoints are written now by {holder}'}"
    )
    for each in contents:
        typer.echo("\n".join((*_position_lines(each), *(f"  DAMAGED: {file}" for file in each.damaged))))


@checkpoint_app.command()
def reset(
    env: EnvironmentName,
    job: JobName,
    query: QueryName,
    at: Annotated[
        datetime | None,
        typer.Option(
            metavar="TIME",
            formats=["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%HZ", "%Y-%m-%d"],
            help="Read streams and topics from this time on (UTC). Default: the start position in the query's settings.",
        ),
    ] = None,
    overlap: Annotated[
        str,
        typer.Option(
            metavar="TIME",
            help="Begin this long before --at, to include records that arrived out of order.",
        ),
    ] = "10m",
    duplicates: Annotated[
        bool, typer.Option("--duplicates", help="Reset even if the sink cannot recognise duplicates.")
    ] = False,
    dry_run: DryRun = False,
    yes: Yes = False,
) -> None:
    """Give a query of a stopped job a new checkpoint that starts at a time; the old one is kept in another folder.

    Records that are read twice are not doubled if the sink recognises them by their identity; other sinks are refused. Use
    this command after a refused restart, and to move a query on Kinesis to another engine: choose a time before the oldest
    record that was not read yet.

    A topic that was deleted and created again numbers its records from 0. Under the same stream name they look like
    duplicates of the old ones, so the next start is refused. First give the stream another name in the environment file (the
    table then keeps the records of both), or give the query another table.

    [bold]Examples[/bold]

      millrace checkpoint reset flights land-flights --env prod --at 2026-11-20T08:00:00Z --dry-run
    """
    environment = load_environment_with_job(env, job)
    _check_query_exists(environment, job, query)
    moment = None if at is None else at.replace(tzinfo=UTC)
    span = parse_duration_option("--overlap", overlap)
    now = datetime.now(UTC)
    if moment is not None and moment > now:
        raise wrong_argument_error(environment, "--at", str(at), "a time in the past")
    reason = reset_objection(environment, job, query, moment)
    if reason is not None and not duplicates:
        raise CommandRefusedError(f"{job}/{query} cannot be reset: {reason} (--duplicates resets it anyway)")
    start = None if moment is None else (moment - span).isoformat()
    typer.echo("\n".join(_start_and_reread_lines(environment, job, query, start, now)), err=True)
    with translating_aws_errors("cannot read the checkpoints"):
        checkpoints = _job_checkpoints(environment, job)
        if not checkpoints.has_batches(query):
            typer.echo(f"{job}/{query} has no checkpoint yet", err=True)
        if dry_run:
            return
        confirm_or_exit("Continue?", yes=yes)
        with checkpoints.holding_lease("millrace checkpoint reset"):
            archived = checkpoints.archive_checkpoint_and_return_url(query, start=start, moment=now)
    typer.echo(
        f"{job}/{query} gets a new checkpoint at the next start; the old one is archived in {archived}"
    )


@checkpoint_app.command()
def fork(env: EnvironmentName, job: JobName, query: QueryName, to: To, dry_run: DryRun = False) -> None:
    """Copy a checkpoint for a new query with its own sink, which continues from the same position.

    [bold]Examples[/bold]

      millrace checkpoint fork flights land-flights land-flights-v2 --env dev
    """
    _fork_or_move_checkpoint(env, job, query, to, moves=False, dry_run=dry_run)


@checkpoint_app.command()
def move(env: EnvironmentName, job: JobName, query: QueryName, to: To, dry_run: DryRun = False) -> None:
    """Move a checkpoint after a query was renamed or moved to another job; the old one is kept in another folder.

    [bold]Examples[/bold]

      millrace checkpoint move flights land-flights departures/land-flights --env prod
    """
    _fork_or_move_checkpoint(env, job, query, to, moves=True, dry_run=dry_run)


def _fork_or_move_checkpoint(env: str, job: str, query: str, to: str, *, moves: bool, dry_run: bool) -> None:
    environment = load(env)
    other, _, name = to.rpartition("/")
    other = other or job
    check_job_exists(environment, other)
    # The file may no longer have the old query and job, and need not have the new query yet.
    for key, part in (("JOB", job), ("QUERY", query), ("QUERY", name)):
        if not part or part.startswith("_") or "/" in part or part in (".", ".."):
            raise wrong_argument_error(
                environment,
                key,
                part,
                f"the name of a {key.lower()}, without / and without _ at its beginning",
            )
    verb = "move" if moves else "fork"
    with translating_aws_errors("cannot read the checkpoints"):
        source = _job_checkpoints(environment, job)
        target = source if other == job else _job_checkpoints(environment, other)
        if not source.has_batches(query):
            raise CheckpointRequestError(f"{job}/{query} has no checkpoint")
        source.read_undamaged_contents(query)
        if target is not source and (
            why := _checkpoint_refusal_on_other_job(environment, source, query, other)
        ):
            raise CheckpointRequestError(f"{other}/{name} could not continue from {job}/{query}: {why}")
        typer.echo(f"{verb}: {job}/{query} → {other}/{name}", err=True)
        if dry_run:
            return
        what = f"millrace checkpoint {verb}"
        with source.holding_lease(what):
            with nullcontext() if target is source else target.holding_lease(what):
                source.copy_checkpoint(query, target, name, same_sink=moves)
            if moves:
                archived = source.archive_checkpoint_and_return_url(
                    query, start=None, moment=datetime.now(UTC)
                )
                typer.echo(f"moved {job}/{query}; its old checkpoint is archived in {archived}", err=True)
    typer.echo(f"{other}/{name} continues from the position of {job}/{query}")


def _checkpoint_refusal_on_other_job(
    environment: Environment, source: JobCheckpoints, query: str, other: str
) -> str:
    """Return why another job's engine and Spark could not continue from a checkpoint; empty if they can."""
    from millrace.sandbox.operate_running_sandbox import running_sandbox_deployment

    text = source.manifest_text(query)
    there = environment.jobs[other]
    engine, spark = there.engine, there.spark_version
    if text is None:
        return ""
    if running_sandbox_deployment(environment) is not None:
        engine, spark = "sandbox", spark_line_of(spark).spark
    return checkpoint_refusal_on_other_job(
        text, environment.name, source.job, query, engine=engine, spark=spark
    )


def _job_checkpoints(environment: Environment, job: str) -> JobCheckpoints:
    from millrace.sandbox.operate_running_sandbox import sandbox_or_account_with_connection

    place, _ = sandbox_or_account_with_connection(environment)
    return JobCheckpoints(place.client("s3"), place.names, job)


def _check_query_exists(environment: Environment, job: str, query: str) -> None:
    queries = environment.jobs[job].queries
    if query not in queries:
        raise wrong_argument_error(environment, "QUERY", query, f"one of {', '.join(queries)}")


def _start_and_reread_lines(
    environment: Environment, job: str, query: str, start: str | None, now: datetime
) -> Iterator[str]:
    """Yield lines with the start position, and the records that a query reads again."""
    if start is None:
        yield f"{job}/{query} starts where its settings say; a derive query starts with all landed records"
        return
    yield f"{job}/{query} starts with the records that arrived at {start}"
    for line in records_read_again_lines(environment, job, query, datetime.fromisoformat(start), now):
        yield f"  {line}"


def _position_lines(contents: CheckpointContents) -> Iterator[str]:
    if contents.planned is None:
        where = "" if contents.start is None else f", will start at {contents.start}"
        yield f"{contents.query}: not started{where}"
        return
    done = (
        "none"
        if contents.committed is None
        else f"{contents.committed} at {contents.committed_at:%Y-%m-%d %H:%M:%SZ}"
    )
    yield f"{contents.query}: last batch committed {done}, planned {contents.planned}"
    if contents.manifest is not None:
        by = contents.manifest
        yield f"  written by {by.engine}, Spark {by.spark}, core {by.core}: a {by.kind} query"
        for number, leg in enumerate(by.legs):
            position = (
                json.dumps(contents.positions[number]) if number < len(contents.positions) else "not known"
            )
            yield f"  {leg}: {position}"
        for operator in by.operators or ():
            yield f"  keeps state: {operator}"
