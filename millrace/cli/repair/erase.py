"""``millrace erase``: erases a person's records from tables, dead letters and old snapshots while streams run."""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from millrace.cli.shared.console import (
    CommandRefusedError,
    confirm_or_exit,
    figure_columns,
    open_progress_display,
    print_json,
    table_with_rows,
)
from millrace.cli.shared.options import AsJson, EnvironmentName, Yes
from millrace.config import ConfigurationError, Environment, Problem, load
from millrace.etl.launch.erase_request_and_benchmark_schedule import EraseRequest
from millrace.lifecycle.jobs.erasure_requests import Answers, ErasureRequests, places_not_erased

if TYPE_CHECKING:
    from millrace.lifecycle.audits.query_audit import AuditedDeployment

CONDITION = "CONDITION"
"""Placeholder for the condition in the steps that a person takes elsewhere."""


def erase(
    env: EnvironmentName,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="CONDITION",
            help="SQL condition on columns of the tables: \"customer_id = '…'\".",
            show_default=False,
        ),
    ],
    keep_condition: Annotated[
        bool,
        typer.Option(
            "--keep-condition", help="Keep the condition in the record, too. Default: its SHA-256 only."
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be erased, and stop.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Erase a person's records from tables, dead letters and old snapshots, while the streams run.

    Shows first what matches, table by table, and what it does not erase; asks for confirmation. The running jobs erase beside
    their streams: no query stops, and no other record is lost or doubled. A landed row stays as an empty one with its
    identity, so that the record does not land again. Old snapshots expire when every derive query has read past them. If you
    interrupt the command, the jobs continue; the same command follows them again. A record of what was done is kept in the lake.

    Not erased: records that the source still holds, other sinks, other copies; the command names each. With --json and
    without --yes, prints what would be erased.

    [bold]Examples[/bold]

      millrace erase --env local --where "customer_id = 'c-1742'" --dry-run

      millrace erase --env prod --where "email IN ('a@example.com', 'b@example.com')"
    """
    from millrace.sandbox.operate_running_sandbox import (
        run_jobs_during_block,
        sandbox_or_account_with_connection,
    )

    environment = load(env)
    place, aws = sandbox_or_account_with_connection(environment)
    desk = ErasureRequests(place.client("s3"), place.names, list(environment.jobs))
    with run_jobs_during_block(environment, desk.jobs) if aws is None else nullcontext():
        request = _unfinished_erasure_with_condition(desk, where)
        if request is not None:
            typer.echo(f"erasure {request.id} is still running; this command follows it", err=True)
        else:
            request = _make_erasure_request(environment, place, where, keep_condition=keep_condition)
            preview = _ask_jobs_for_matches(environment, desk, request)
            if dry_run or (as_json and not yes):
                if as_json:
                    print_json(_erasure_document(request, preview), indent=None)
                else:
                    _print_preview(request, preview)
                return
            _print_preview(request, preview, err=True)
            if not any(
                f["rows"] + f["dead_letters"] for _, _, f in _job_table_and_counts_of_answers(preview)
            ):
                typer.echo("no record matches the condition; nothing was changed", err=True)
                return
            _refuse_large_share_of_rows(preview)
            confirm_or_exit("Erase these records?", yes=yes)
            request = replace(request, apply=True)
            desk.write_requests(request)
        done = _wait_until_all_jobs_erased(desk, request)
    typer.echo(json.dumps(_erasure_document(request, done)) if as_json else _erasure_sentence(request, done))


def _unfinished_erasure_with_condition(erasures: ErasureRequests, where: str) -> EraseRequest | None:
    """Return the earlier erasure that is not done yet; None if there is none.

    Raises
    ------
    CommandRefusedError
        It has another condition.
    """
    request = erasures.current_request()
    if request is None:
        return None
    if request["where"] != where:
        raise CommandRefusedError(
            f"erasure {request['id']}, requested by {request['by']}, is still running, and only one can run "
            "at a time; repeat its command with its condition to follow it"
        )
    return EraseRequest(**{**request, "left_out": tuple(request["left_out"])})


def _wait_until_all_jobs_erased(erasures: ErasureRequests, request: EraseRequest) -> Answers:
    """Wait until every job is done, and return their answers.

    Raises
    ------
    CommandRefusedError
        A table has changed meanwhile, so that the condition is no longer valid.
    """
    with open_progress_display(f"erasure {request.id}", lines_in_pipe=False) as say:
        done = erasures.wait_for_answers(
            request.id,
            ("done", "refused"),
            lambda line: say(f"erasure {request.id}: {line}"),
            patience_seconds=float("inf"),
        )
    erasures.delete_requests(request.id)
    refused = [problem for answer in done.values() for problem in answer["problems"]]
    if refused:
        raise CommandRefusedError("; ".join(refused))
    return done


def _make_erasure_request(
    environment: Environment, place: AuditedDeployment, where: str, *, keep_condition: bool
) -> EraseRequest:
    now = datetime.now(UTC)
    return EraseRequest(
        f"{now:%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:8]}",
        where,
        apply=False,
        by=str(place.client("sts").get_caller_identity()["Arn"]),
        asked_at=f"{now:%Y-%m-%dT%H:%M:%SZ}",
        keep_condition=keep_condition,
        # Kept in the record, which contains the condition only on request.
        left_out=tuple(places_not_erased(environment, place.names, CONDITION)),
    )


def _ask_jobs_for_matches(
    environment: Environment, erasures: ErasureRequests, request: EraseRequest
) -> Answers:
    """Ask every job for the matching records; the request is removed before this returns.

    Raises
    ------
    ConfigurationError
        Lists all problems of the condition.
    """
    erasures.write_requests(request)
    try:
        with open_progress_display("asking the running jobs what matches", lines_in_pipe=False):
            answers = erasures.wait_for_answers(request.id, ("previewed", "refused"), lambda _: None)
    finally:
        erasures.delete_requests(request.id)
    problems = [problem for answer in answers.values() for problem in answer["problems"]]
    if not problems and not any(answer["tables"] for answer in answers.values()):
        problems = [line for answer in answers.values() for line in answer["left_out"]] or [
            "no job has a table"
        ]
    if problems:
        where = f"environment {environment.name}"
        raise ConfigurationError(
            [Problem(where, 0, "--where", request.where, problem) for problem in dict.fromkeys(problems)]
        )
    return answers


def _job_table_and_counts_of_answers(answers: Answers) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for job, answer in answers.items():
        for name, counts in answer["tables"].items():
            yield job, name, counts


def _refuse_large_share_of_rows(preview: Answers) -> None:
    wide = [line for answer in preview.values() for line in answer["wide"]]
    if wide:
        raise CommandRefusedError(
            f"the condition matches much of a table ({'; '.join(wide)}); nothing was changed. To erase so "
            "much, write a larger `storage.erase_share` into the environment file and deploy it first: the "
            "jobs refuse more"
        )


def _places_not_erased(request: EraseRequest, answers: Answers) -> list[str]:
    own = [line for answer in answers.values() for line in answer["left_out"]]
    return list(dict.fromkeys([*own, *(line.replace(CONDITION, request.where) for line in request.left_out)]))


def _erasure_document(request: EraseRequest, answers: Answers) -> dict[str, Any]:
    return {
        "erasure": request.id,
        "state": "done" if all(a["state"] == "done" for a in answers.values()) else "previewed",
        "tables": [
            {"job": job, "table": name, **figures}
            for job, name, figures in _job_table_and_counts_of_answers(answers)
        ],
        "not_covered": _places_not_erased(request, answers),
    }


def _print_preview(request: EraseRequest, preview: Answers, *, err: bool = False) -> None:
    stream = sys.stderr if err else sys.stdout
    console = Console(stderr=err, width=None if stream.isatty() else 120, highlight=False)
    console.print(_counts_table(preview))
    console.print("Not erased by this command:")
    for line in _places_not_erased(request, preview):
        console.print(f"- {line}", markup=False, soft_wrap=True)
    console.print(
        "Dead letters have no columns, so those whose text contains a value of the condition are found. "
        "Values that are compressed, encrypted or written in another form are missed.",
        soft_wrap=True,
    )


def _counts_table(preview: Answers) -> Table:
    counted = figure_columns(
        "rows", "dead letters", "total rows", "files to rewrite", "snapshots to expire", no_wrap=False
    )
    table = Table("job", "table", *counted, title="What matches", title_justify="left")
    rows = (
        (
            job,
            name.partition(".")[2],
            *(f"{f[key]:,}" for key in ("rows", "dead_letters", "of", "files", "snapshots")),
        )
        for job, name, f in _job_table_and_counts_of_answers(preview)
    )
    return table_with_rows(table, rows)


def _erasure_sentence(request: EraseRequest, done: Answers) -> str:
    counts = ", ".join(
        f"{name.partition('.')[2]} {f['rows']:,}" for _, name, f in _job_table_and_counts_of_answers(done)
    )
    return f"erasure {request.id} is done; rows erased: {counts}. Its record is in the lake's bucket, below _erasures/"
