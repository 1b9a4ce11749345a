"""Forecasts of ``millrace advise`` (what-if changes; kept and scored), and its changes to the environment file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.text import Text

from millrace.advisor.apply_changes import try_changes
from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob, EnvironmentJob
from millrace.advisor.findings.model import Advice, Change, Finding
from millrace.advisor.forecasts.forecast_figures import FIGURES, Forecast, QueryForecast
from millrace.advisor.forecasts.forecast_scores import (
    ScoredForecast,
    changes_to_simulate_by_finding,
    read_forecasts,
    score_forecasts,
)
from millrace.advisor.forecasts.what_if import ApplicationTwin, parse_what_if_changes, twin_of_application
from millrace.advisor.logs.application_history_model import History
from millrace.cli.shared.console import figure_columns, plain_table, print_rich, word_columns
from millrace.config import load
from millrace.config.document.problems import results_or_all_problems, wrong_option_error
from millrace.sizing import total_cost
from millrace.sizing.cost import HOURS
from millrace.sizing.readable_numbers import duration_text


@dataclass(frozen=True)
class TwinForecasts:
    """Forecasts of the twin, and scores of earlier ones.

    Attributes
    ----------
    twin
        Model that is fitted to the log.
    forecasts
        The run as it was, then the changes that were asked for, then the changes of findings that can be simulated.
    missed
        Relative error of the replay in the median batch duration, by query.
    scored
        Forecasts of an earlier log, compared with this one.
    """

    twin: ApplicationTwin
    forecasts: tuple[Forecast, ...]
    missed: dict[str, float]
    scored: tuple[ScoredForecast, ...]


def forecast_changes(
    advice: Advice, subject: AdvisedJob, texts: Sequence[str], score_file: Path | None
) -> TwinForecasts:
    """Fit the twin, and return its forecasts of the changes that are asked for and those of findings.

    Parameters
    ----------
    texts
        Changes as :func:`millrace.advisor.forecasts.what_if.parse_what_if_changes` reads them.
    score_file
        JSON output with forecasts of an earlier log.
    """
    earlier = read_forecasts(score_file) if score_file is not None else ()
    twin = twin_of_application(advice.history, _worker_usd_per_hour(advice.history, subject))
    names = list(twin.queries)
    known = names or [each.name for each in advice.history.queries]
    changes = results_or_all_problems(partial(parse_what_if_changes, text, known) for text in texts)
    if not twin.queries:
        return TwinForecasts(twin, (), {}, score_forecasts(earlier, twin))
    changes = list(
        dict.fromkeys((*changes, *changes_to_simulate_by_finding(advice.findings, names).values()))
    )
    before = twin.forecast_what_if(())
    return TwinForecasts(
        twin,
        (before, *(twin.forecast_what_if(each) for each in changes)),
        twin.relative_duration_errors(before),
        score_forecasts(earlier, twin),
    )


def advice_without_harmful_findings(advice: Advice, answers: TwinForecasts, subject: AdvisedJob) -> Advice:
    """Return the advice without findings whose change makes a backlog or the age of records worse; notes name them.

    Records may become older within a known SLA. Where none is known, they may for a finding that promises no seconds: it
    saves cores.
    """
    if not answers.forecasts:
        return advice
    ran, *changed = answers.forecasts
    by_change = {each.changes: each for each in changed}
    allowed = {each.name: subject.latency_limit_seconds(each) for each in advice.history.queries}
    left, notes = list(advice.findings), list(advice.notes)
    for place, change in changes_to_simulate_by_finding(advice.findings, list(answers.twin.queries)).items():
        finding, forecast = advice.findings[place], by_change.get(tuple(map(str, change)))
        if forecast is None:
            continue
        behind, older = [], []
        for name, query in forecast.queries.items():
            sla, before, after = allowed.get(name), ran.queries[name], query.figures["oldest"]
            if query.grows_faster_than(before):
                behind.append(name)
            elif query.is_older_than(before) and (
                finding.effect.likely > 0 if sla is None else after.high > sla
            ):
                ages = (duration_text(each.value) for each in (before.figures["oldest"], after))
                older.append(f"{name} ({' to '.join(ages)})")
        if behind or older:
            left.remove(finding)
            words = f"the backlog of {', '.join(behind)} grows faster" if behind else ""
            words = words or f"records of {', '.join(older)} become older"
            notes.append(f"{finding.kind}: no advice of {change[0]}: simulated, {words} with it")
    return replace(advice, findings=tuple(left), notes=tuple(notes))


def _worker_usd_per_hour(history: History, subject: AdvisedJob) -> float | None:
    """Return the USD of one machine per hour."""
    if isinstance(subject, EnvironmentJob):
        return subject.plan.jobs[subject.job].worker_usd_hour
    if subject.dollars_month is None:
        return None
    return (
        subject.dollars_month
        / HOURS
        / (math.ceil(history.cores / max(1, history.smallest_executor_cores)) + 1)
    )


def forecasts_document(answers: TwinForecasts) -> dict[str, Any]:
    """Return ``forecasts``, ``replay_missed`` (relative error by query) and ``scores`` for ``--json``."""
    return {
        "forecasts": [each.model_dump() for each in answers.forecasts],
        "replay_missed": answers.missed,
        "scores": [
            {
                "forecast": str(each.forecast),
                "why_not": each.why_not,
                "left_out": list(each.left_out),
                "figures": [{**one.model_dump(), "missed": one.relative_error} for one in each.scores],
            }
            for each in answers.scored
        ],
    }


def print_forecasts(answers: TwinForecasts) -> None:
    """Print forecasts and scores."""
    head, rows = forecast_head_and_rows(answers.forecasts)
    if rows:
        table = plain_table(*word_columns(*head[:2]), *figure_columns(*head[2:], no_wrap=False))
        for cells in rows:
            red = {_BACKLOG: "red"} if cells[_BACKLOG].startswith("grows") else {}
            table.add_row(*(Text(cell, red.get(place, "")) for place, cell in enumerate(cells)))
        print_rich("", table)
        missed = ", ".join(f"{name} {share:.1%}" for name, share in answers.missed.items())
        print_rich(
            Text(f"error of the simulation on the batches of this log (median duration): {missed}", "dim")
        )
    for note in answers.twin.notes:
        print_rich(Text(f"note: {note}"))
    for scored in answers.scored:
        if scored.why_not is not None:
            print_rich(Text(f"not compared: {scored.forecast}: {scored.why_not}"))
            continue
        for why_not in scored.left_out:
            print_rich(Text(f"not compared: {scored.forecast}: {why_not}"))
        table = plain_table(
            *word_columns("query", "forecast of"),
            *figure_columns("predicted, s", "measured, s", "error", "in interval"),
            rows=[
                (
                    Text(one.query),
                    one.figure,
                    Text(f"{one.foretold.value:,.2f} [{one.foretold.low:,.2f}, {one.foretold.high:,.2f}]"),
                    f"{one.happened:,.2f}",
                    f"{one.relative_error:.1%}",
                    "yes" if one.inside else "no",
                )
                for one in scored.scores
            ],
        )
        print_rich("", Text(f"scored: {scored.forecast}"), table)


_BACKLOG = 4
"""Column of the backlog in a table of forecasts."""


def forecast_head_and_rows(forecasts: Sequence[Forecast]) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of a table of forecasts; no rows if there is only that of the run as it was."""
    head = [
        "what if",
        "query",
        "machines",
        "a month",
        "backlog",
        *(f"{each}, s" for each in FIGURES.values()),
    ]
    rows = []
    for each in forecasts if len(forecasts) > 1 else ():
        dollars = "" if each.dollars_month is None else f"${each.dollars_month:,.2f}"
        rows += [
            [str(each), name, str(each.workers), dollars, backlog_text(query), *forecast_cells(query)]
            for name, query in each.queries.items()
        ]
    return head, rows


def backlog_text(query: QueryForecast) -> str:
    """Return whether the backlog of a query stays, falls or grows, in words."""
    grows = query.grows
    if query.falls:
        return f"falls by {-grows.value:,.0f} [{-grows.high:,.0f}, {-grows.low:,.0f}] records/s"
    if query.keeps_up:
        return "stays"
    return f"grows by {grows.value:,.0f} [{max(0.0, grows.low):,.0f}, {grows.high:,.0f}] records/s"


def forecast_cells(query: QueryForecast) -> list[str]:
    """Return each figure of a query with its interval; "grows" for an age that only grows."""
    if not query.ended:
        longest = next(iter(query.figures.values())).value
        return [f"no batch ends in {longest:,.0f} s", *[""] * (len(query.figures) - 1)]
    return [
        f"{cells.value:,.2f} [{cells.low:,.2f}, {cells.high:,.2f}]"
        if query.keeps_up or key in ("duration", "slow")
        else "grows"
        for key, cells in query.figures.items()
    ]


def write_best_changes_into_file(advice: Advice, env: str | None, numbers: Sequence[int]) -> str:
    """Write the best changes of findings into the environment file; return the diff and the change in cost.

    Raises
    ------
    ConfigurationError
        There is no environment, no finding has a key of its file, a value differs from the one in the advice, or the
        environment would become invalid. Nothing is written then.
    """
    if env is None:
        raise wrong_option_error(
            "--apply", "(no --env)", "--env NAME, the environment whose file is to be changed"
        )
    environment = load(env)
    places = environment.value_locations
    assert places.tree is not None
    changes = _one_change_per_key(advice.findings, numbers)
    result = try_changes(places.tree.file, changes, places.root)
    result.write()
    diffs = "".join(each.diff() for each in result.files)
    before, after = total_cost(result.before).value, total_cost(result.after).value
    return f"{diffs}the plan: ${before:,.2f} a month before, ${after:,.2f} after; run `millrace deploy` to apply it on AWS"


def _one_change_per_key(findings: Sequence[Finding], numbers: Sequence[int]) -> list[Change]:
    """Return one change for each key, from the finding with the highest cost that changes it."""
    if wrong := [str(each) for each in numbers if each > len(findings)]:
        allowed = (
            f"the number of a finding, 1 to {len(findings)}" if findings else "none: there is no finding"
        )
        raise wrong_option_error("--finding", ", ".join(wrong), allowed)
    chosen = [findings[each - 1] for each in numbers] if numbers else findings
    changes: dict[str, Change] = {}
    for finding in chosen:
        change = next((each for each in finding.changes if each.kind == "environment"), None)
        for needed in () if change is None else (change, *change.also):
            if needed.kind == "environment":
                changes.setdefault(needed.key, needed)
    if not changes:
        raise wrong_option_error(
            "--apply",
            "nothing to write",
            "findings that change a key of the environment file; make the changes of these findings by hand",
        )
    return list(changes.values())
