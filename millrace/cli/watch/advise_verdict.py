"""Verdict of advice: cost of the job, SLA, largest findings."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from millrace.cli.shared.verdict import Risk, Severity, SlaState, Verdict, risks_largest_first
from millrace.sizing.readable_numbers import count, dollars, duration_text, join_names

if TYPE_CHECKING:
    from millrace.advisor.findings import Advice, Finding, Kind
    from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
    from millrace.advisor.forecasts.forecast_figures import Forecast

_BACKLOGS: frozenset[Kind] = frozenset({"at-capacity", "silent-backlog"})
"""Findings with records that wait; their effect is more than nothing at its low end only where the backlog grows."""

_WARNINGS: frozenset[Kind] = frozenset(
    {"growing-state", "unstable-start", "skewed-tasks", "retried-tasks", "slow-checkpoint"}
)
"""Findings that grow with traffic or time, or cause occasional failures; all others cost a constant time or amount of money."""


def advice_verdict(
    advice: Advice,
    subject: AdvisedJob | None = None,
    as_it_ran: Forecast | None = None,
    *,
    changed: Sequence[Forecast] = (),
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
    changed
        Simulations of the findings' changes: the cheapest that keeps up is the cost after the advice.
    source
        The log or job as the command line named it.
    env
        The environment as the command line named it.
    """
    history = advice.history
    risks = risks_largest_first(_risks_of_findings(advice))
    usd = None if subject is None else subject.dollars_month
    command, why = _next_command_and_effect(advice, risks, source, env)
    batches = sum(len(each.batches) for each in history.queries)
    queries = count(len(history.queries), "query")
    cores = count(history.cores, "core")
    lasted = duration_text(history.ended - history.started)
    return Verdict(
        subject=f"{history.title} on {history.engine}, {cores}: {count(batches, 'batch')} of {queries} in {lasted}",
        cost="unknown" if usd is None else f"{dollars(usd)} a month",
        cost_words="no price is known; give --env, --glue-job or --emr-app"
        if usd is None
        else _cost_scope_and_waste_text(advice) + _cost_after_change_text(as_it_ran, changed),
        usd_month=usd,
        assumed=False,
        sla=_simulated_sla_state(advice, subject, as_it_ran),
        risks=risks,
        command=command,
        why=why,
    )


def severity_of_finding(finding: Finding) -> Severity:
    """Return the severity of a finding; a breach if records are not read any more or the backlog grows for certain."""
    if finding.kind == "failed-query" or (finding.kind in _BACKLOGS and finding.effect.low > 0):
        return "breach"
    return "warning" if finding.kind in _WARNINGS | _BACKLOGS else "note"


def _cost_scope_and_waste_text(advice: Advice) -> str:
    wasted = sum(each.dollars_a_month or 0.0 for each in advice.findings)
    return "for all its machines" + (f"; the findings cost {dollars(wasted)} of it" if wasted else "")


def _cost_after_change_text(as_it_ran: Forecast | None, changed: Sequence[Forecast]) -> str:
    """Return the cost of a month after the change that saves most, among those with which all queries keep up."""
    costs = {
        str(each): each.dollars_month
        for each in changed
        if each.dollars_month is not None and all(query.keeps_up for query in each.queries.values())
    }
    now = None if as_it_ran is None else as_it_ran.dollars_month
    best = min(costs, key=lambda each: costs[each], default=None)
    if now is None or best is None or costs[best] >= now:
        return ""
    return f"; {dollars(costs[best])} a month after {best}"


def _simulated_sla_state(advice: Advice, subject: AdvisedJob | None, as_it_ran: Forecast | None) -> SlaState:
    """Return the state of the SLA: the 95th percentile of records' age in the simulation of the log against each query's."""
    if subject is None or as_it_ran is None:
        return SlaState("unknown", "no SLA is known; give --env NAME")
    judged = []
    for query in advice.history.queries:
        allowed, ran = subject.latency_limit_seconds(query), as_it_ran.queries.get(query.name)
        if allowed is not None and ran is not None:
            judged.append((ran.figures["oldest"], allowed, query.name, ran.keeps_up))
    if not judged:
        return SlaState("unknown", "no SLA of its queries is known; give --env NAME")
    behind = [name for *_, name, keeps_up in judged if not keeps_up]
    if behind:
        return SlaState(
            "missed", f"the backlog of {join_names(behind)} grows, and with it the age of records"
        )
    age, allowed, name, _ = max(judged, key=lambda each: each[0].value / each[1])
    words = f"age of {name}'s records, p95: {duration_text(age.value)} [{duration_text(age.low)} to {duration_text(age.high)}] of {duration_text(allowed)}"
    return SlaState("missed" if age.low > allowed else "at risk" if age.high > allowed else "kept", words)


def _risks_of_findings(advice: Advice) -> Iterator[Risk]:
    """Yield one risk for each kind of finding, in the words of its largest; and a risk for a disturbed run."""
    if advice.disturbed is not None:
        yield Risk("disturbed", "warning", f"durations of this run are unreliable: {advice.disturbed}")
    kinds: dict[Kind, list[Finding]] = {}
    for finding in advice.findings:
        kinds.setdefault(finding.kind, []).append(finding)
    for kind, several in kinds.items():
        queries = [each.query or "all queries" for each in several]
        more = f" Also {join_names(queries[1:])}." if len(several) > 1 else ""
        usd = [each.dollars_a_month for each in several if each.dollars_a_month is not None]
        yield Risk(
            kind,
            severity_of_finding(several[0]),
            f"{several[0].words}{more}",
            tuple(dict.fromkeys(queries)),
            sum(usd) if usd else None,
        )


def _next_command_and_effect(
    advice: Advice, risks: Sequence[Risk], source: str, env: str | None
) -> tuple[str, str]:
    """Return the next command: apply a change of the largest risk, else simulate it, else write the page."""
    from millrace.advisor.forecasts.forecast_scores import changes_to_simulate_by_finding

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
