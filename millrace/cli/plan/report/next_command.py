"""Next command at the end of a plan's verdict."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from millrace.cli.plan.report.plan_risks import SimulatedPlan
from millrace.cli.shared.verdict import Risk
from millrace.config.queries import OneStreamQueryBase


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
        if risk.kind == "late-at-peak":
            return (
                f"millrace simulate {environment} --job {job}",
                "plays the peak and shows where records wait",
            )
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
        if risk.kind in ("full-shards", "no-peak"):
            stream = risk.concerns[0].split(".")[1]
            key = f"streams.{stream}.expected_partitions"
            return f"millrace plan {environment} --explain {key}", "shows what the number rests on"
        if risk.kind == "driver-limit":
            return f"millrace plan {environment} --explain jobs.{job}.cores", "shows what the number rests on"
        if risk.kind in ("other-prices", "unconfirmed-prices", "old-prices"):
            return (
                f"millrace prices update --region {checked.plan.region}",
                "reads the prices from AWS's price list",
            )
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
