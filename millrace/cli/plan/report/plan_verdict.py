"""Verdict of a plan: its cost, its SLA in the simulation, its risks, the next command."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from millrace.cli.plan.report.plan_risks import RISKS, SimulatedPlan, catch_up_limiting_keys_text
from millrace.cli.shared.verdict import Risk, SlaState, Verdict, risks_largest_first
from millrace.config.queries import OneStreamQueryBase
from millrace.sizing.readable_numbers import dollars, duration_text, format_number, percent
from millrace.sizing.simulation.expected_cost import ALIKE, largest_monthly_cost


def plan_verdict(checked: SimulatedPlan, env: str | None = None) -> Verdict:
    """Return the verdict of a plan.

    Parameters
    ----------
    checked
        The plan, with the results of its checks.
    env
        The environment as the user named it, for the next command.
    """
    environment, plan = checked.environment, checked.plan
    risks = risks_largest_first(risk for find in RISKS for risk in find(checked))
    assumed = any(line.assumed for line in checked.bill_lines())
    saved = sum(
        max(0.0, largest_monthly_cost(job) - job.expected_usd.value)
        for job in plan.jobs.values()
        if job.expected_usd is not None
    )
    words = "with every worker all month"
    words += ", or in all its runs" * any(job.run is not None for job in plan.jobs.values())
    if saved > (1 - ALIKE) * checked.total:
        words += (
            f"; {dollars(checked.total - saved, assumed=True)} with the workers that the average rate needs"
        )
    account = f"  account {environment.account}" if environment.account else ""
    command, why = next_command_and_effect(checked, risks, environment.name if env is None else env)
    return Verdict(
        subject=f"{environment.project}-{plan.environment}  {plan.region}{account}",
        cost=f"{dollars(checked.total, assumed=assumed)} a month",
        cost_words=words,
        usd_month=checked.total,
        assumed=assumed,
        sla=_simulated_sla_state(checked),
        risks=risks,
        command=command,
        why=why,
    )


def _simulated_sla_state(checked: SimulatedPlan) -> SlaState:
    if not checked.played:
        return SlaState("unknown", "no job")
    worst = min(checked.played, key=lambda each: each.within)
    share = worst.within
    growing = max(checked.played, key=lambda each: each.growth)
    promised = [each for each in checked.played if checked.environment.jobs[each.job].has_sla]
    if growing.growth:
        words = f"at the steady peak the backlog of {growing.query} grows by {format_number(growing.growth)} records/s"
        return SlaState("missed", words, share)
    if not worst.meets_sla:
        words = f"{percent(share)} of {worst.query}'s records within {duration_text(worst.sla)}{worst.sla_share_in_brackets} at the steady peak"
        return SlaState("missed", words, share)
    late = [(share, name) for job in checked.plan.jobs.values() for name, share in job.late_at_rise.items()]
    if late:
        least, name = min(late)
        words = f"{percent(least)} of {name}'s records in time when traffic rises to its peak; "
        return SlaState("at risk", f"{words}{percent(share)} at the steady peak", least)
    if (slow := next((each for each in checked.played if each.waiting), None)) is not None:
        outage = duration_text(slow.outage.total_seconds())
        words = f"{percent(share)} of the records in time at the peak, but {slow.query} does not catch up with {outage} of outage"
        words += f" {'within a day' if slow.catch_up_takes_over_a_day else 'as planned'}{catch_up_limiting_keys_text(checked, slow)}"
        return SlaState("at risk", words, share)
    if not promised:
        return SlaState("unknown", "no job has one, with `goal: throughput`; no backlog grows at the peak")
    closest = max(promised, key=lambda each: each.oldest / each.sla)
    words = f"{percent(share)} of the records in time at the peak; closest is {closest.query}, "
    return SlaState(
        "kept",
        f"{words}oldest {duration_text(closest.oldest)} of {duration_text(closest.sla)}{closest.sla_share_in_brackets}",
        share,
    )


def next_command_and_effect(checked: SimulatedPlan, risks: Sequence[Risk], env: str) -> tuple[str, str]:
    """Return the command that helps with the largest risk, else ``millrace deploy``; and its effect.

    Parameters
    ----------
    checked
        A plan with the results of its checks.
    risks
        The largest first.
    env
        The environment as the user named it.
    """
    environment = f"--env {shlex.quote(env)}"
    for risk in risks:
        job = next((each.split(".")[1] for each in risk.concerns if each.startswith("jobs.")), None)
        first_name = risk.concerns[0].rpartition(".")[2]
        number = (
            f"millrace plan {environment} --explain streams.{first_name}.expected_partitions",
            "shows what the number rests on",
        )
        prices = (
            f"millrace prices update --region {checked.plan.region}",
            "reads the prices from AWS's price list",
        )
        commands = {
            "late-at-peak": (
                f"millrace simulate {environment} --job {job}",
                "plays the peak and shows where records wait",
            ),
            "full-shards": number,
            "no-peak": number,
            "driver-limit": (f"millrace plan {environment} --explain jobs.{job}.cores", number[1]),
            "other-prices": prices,
            "unconfirmed-prices": prices,
            "old-prices": prices,
        }
        if risk.kind in commands:
            return commands[risk.kind]
        if risk.kind == "late-at-rise" and job is not None:
            names = {name for demand in checked.demands if demand.job == job for name in demand.streams}
            traffic = (checked.environment.streams[name].traffic for name in names)
            rates = {(each.records_per_second, each.peak_factor) for each in traffic}
            if len(rates) == 1:
                ((rate, factor),) = rates
                command = f"millrace simulate {environment} --job {job} --spikes {rate:g},{rate * factor:g} --for 4h"
                return command, "plays such rises; with --fixed, as `scaling: fixed` would take them"
        if risk.kind in ("catch-up-contradicted", "slow-catch-up"):
            first = next(each for each in checked.played if each.job == job)
            away = f"{first.outage.total_seconds():g}s"
            return f"millrace simulate {environment} --job {job} --outage 1h:{away}", "plays the outage"
        if (
            risk.kind == "assumed-rates"
            and (measured := _bench_command_of_costliest_job(checked, environment)) is not None
        ):
            return measured, "measures the rate, for `rate: {result: FILE}` in the file"
    return f"millrace deploy {environment}", "shows the difference to the account first"


def _bench_command_of_costliest_job(checked: SimulatedPlan, environment: str) -> str | None:
    """Return the benchmark of the job with the highest cost, for a query that reads a stream and was not measured."""
    guessed = [
        demand
        for demand in checked.demands
        if demand.speed.basis == "assumed"
        and isinstance(checked.environment.jobs[demand.job].queries[demand.query], OneStreamQueryBase)
    ]
    if not guessed:
        return None
    first = max(guessed, key=lambda demand: checked.monthly_usd_of(f"jobs.{demand.job}"))
    several = (
        sum(
            isinstance(each, OneStreamQueryBase)
            for each in checked.environment.jobs[first.job].queries.values()
        )
        > 1
    )
    return f"millrace bench {first.job} {environment}" + (f" --query {first.query}" if several else "")
