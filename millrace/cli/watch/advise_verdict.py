"""Verdict of advice: cost of the job, SLA, largest findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence

from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.findings.model import Advice, Finding, Kind
from millrace.advisor.forecasts.forecast_figures import Forecast, QueryForecast
from millrace.advisor.forecasts.forecast_scores import changes_to_simulate_by_finding
from millrace.advisor.logs.application_history_model import Query
from millrace.cli.shared.verdict import Risk, Severity, SlaState, Verdict, risks_largest_first
from millrace.config.base import grouped
from millrace.sizing.readable_numbers import count, dollars, duration_text, join_names

_BACKLOGS: frozenset[Kind] = frozenset({"at-capacity", "silent-backlog"})
"""Findings with records that wait; their effect is more than nothing at its low end only where the backlog grows."""

_WARNINGS: frozenset[Kind] = frozenset(
    {"growing-state", "unstable-start", "skewed-tasks", "retried-tasks", "slow-checkpoint", "restarted-query"}
)
"""Findings that grow with traffic or time, or cause occasional failures; all others cost a constant time or amount of money."""


def advice_verdict(
    advice: Advice,
    subject: AdvisedJob | None = None,
    as_it_ran: Forecast | None = None,
    *,
    source: str = "LOG",
    env: str | None = None,
) -> Verdict:
    """Return the verdict of advice.

    Parameters
    ----------
    subject
        The job of the log; left out, price and SLA are unknown.
    as_it_ran
        Simulation of the run: ages of records, and whether a backlog grows.
    source
        The log or job as the command line named it.
    env
        The environment as the command line named it.
    """
    history = advice.history
    risks = risks_largest_first(_risks_of_findings(advice))
    usd = None if subject is None else subject.dollars_month
    sla = _simulated_sla_state(advice, subject, as_it_ran, env)
    command, why = _next_command_and_effect(advice, risks, source, env)
    batches = sum(len(each.batches) for each in history.queries)
    queries = count(len({each.name for each in history.queries}), "query")
    cores = count(history.cores, "core")
    lasted = duration_text(history.ended - history.started)
    return Verdict(
        subject=f"{history.title} on {history.engine}, {cores}: {count(batches, 'batch')} of {queries} in {lasted}",
        cost="unknown" if usd is None else f"{dollars(usd)} a month",
        cost_words="no price is known; give --env, --glue-job or --emr-app"
        if usd is None
        else ("for all its machines" if env is None else "in the plan")
        + ("" if sla.state == "missed" else _largest_saving_text(advice, as_it_ran)),
        usd_month=usd,
        assumed=False,
        sla=sla,
        risks=risks,
        command=command,
        why=why,
    )


def severity_of_finding(finding: Finding) -> Severity:
    """Return the severity of a finding; a breach if records are not read any more or the backlog grows for certain."""
    if finding.kind == "failed-query" or (finding.kind in _BACKLOGS and finding.effect.low > 0):
        return "breach"
    return "warning" if finding.kind in _WARNINGS | _BACKLOGS else "note"


def _largest_saving_text(advice: Advice, as_it_ran: Forecast | None) -> str:
    """Return the largest saving and its change; empty where a backlog grows, or may."""
    best = advice.findings[0] if advice.findings else None
    if best is None or best.best_change is None or not best.dollars_a_month or as_it_ran is None:
        return ""
    queries = ((each, as_it_ran.queries.get(each.name)) for each in advice.history.queries)
    if any(ran is not None and (not ran.keeps_up or _hides_backlog(each, ran)) for each, ran in queries):
        return ""
    return f"; {dollars(best.dollars_a_month)} less with {best.best_change.key}={best.best_change.new}"


def _simulated_sla_state(
    advice: Advice, subject: AdvisedJob | None, as_it_ran: Forecast | None, env: str | None
) -> SlaState:
    """Return the state of the SLA: the 95th percentile of records' age in the simulation of the log against each query's."""
    queries = {each.name: each for each in advice.history.queries}  # of several runs the last one
    limits = (
        {} if subject is None else {name: subject.latency_limit_seconds(queries[name]) for name in queries}
    )
    allowed = {name: limit for name, limit in limits.items() if limit is not None}
    if not allowed:
        known = "no SLA is known; give --env NAME" if env is None else f"no SLA of its queries is in {env}"
        return SlaState("unknown", known)
    forecasts = {} if as_it_ran is None else as_it_ran.queries
    ran = {name: forecasts[name] for name in allowed if name in forecasts}
    if behind := [name for name, each in ran.items() if not each.keeps_up]:
        return SlaState(
            "missed", f"the backlog of {join_names(behind)} grows, and with it the age of records"
        )
    unknown = [
        f"batches of {name} are too few, or too far apart, to be simulated"
        for name in allowed
        if name not in ran
    ]
    unknown += [
        f"batches of {name} reach their limit, and its source does not report how many records wait"
        for name, each in ran.items()
        if _hides_backlog(queries[name], each)
    ]
    if ran:
        name = max(ran, key=lambda each: ran[each].figures["oldest"].value / allowed[each])
        age, limit = ran[name].figures["oldest"], allowed[name]
        words = f"age of {name}'s records, p95: {duration_text(age.value)} [{duration_text(age.low)} to {duration_text(age.high)}] of {duration_text(limit)}"
        words += ", while its backlog falls" if ran[name].falls else ""
        if age.low > limit or not unknown:
            return SlaState("missed" if age.low > limit else "at risk" if age.high > limit else "kept", words)
    return SlaState("unknown", "; ".join(unknown))


def _hides_backlog(query: Query, as_it_ran: QueryForecast) -> bool:
    """Check that batches reach a limit and no log tells what they leave: the records that arrive are then unknown."""
    taken = [each.records_behind for each in query.batches if each.records]
    return as_it_ran.limit is not None and None in taken


def _risks_of_findings(advice: Advice) -> Iterator[Risk]:
    """Yield one risk for each kind of finding, in the words of its largest; and a risk for a disturbed run."""
    if advice.disturbed is not None:
        yield Risk("disturbed", "warning", f"durations of this run are unreliable: {advice.disturbed}")
    for kind, several in grouped((each.kind, each) for each in advice.findings).items():
        queries = tuple(dict.fromkeys(each.query or "all queries" for each in several))
        more = f" Also {join_names(queries[1:])}." if len(queries) > 1 else ""
        yield Risk(
            kind,
            severity_of_finding(several[0]),
            f"{several[0].words}{more}",
            queries,
            several[0].dollars_a_month,
        )


def _next_command_and_effect(
    advice: Advice, risks: Sequence[Risk], source: str, env: str | None
) -> tuple[str, str]:
    """Return the next command: apply a change of the largest risk, else simulate it, else write the page."""
    command = f"millrace advise {source}"
    numbers: Mapping[str, list[tuple[int, Finding]]] = {
        risk.kind: [(n, each) for n, each in enumerate(advice.findings, 1) if each.kind == risk.kind]
        for risk in risks
    }
    queries = [each.name for each in advice.history.queries]
    for number, finding in (each for several in numbers.values() for each in several):
        change = next((each for each in finding.changes if each.kind == "environment"), None)
        if env is not None and change is not None:
            sets = ", ".join(f"{each.key} to {each.new}" for each in (change, *change.also))
            return f"{command} --apply --finding {number}", f"sets {sets} and shows the new plan"
        if played := changes_to_simulate_by_finding([finding], queries):
            question = ",".join(str(each) for each in played[0])
            return f"{command} --what-if {shlex.quote(question)}", "predicts what this change brings"
    return f"{command} --html advice.html", "draws what ran, batch by batch"
