"""``millrace import``: writes an environment file for a running job, and the steps of the cut-over."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer

from millrace.advisor.existing.environment_of_imported_job import environment_document, find_values_to_fill_in
from millrace.advisor.existing.import_cutover import (
    StartPositionError,
    cut_over_steps,
    import_comment,
    is_imported_from,
    load_yaml_times_as_text,
    only_stream_name,
    text_with_placeholders_filled_in,
    text_with_start_position,
)
from millrace.advisor.existing.import_transform_stubs import remove_transforms, write_transforms
from millrace.advisor.existing.imported_job_event_log import read_log_figures
from millrace.advisor.existing.read_job_to_import import (
    RunningJob,
    read_running_job,
)
from millrace.advisor.existing.stream_candidates_of_program import StreamAnswers
from millrace.advisor.logs.event_logs import aws_errors_as_wrong_option
from millrace.cli.plan.existing.import_plans import (
    environment_yaml,
    plan_of_environment_text,
    print_side_by_side,
    sizes_by_title,
    text_and_plans_with_fitted_sla,
)
from millrace.cli.shared.console import print_json
from millrace.cli.shared.options import AsJson
from millrace.config import ConfigurationError, find_root, load
from millrace.config.base import SLUG, SLUG_SAID
from millrace.config.document.problems import dotted_path, wrong_option_error
from millrace.config.units import normalized_start_position
from millrace.sizing import Plan

_AHEAD = timedelta(minutes=30)
"""Default time until the new job's first record, for reading and deploying the file; the job starts no earlier."""


def import_command(
    source: Annotated[
        str, typer.Argument(metavar="glue:NAME|emr:APP/RUN", help="The running job; it is only read.")
    ],
    name: Annotated[
        str, typer.Option("--name", help="Name of the environment; the file is environments/NAME.yaml.")
    ],
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE",
            help="Schema file of its records, such as pipelines/orders/schemas/order.ddl.",
        ),
    ] = None,
    project: Annotated[
        str,
        typer.Option("--project", help="Name of the project; the names of deployed resources begin with it."),
    ] = "imported",
    logs: Annotated[
        str | None,
        typer.Option(
            "--logs",
            metavar="PATH",
            help="Event logs of the job; they give its rate, speed, trigger and limit.",
        ),
    ] = None,
    stream: Annotated[
        str | None,
        typer.Option(
            "--stream",
            metavar="NAME|ARN",
            help="Kinesis stream, if the program reads several or does not name it.",
        ),
    ] = None,
    topic: Annotated[
        str | None,
        typer.Option(
            "--topic", metavar="NAME", help="Kafka topic, if the program reads several or does not name it."
        ),
    ] = None,
    brokers: Annotated[
        str | None,
        typer.Option(
            "--brokers",
            metavar="HOST:PORT,...",
            help="Kafka brokers. Default: from the program or its connection.",
        ),
    ] = None,
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret", metavar="ARN", help="Secret of Secrets Manager for the sign-in at the brokers."
        ),
    ] = None,
    latency: Annotated[
        str | None,
        typer.Option(
            "--latency",
            metavar="TIME",
            help="SLA from arrival to commit. Default: twice the trigger, at least 60s.",
        ),
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option("--rate", min=0.001, help="Records per second. Default: from the logs."),
    ] = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            min=1,
            help="Partitions of the Kafka topic, or shards of the stream. Default: from the logs, and from Kinesis.",
        ),
    ] = None,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="ARN",
            help="ARN of the MSK cluster; needed for IAM login only. Default: found by its brokers.",
        ),
    ] = None,
    record_size: Annotated[str, typer.Option("--record-size", help="Mean size of a record.")] = "1KiB",
    start: Annotated[
        str | None,
        typer.Option(
            "--start",
            metavar="TIME",
            help="Arrival time in ISO 8601 from which the new job processes records. Default: in 30 minutes.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write an environment file for a running Glue or EMR Serverless job, with its current settings pinned.

    Streams, topics, VPC and role keep their owners. Shows the current sizes beside those that the plan would compute, then the
    steps of a cut-over without lost or duplicate records. Nothing is deployed, started or stopped.

    A value that cannot be read stands in the file as an open line, to which `millrace validate` points, with the option that sets it;
    the exit status is 1. If the file already exists for the same job, updates its open lines and the start position of the new job.

    [bold]Examples[/bold]

      millrace import glue:orders --name orders --schema pipelines/orders/schemas/order.ddl --rate 500

      millrace import emr:00f1abcd/00f2abcd --name orders --schema pipelines/orders/schemas/order.ddl --logs s3://our-logs/emr

      millrace import glue:orders --name orders --topic orders --brokers b-1.example.com:9098,b-2.example.com:9098
    """
    root = find_root()
    if not re.fullmatch(SLUG, name):  # before it becomes a part of a path
        raise wrong_option_error("--name", name, SLUG_SAID)
    target = root / "environments" / f"{name}.yaml"
    earlier = _text_of_earlier_import(target, source, name, root)
    if start is not None and start in ("earliest", "latest"):
        raise wrong_option_error("--start", start, "a time with its zone, such as 2026-01-31T00:00:00Z")
    if stream is not None and (topic is not None or brokers is not None):
        raise wrong_option_error(
            "--stream", stream, "a Kinesis stream alone, not together with --topic and --brokers"
        )
    moment = _iso_start_or_default(start)
    running = _read_running_job(source, StreamAnswers(stream, topic, brokers))
    log = read_log_figures(logs, running) if logs is not None else None
    offsets = None if log is None else log.offsets
    notes = [*running.notes, *(() if log is None else log.notes)]
    made = environment_document(
        running,
        env=name,
        project=project,
        schema=schema,
        start=moment,
        rate=rate,
        record_size=record_size,
        twin=None if log is None else log.twin,
        offsets=offsets,
        partitions=partitions,
        cluster=cluster,
        latency=latency,
        secret=secret,
        called=None if earlier is None else only_stream_name(earlier),
    )
    steps = cut_over_steps(running, made, name, exact=bool(offsets))
    shown = str(target.relative_to(root))
    if earlier is not None:
        _update_earlier_import_file(
            target,
            earlier,
            made,
            shown,
            root,
            notes,
            steps,
            latency_is_given=latency is not None,
            as_json=as_json,
        )
        return
    open_ones = {dotted_path(path): value for path, value in find_values_to_fill_in(made)}
    written = write_transforms(root, running, name)
    if running.program.written and written is None:
        notes.append("the transforms of an earlier import stay as they are")
    plans: Mapping[str, Plan] = {}
    refused = None
    text = environment_yaml(made)
    if not open_ones:
        try:
            text, plans, more = text_and_plans_with_fitted_sla(
                name, text, root, latency_is_given=latency is not None
            )
            notes += more
        except ConfigurationError as error:
            refused = error
            try:
                load(target, root, {target: text})
            except ConfigurationError:  # no plan is at fault, so nobody can correct its numbers in the file
                if written is not None:
                    remove_transforms(written)
                raise
    target.parent.mkdir(parents=True, exist_ok=True)
    comments = "".join(f"# {each}\n" for each in notes)
    target.write_text(f"{import_comment(source)}\n{comments}{text}", encoding="utf-8")
    if refused is not None:
        raise refused
    transforms = None if written is None else str(written.relative_to(root))
    _print_import_and_exit_if_open(
        shown,
        {"transforms": transforms, "environment": load_yaml_times_as_text(text)},
        [f"wrote {each}" for each in (shown, transforms) if each is not None],
        notes,
        open_ones,
        plans,
        steps,
        as_json=as_json,
    )


def _print_import_and_exit_if_open(
    file: str,
    result: Mapping[str, Any],
    lines: Sequence[str],
    notes: Sequence[str],
    open_ones: Mapping[str, str],
    plans: Mapping[str, Plan],
    steps: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Print what an import wrote, and say what is open, with exit status 1.

    Parameters
    ----------
    result, lines
        What it wrote, for scripts and for people.
    """
    if as_json:
        document = {
            "file": file,
            **result,
            "notes": notes,
            "open": open_ones,
            "plan": {which: sizes_by_title(each) for which, each in plans.items()},
            "cut_over": steps,
        }
        print_json(document)
    else:
        typer.echo("\n".join((*lines, *(f"note: {each}" for each in notes))))
        if plans:
            print_side_by_side(plans)
        numbered = (f"{number}. {step}" for number, step in enumerate(steps, 1))
        typer.echo("\n".join(("\nsteps of the cut-over:", *numbered)))
    for path, value in open_ones.items():
        typer.echo(f"{file}: {path}: {value}", err=True)
    if open_ones:
        raise typer.Exit(1)


def _text_of_earlier_import(target: Path, source: str, name: str, root: Path) -> str | None:
    """Return the text of the file of an earlier import of the same job; None if there is no file.

    Raises
    ------
    ConfigurationError
        The file was not imported from this job.
    """
    try:
        text = target.read_bytes().decode()
    except FileNotFoundError:
        return None
    except UnicodeDecodeError:
        text = ""
    if not is_imported_from(text, source):
        shown = target.relative_to(root)
        raise wrong_option_error(
            "--name", name, f"an unused name, because {shown} exists and was not imported from {source}"
        )
    return text


def _update_earlier_import_file(
    target: Path,
    text: str,
    imported: Mapping[str, Any],
    file: str,
    root: Path,
    notes: list[str],
    steps: list[str],
    *,
    latency_is_given: bool,
    as_json: bool,
) -> None:
    """Update the open lines and the start position in the file of an earlier import."""
    try:
        text, filled, left = text_with_placeholders_filled_in(text, imported)
        text, begins = text_with_start_position(text, imported)
    except StartPositionError as error:
        raise wrong_option_error("--name", target.stem, f"{error} ({file})") from None
    open_ones = {dotted_path(path): value for path, value in left.items()}
    plans: Mapping[str, Plan] = {}
    fits: list[str] = []
    if filled and not open_ones:
        text, plans, fits = text_and_plans_with_fitted_sla(
            target.stem, text, root, latency_is_given=latency_is_given
        )
        notes = [*notes, *fits]
    elif not open_ones:
        plan_of_environment_text(target.stem, text, root)
    values = {dotted_path(path): value for path, value in filled.items()}
    target.write_bytes(text.encode())
    query = ".".join(begins.path)
    before = "nothing" if begins.before is None else begins.before
    changes = [*values.items(), (f"{query}.{begins.key}", f"{before} → {begins.after}")]
    _print_import_and_exit_if_open(
        file,
        {
            "begins": {"query": query, "key": begins.key, "before": begins.before, "after": begins.after},
            "filled": values,
        },
        [
            f"{file}: {'; '.join(f'{path}: {value}' for path, value in changes)}"
            f"{'' if fits else '; nothing else was changed'}"
        ],
        notes,
        open_ones,
        plans,
        steps,
        as_json=as_json,
    )


def _iso_start_or_default(start: str | None) -> str:
    if start is None:
        ahead = datetime.now(UTC) + _AHEAD
        return ahead.replace(second=0, microsecond=0).isoformat().replace("+00:00", "Z")
    try:
        return normalized_start_position(start)
    except ValueError as error:
        raise wrong_option_error("--start", start, str(error)) from None


def _read_running_job(source: str, answers: StreamAnswers) -> RunningJob:
    import boto3

    with aws_errors_as_wrong_option("SOURCE", source, "a job in an AWS account that can be reached"):
        session: Any = boto3.Session()
        return read_running_job(session.client, source, session.region_name or "", answers)
