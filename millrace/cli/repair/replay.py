"""``millrace replay``: decodes dead letters again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace.cli.shared.console import confirm_or_exit
from millrace.cli.shared.options import (
    AsJson,
    EnvironmentName,
    JobName,
    choose_query_name,
    load_environment_with_job,
)
from millrace.config import Environment
from millrace.config.queries import DeriveQuery, SourceQueryBase
from millrace.etl.launch.lease_record import FOLDER
from millrace.lifecycle.account.deployed_environment import (
    DeployedEnvironment,
    connect_to_account,
    split_s3_url,
)
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors
from millrace.lifecycle.jobs.state_machine import run_job_once, wait_for_logged_result


def replay(
    job: JobName,
    env: EnvironmentName,
    identity: Annotated[
        list[str] | None,
        typer.Option(
            "--id", metavar="IDENTITY", help="Replay only this dead letter (its column _id). Repeatable."
        ),
    ] = None,
    corrected: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help='File of JSON lines {"id": …, "payload": …}: decode these payloads instead of the received ones.',
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Query of the dead letters. Default: the one that reads a source.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="On AWS: do not ask for confirmation.")] = False,
    as_json: AsJson = False,
) -> None:
    """Decode dead letters again, with corrected payloads or after a schema was fixed; no good record is doubled.

    Without --id, tries all dead letters of the query, for example after its schema was fixed. Records that are good now go
    to the derive queries, or to the sink of a direct query. If --query names a derive query, replays the rows that its sink
    refused: through the transform again, or corrected.

    In the sandbox the replay runs beside the stream. On AWS the job is stopped, runs once for the replay, and is started
    again.

    [bold]Examples[/bold]

      millrace replay flights --env local --id flights/3/6673

      millrace replay flights --env prod --corrected corrected.jsonl
    """
    from millrace.sandbox import operate_running_sandbox

    environment = load_environment_with_job(env, job)
    queries = environment.jobs[job].queries
    name = choose_query_name(
        environment,
        job,
        query,
        [name for name, q in queries.items() if isinstance(q, SourceQueryBase)],
        "a job with dead letters",
        by_name=[
            name for name, q in queries.items() if isinstance(q, DeriveQuery) and q.dead_letters is not None
        ],
        listed="one with dead letters, by --query: {}",
    )
    if operate_running_sandbox.running_sandbox_deployment(environment) is None:
        outcome = _replay_on_aws(environment, job, name, identity or (), corrected, yes=yes)
    else:
        arguments = [part for each in identity or () for part in ("--id", each)]
        if corrected is not None:
            arguments += ["--corrected", corrected.resolve().as_uri()]
        typer.echo("replaying on local Spark, which takes about a minute …", err=True)
        outcome = operate_running_sandbox.replay_dead_letters_locally(
            operate_running_sandbox.spark_of_running_sandbox(environment), environment, job, name, arguments
        )
        if not outcome["letters"]:
            typer.echo(operate_running_sandbox.NO_JOB_RUNS.format(env), err=True)
    typer.echo(json.dumps(outcome) if as_json else _replay_sentence(outcome))
    raise typer.Exit(1 if outcome.get("unknown_ids") else 0)


def _replay_on_aws(
    environment: Environment,
    job: str,
    query: str,
    identities: Sequence[str],
    corrected: Path | None,
    *,
    yes: bool,
) -> dict[str, Any]:
    """Run the deployed job once with the replay's arguments; return its output, or how the run ended."""
    aws = connect_to_account(environment)
    confirm_or_exit(
        f"Stop {job}, replay dead letters of {query} in a separate run, and start it again?", yes=yes
    )
    begun = datetime.now(UTC)
    arguments = [("--replay", query)]
    # Glue accepts each argument name once.
    arguments += [("--id", ",".join(identities))] if identities else []
    with ExitStack() as resources:
        if corrected is not None:
            url = resources.enter_context(_payloads_uploaded_during_run(aws, job, corrected, begun))
            arguments.append(("--corrected", url))
        ended = run_job_once(aws, job, arguments, progress=lambda line: typer.echo(line, err=True))
    outcome = wait_for_logged_result(aws, job, begun, "replayed", query)
    # An identity without a dead letter makes the run fail, but the others are replayed.
    if not ended.succeeded and not (outcome or {}).get("unknown_ids"):
        raise AwsError(
            f"run {ended.run} ended as {ended.state}: "
            f"{ended.detail or f'`millrace logs {job} --errors` shows the reason'}. The records replayed so "
            "far are not replayed again; run the same command again for the rest"
        )
    return {**(outcome or {"query": query}), "run": ended.run, "state": ended.state}


@contextmanager
def _payloads_uploaded_during_run(
    aws: DeployedEnvironment, job: str, corrected: Path, begun: datetime
) -> Iterator[str]:
    """Upload corrected payloads for a run, and delete them afterwards, because they may be personal data."""
    url = f"{aws.names.checkpoints_url(job)}/{FOLDER}/replays/{begun:%Y%m%dT%H%M%S%fZ}/corrected.jsonl"
    bucket, key = split_s3_url(url)
    s3 = aws.client("s3")
    with translating_aws_errors(f"cannot write the corrected payloads to {url}"):
        written = s3.put_object(Bucket=bucket, Key=key, Body=corrected.read_bytes())
    # In a bucket with versions, which an existing one may be, a delete without the version only hides the object.
    version = {"VersionId": written["VersionId"]} if "VersionId" in written else {}
    try:
        yield url
    finally:
        try:
            with translating_aws_errors(f"cannot delete {url}"):
                s3.delete_object(Bucket=bucket, Key=key, **version)
        except AwsError as error:
            typer.echo(
                f"millrace replay: the file with the corrected payloads was not deleted: {error}", err=True
            )


def _replay_sentence(outcome: dict[str, Any]) -> str:
    if "letters" not in outcome:
        return f"{outcome['query']}: run {outcome['run']} ended as {outcome['state']}; see its log for the counts"
    left_out = (
        f"{filtered} are filtered by the transform now, " if (filtered := outcome.get("filtered")) else ""
    )
    text = (
        f"{outcome['letters']} dead letters of {outcome['query']} replayed: {outcome['good']} are good now, {left_out}"
        f"{outcome['bad']} are still bad, {outcome['already']} were replayed before"
    )
    if duplicates := outcome.get("duplicates"):
        text += f"; the sink had {duplicates} of their rows already and keeps those, also if this replay made others"
    unknown = outcome["unknown_ids"]
    return text + (f"; no dead letter has the identity {', '.join(unknown)}" if unknown else "")
