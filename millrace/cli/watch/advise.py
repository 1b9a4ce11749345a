"""``millrace advise``: recommends changes to any Spark job, ours or not, from its event log."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from millrace.advisor.advise import advise
from millrace.advisor.apply_changes import advice_with_planned_savings
from millrace.advisor.existing.foreign_jobs import (
    find_log_of_run,
    look_up_emr_application,
    look_up_glue_job,
)
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob, advised_environment_job
from millrace.advisor.findings.model import Advice, Change, Evidence, Finding
from millrace.advisor.logs.application_history_model import History
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import EventLog, aws_errors_as_wrong_option, find_event_logs
from millrace.cli.shared.console import figure_columns, plain_table, print_json, print_rich, word_columns
from millrace.cli.shared.html_pages import check_page_is_writable, write_page
from millrace.cli.shared.options import (
    HtmlPage,
    check_job_exists,
    complete_environment_names,
    complete_job_names,
)
from millrace.cli.shared.verdict import verdict_document, verdict_panel
from millrace.cli.watch import advised_changes_with_forecasts as options
from millrace.cli.watch.advise_page import advice_page
from millrace.cli.watch.advise_verdict import advice_verdict, severity_of_finding
from millrace.config import Environment, load
from millrace.config.document.problems import wrong_option_error
from millrace.sizing import plan

_BATCHES = 6
"""Most batch numbers that are shown for a finding; the others are counted."""


def advise_command(
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="[PATH]",
            help="An event log, a folder of them, or s3://BUCKET/PREFIX.",
            show_default=False,
        ),
    ] = None,
    glue_job: Annotated[
        str | None,
        typer.Option("--glue-job", metavar="NAME", help="Any Glue job of the account; it is only read."),
    ] = None,
    emr_app: Annotated[
        str | None,
        typer.Option(
            "--emr-app", metavar="ID", help="Any EMR Serverless application of the account; it is only read."
        ),
    ] = None,
    run: Annotated[
        str | None,
        typer.Option("--run", metavar="ID", help="With --glue-job or --emr-app: a run. Default: the latest."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            "--env",
            metavar="NAME",
            help="Environment of the job; the advice then names the keys to change in its file.",
            autocompletion=complete_environment_names,
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(
            "--job",
            metavar="JOB",
            help="With --env: the job. Default: the one with these queries.",
            autocompletion=complete_job_names,
        ),
    ] = None,
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="KEY=VALUE",
            help="Predict the effect of a change, such as cores=8. Keys: cores, limit, trigger, partitions, cache, worker, "
            "split, merge and traffic; separate several by commas. Repeatable.",
        ),
    ] = None,
    score: Annotated[
        Path | None,
        typer.Option(
            "--score", metavar="FILE", help="Compare the forecast in an earlier --json output with this log."
        ),
    ] = None,
    apply: Annotated[
        bool,
        typer.Option(
            "--apply", help="With --env: write the changes into the environment file and show the diff."
        ),
    ] = False,
    finding: Annotated[
        list[int] | None,
        typer.Option(
            "--finding", min=1, help="With --apply: apply only the finding with this number. Repeatable."
        ),
    ] = None,
    html: HtmlPage = None,
    as_json: Annotated[
        bool,
        typer.Option(
            "--json", help="Print one JSON object. Keep it: --score compares its forecasts with a later log."
        ),
    ] = False,
) -> None:
    """Read the event log of a Spark Structured Streaming application and recommend changes.

    Reads logs of any job on Spark 3.5 and 4: rolled or single, compressed or plain, complete or cut off. Changes nothing.
    Each finding has its evidence, a change, and the expected effect. From a folder with several logs, reads the newest.

    [bold]Examples[/bold]

      millrace advise .millrace/sandbox/event-logs

      millrace advise s3://our-logs/glue/orders --json

      millrace advise --glue-job orders

      millrace advise logs/jr_0a1b --env prod --job departures

      millrace advise logs/jr_0a1b --what-if cores=8 --what-if trigger=30s,limit=50000 --html advice.html

      millrace advise logs/jr_0a1b --env prod --apply --json > advice.json

      millrace advise logs/jr_2c3d --score advice.json
    """
    check_page_is_writable(html)
    if job is not None and env is None:
        raise wrong_option_error("--job", job, "only with --env")
    if finding and not apply:
        raise wrong_option_error("--finding", ", ".join(map(str, finding)), "only with --apply")
    environment = load(env) if env is not None else None
    subject, logs, run_id = _advised_job_place_and_run(path, glue_job, emr_app, run)
    log, doubt = _find_log_and_doubts(logs, run_id, asked=run is not None)
    history = read_history(log)
    _check_is_streaming_log(history, log)
    if environment is not None:
        subject = _advised_job_of_environment(environment, job, [each.name for each in history.queries])
    advice = advice_with_planned_savings(advise(history, subject), subject)
    advice = replace(advice, notes=(*doubt, *advice.notes))
    foreseen = options.forecast_changes(advice, subject, what_if or (), score)
    advice = options.advice_without_harmful_findings(advice, foreseen, subject)
    ran = foreseen.forecasts[0] if foreseen.forecasts else None
    given = [("--glue-job", glue_job), ("--emr-app", emr_app), ("--run", run), ("--env", env), ("--job", job)]
    words = [word for option, value in given if value is not None for word in (option, value)]
    source = shlex.join([*([] if path is None else [path]), *words])
    verdict = advice_verdict(advice, subject, ran, source=source, env=env)
    document = (
        advice_document(advice)
        | {"verdict": verdict_document(verdict)}
        | options.forecasts_document(foreseen)
    )
    if html is not None:
        write_page(html, advice_page(document, history, foreseen.twin, foreseen.forecasts))
    outcome = options.write_best_changes_into_file(advice, env, finding or ()) if apply else None
    if as_json:
        print_json(document)
        if outcome is not None:
            typer.echo(outcome, err=True)
        return
    print_rich(*verdict_panel(verdict, terminal=sys.stdout.isatty()))
    _print_advice(advice, log.name)
    if what_if or score is not None or apply or html is not None:
        options.print_forecasts(foreseen)
    if outcome is not None:
        typer.echo(f"\n{outcome}")
    if html is not None:
        typer.echo(f"wrote {html}")


def _advised_job_place_and_run(
    path: str | None, glue_job: str | None, emr_app: str | None, run: str | None
) -> tuple[AdvisedJob, str, str]:
    subjects = {"PATH": path, "--glue-job": glue_job, "--emr-app": emr_app}
    named = {key: value for key, value in subjects.items() if value is not None}
    if len(named) != 1:
        raise wrong_option_error(
            "PATH", ", ".join(named) or "(missing)", "exactly one of PATH, --glue-job and --emr-app"
        )
    if path is not None:
        if run is not None:
            raise wrong_option_error("--run", run, "a run id together with --glue-job or --emr-app")
        return AdvisedJob(), path, ""
    import boto3

    option, subject = ("--glue-job", glue_job) if glue_job is not None else ("--emr-app", str(emr_app))
    with aws_errors_as_wrong_option(option, subject, "a job in an AWS account that can be reached"):
        session = boto3.Session()
        region = session.region_name or ""
        if glue_job is not None:
            result = look_up_glue_job(session.client("glue"), glue_job, region, run)
        else:
            result = look_up_emr_application(session.client("emr-serverless"), subject, region, run)
    return result.subject, result.logs, run or result.run


def _find_log_and_doubts(place: str, run: str, *, asked: bool) -> tuple[EventLog, tuple[str, ...]]:
    """Return the log of a run, or the newest log if no run is named; and any doubts about it."""
    logs = find_event_logs(place)
    log = find_log_of_run(logs, run) if run else logs[0]
    if log is not None:
        return log, ()
    if asked:
        raise wrong_option_error(
            "--run", run, f"a run whose event log is at {place}; no log there belongs to this run"
        )
    return logs[0], (
        f"no log at {place} belongs to run {run}; the newest log was read and may be of another job",
    )


def _check_is_streaming_log(history: History, log: EventLog) -> None:
    """Refuse a log that is not one of a streaming application, because advice on it would be empty."""
    if history.queries:
        return
    cut = f"; it was not read to its end: {history.ended_at}" if history.ended_at else ""
    if not history.app_id:
        raise wrong_option_error(
            "PATH",
            log.name,
            "an event log as Spark writes it, plain or compressed with zstd, gzip, lz4 or snappy; this "
            f"file has no event that can be read ({history.unread:,} lines are no events of Spark){cut}",
        )
    jobs = f"{len(history.jobs):,} Spark job{'s' * (len(history.jobs) != 1)}"
    raise wrong_option_error(
        "PATH",
        log.name,
        f"the event log of a Structured Streaming application; this one has {jobs} and no micro-batch",
    )


def _advised_job_of_environment(environment: Environment, job: str | None, queries: list[str]) -> AdvisedJob:
    if job is None:
        same = [name for name, each in environment.jobs.items() if set(queries) & set(each.queries)]
        if len(same) != 1:
            allowed = (
                f"one of {', '.join(environment.jobs)}: the log's queries are {', '.join(queries) or 'none'}"
            )
            raise wrong_option_error("--job", "(missing)", allowed)
        job = same[0]
    check_job_exists(environment, job, "--job")
    return advised_environment_job(environment, plan(environment), job)


def advice_document(advice: Advice) -> dict[str, Any]:
    """Return advice as an object that ``json.dumps`` takes.

    Returns
    -------
    dict
        ``version``; ``verdict``, if the command adds it (:func:`millrace.cli.shared.verdict.verdict_document`); ``application`` with
        ``id``, ``name``, ``spark``, ``engine``, ``cores``, ``started``, ``ended``, ``complete``; ``queries``, one for each run,
        with ``name``, ``run``, ``batches``, ``failure``; ``disturbed`` (words or null); ``notes``; ``findings``, the most
        expensive first, each with ``kind``, ``query``, ``words``, ``evidence``, ``batches``, ``changes`` (with what each needs in ``also``), ``effect`` (``what``,
        ``unit``, ``low``, ``likely``, ``high``), ``dollars_a_month``, ``run`` (of the query) and ``severity``. With ``--json`` also the keys of
        :func:`millrace.cli.watch.advised_changes_with_forecasts.forecasts_document`.
    """
    history = advice.history
    return {
        "version": 1,
        "application": {
            "id": history.app_id,
            "name": history.name,
            "spark": history.spark_version,
            "engine": history.engine,
            "cores": history.cores,
            "started": _iso_time(history.started),
            "ended": _iso_time(history.ended),
            "complete": history.complete,
        },
        "queries": [
            {
                "name": each.name,
                "run": each.run_id,
                "batches": len(each.batches),
                "failure": each.failure,
            }
            for each in history.queries
        ],
        "disturbed": advice.disturbed,
        "notes": list(advice.notes),
        "findings": [asdict(each) | {"severity": severity_of_finding(each)} for each in advice.findings],
    }


def _iso_time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _print_advice(advice: Advice, log: str) -> None:
    # Names come from the log: as Text, their brackets and colons are not read as markup.
    print_rich(Text(f"log: {log}"))
    if advice.disturbed is not None:
        print_rich(Text(f"disturbed: {advice.disturbed}"))
    if advice.findings:
        rows = (map(Text, _finding_cells(each)) for each in advice.findings)
        gains = figure_columns("gain", "from", "to", "a month")
        print_rich(plain_table(*word_columns("finding", "query"), *gains, "of", rows=rows))
        for number, each in enumerate(advice.findings, 1):
            print_rich(*_finding_lines(number, each))
    elif any(each.batches for each in advice.history.queries):
        print_rich("no change is recommended")
    for note in advice.notes:
        print_rich(Text(f"note: {note}"))


def _finding_cells(finding: Finding) -> tuple[str, ...]:
    effect, dollars = finding.effect, finding.dollars_a_month
    return (
        finding.kind,
        finding.query or "all",
        *(f"{value:,.2f} {effect.unit}" for value in (effect.likely, effect.low, effect.high)),
        "" if dollars is None else f"${dollars:,.2f}",
        effect.what,
    )


def _finding_lines(number: int, finding: Finding) -> Iterable[Text]:
    yield Text.assemble("\n", (f"{number}. {finding.kind}", "bold"))
    yield Text(finding.words)
    yield Text("  evidence: " + "; ".join(_evidence_text(each) for each in finding.evidence))
    if finding.batches:
        shown = ", ".join(map(str, finding.batches[:_BATCHES]))
        more = f" and {len(finding.batches) - _BATCHES} more" if len(finding.batches) > _BATCHES else ""
        yield Text(f"  batches: {shown}{more}")
    for first, each in enumerate(finding.changes):
        yield Text(f"  {'or' if first else 'change'}: {_change_text(each)}")


def _evidence_text(evidence: Evidence) -> str:
    text = f"{evidence.name} {evidence.value:,.4g} {evidence.unit}".rstrip()
    if evidence.low is None or evidence.high is None or evidence.low == evidence.high:
        return text
    return f"{text} ({evidence.low:,.4g} to {evidence.high:,.4g})"


def _change_text(change: Change) -> str:
    old = "" if change.old is None else f" from {change.old}"
    new = "nothing" if change.new is None else str(change.new)
    if change.kind == "code":
        return f"{change.where}: {change.key}: {new}"
    also = "".join(f", together with {_change_text(each)}" for each in change.also)
    return f"{change.where}: {change.key}{old} to {new}{also}"
