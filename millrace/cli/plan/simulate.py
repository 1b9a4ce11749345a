"""``millrace simulate``: simulates a plan's jobs under traffic, before anything is deployed."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from millrace.cli.plan.report.simulate_page import simulation_page
from millrace.cli.plan.report.simulate_verdict import monthly_usd, simulation_verdict
from millrace.cli.shared.console import (
    figure_columns,
    plain_table,
    print_json,
    print_rich,
    terminal_width,
    word_columns,
)
from millrace.cli.shared.html_pages import check_page_is_writable, write_page
from millrace.cli.shared.options import (
    EnvironmentName,
    HtmlPage,
    complete_job_names,
    load_environment_with_job,
    parse_duration_option,
)
from millrace.cli.shared.verdict import verdict_document, verdict_panel
from millrace.config import ConfigurationError, Environment
from millrace.config.document.problems import Problem, results_or_all_problems, wrong_option_error
from millrace.config.sources.base import MOST_RECORDS_PER_SECOND
from millrace.sizing import Plan, plan
from millrace.sizing.readable_numbers import duration_text, join_names
from millrace.sizing.simulation import Arrivals, JobResult, Outage, simulate
from millrace.sizing.simulation.plan_scenario import scenario_of_job, streams_of_job
from millrace.sizing.simulation.plan_simulation_check import WITHIN
from millrace.sizing.simulation.recorded_traffic import read_trace


def simulate_command(
    env: EnvironmentName,
    trace: Annotated[
        Path | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="File of recorded traffic, CSV or JSON lines (docs/simulation.md).",
        ),
    ] = None,
    spikes: Annotated[
        str | None,
        typer.Option(
            "--spikes",
            metavar="LOW,HIGH",
            help="Two rates that alternate, in records per second; instead of --trace.",
        ),
    ] = None,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="With --spikes: how long each rate lasts.")
    ] = "30m",
    duration: Annotated[
        str, typer.Option("--for", metavar="TIME", help="Length of the simulation without --trace.")
    ] = "24h",
    job: Annotated[
        str | None,
        typer.Option(
            "--job", help="Simulate this job only. Default: all jobs.", autocompletion=complete_job_names
        ),
    ] = None,
    outage: Annotated[
        list[str] | None,
        typer.Option(
            "--outage",
            metavar="AT:TIME",
            help="Stop the job for TIME after AT: 2h:15m stops it after two hours, for 15 minutes. Repeatable.",
        ),
    ] = None,
    reshard: Annotated[
        list[str] | None,
        typer.Option(
            "--reshard",
            metavar="AT:COUNT",
            help="Change the stream to COUNT partitions after AT, such as 6h:32. Repeatable.",
        ),
    ] = None,
    skew: Annotated[
        float,
        typer.Option(
            "--skew", min=1.0, help="Traffic of the largest partition divided by the mean of all partitions."
        ),
    ] = 1.0,
    fixed: Annotated[
        bool, typer.Option("--fixed", help="Run all executors all the time, without auto scaling.")
    ] = False,
    poisson: Annotated[
        bool,
        typer.Option(
            "--poisson",
            help="Draw the arrivals of each second at random (Poisson). Default: the same number each second.",
        ),
    ] = False,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random numbers.")] = 1,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, curves included.")] = False,
    html: HtmlPage = None,
) -> None:
    """Simulate the planned jobs under traffic: record age, backlog, workers and cost over time.

    Without --trace and --spikes, every stream has its peak rate all the time. Nothing is started.

    [bold]Examples[/bold]

      millrace simulate --env prod --job departures

      millrace simulate --env prod --job flights --spikes 100,10000 --for 4h --html spikes.html

      millrace simulate --env prod --trace friday.csv --outage 2h:15m --json
    """
    parsed: list[Any] = results_or_all_problems(
        (
            partial(load_environment_with_job, env, job, "--job"),
            partial(check_page_is_writable, html),
            partial(_parse_values_at_times, "--outage", _parse_seconds, outage or []),
            partial(_parse_values_at_times, "--reshard", _parse_partition_count, reshard or []),
            partial(_parse_seconds, "--every", every),
            partial(_parse_seconds, "--for", duration),
            lambda: None if spikes is None else _parse_spike_rates(spikes),
        )
    )
    environment, _, stops, changes, spike_seconds, seconds, rates = parsed
    away = [Outage(*each) for each in stops]
    sized = plan(environment)
    results: dict[str, JobResult] = {}
    traffic = {
        name: _arrivals_by_stream(
            environment, streams_of_job(environment, name), trace, rates, spike_seconds, seconds
        )
        for name in (environment.jobs if job is None else [job])
    }
    triggers = [
        query.trigger_seconds.value for name in traffic for query in sized.jobs[name].queries.values()
    ]
    draws = sum(map(len, traffic.values())) if poisson else 0
    most = _MOST_BATCHES / (sum(1 / each for each in triggers) + draws)
    longest = max(each.seconds for arrivals in traffic.values() for each in arrivals.values())
    if longest > most:
        option, value = (
            ("--for", duration) if trace is None else ("--trace", f"{trace} with {duration_text(longest)}")
        )
        allowed = f"at most {duration_text(most)}, because a simulation of {join_names([*traffic])} is held in memory"
        raise wrong_option_error(option, value, allowed)
    for name, arrivals in traffic.items():
        if poisson:
            arrivals = {
                stream: each.poisson(seed + place)
                for place, (stream, each) in enumerate(sorted(arrivals.items()))
            }
        _refuse_times_after_end("--outage", outage, [each.at for each in away], arrivals)
        _refuse_times_after_end("--reshard", reshard, [at for at, _ in changes], arrivals)
        results[name] = simulate(
            scenario_of_job(
                environment,
                sized,
                name,
                arrivals,
                skew=skew,
                fixed=fixed,
                outages=away,
                reshards=changes,
                seed=seed,
            )
        )
    options = [
        ("--job", job),
        ("--trace", trace),
        ("--spikes", spikes),
        ("--skew", None if skew == 1 else skew),
        ("--every", every if spikes else None),
        ("--for", None if trace else duration),
        *(("--outage", each) for each in outage or ()),
        *(("--reshard", each) for each in reshard or ()),
        ("--poisson", "" if poisson else None),
        ("--seed", None if seed == 1 else seed),
    ]
    words = [
        str(each) for option, value in options if value is not None for each in (option, value) if each != ""
    ]
    verdict = simulation_verdict(
        environment,
        sized,
        results,
        env=env,
        repeat_command=shlex.join(["millrace", "simulate", "--env", env, *words]),
        fixed=fixed,
    )
    document = {
        "version": 1,
        "environment": environment.name,
        "verdict": verdict_document(verdict),
        "jobs": {name: simulation_document(sized, name, result) for name, result in results.items()},
    }
    if html is not None:
        title = f"{environment.project}-{environment.name}: simulation"
        write_page(html, simulation_page(title, document, results))
    if as_json:
        print_json(document)
        return
    print_rich(*verdict_panel(verdict, terminal=sys.stdout.isatty()))
    _print_results(document["jobs"])
    if html is not None:
        typer.echo(f"wrote {html}")


def _arrivals_by_stream(
    environment: Environment,
    streams: tuple[str, ...],
    trace: Path | None,
    spikes: tuple[float, float] | None,
    spike_seconds: float,
    seconds: float,
) -> dict[str, Arrivals]:
    """Return the traffic of the command line by stream, as steady as it says."""
    if trace is not None:
        if spikes is not None:
            low, high = spikes
            raise wrong_option_error("--spikes", f"{low:g},{high:g}", "either --trace or --spikes")
        recorded = read_trace(trace)
        if unknown := [name for name in recorded if name is not None and name not in environment.streams]:
            known = ", ".join(environment.streams)
            raise ConfigurationError(
                Problem(str(trace), 0, "stream", name, f"one of {known}") for name in unknown
            )
        if lacking := [name for name in streams if name not in recorded and None not in recorded]:
            typer.echo(f"{trace} has no rows of {', '.join(lacking)}, so no records arrive there", err=True)
        longest = max(each.seconds for each in recorded.values())
        for name in streams:
            if name in recorded and recorded[name].seconds < longest:
                ends = f"{duration_text(recorded[name].seconds)} of {duration_text(longest)}"
                typer.echo(f"{trace} ends for {name} after {ends}", err=True)
        none = Arrivals.constant(0.0, longest)
        return {name: recorded.get(name, recorded.get(None, none)) for name in streams}
    if spikes is not None:
        if seconds / spike_seconds > _MOST_SPIKES:
            least = (
                f"at least {seconds / _MOST_SPIKES:g}s, so that the time has no more than {_MOST_SPIKES:,}"
            )
            raise wrong_option_error("--every", f"{spike_seconds:g}s", least)
        return {name: Arrivals.spikes(*spikes, spike_seconds, seconds) for name in streams}
    rates = {name: environment.streams[name].traffic for name in streams}
    return {
        name: Arrivals.constant(traffic.peak_records_per_second, seconds) for name, traffic in rates.items()
    }


def _parse_seconds(option: str, value: str) -> float:
    return parse_duration_option(option, value).total_seconds()


def _parse_values_at_times(
    option: str, parse: Callable[[str, str], float], values: list[str]
) -> list[tuple[float, float]]:
    def parse_value(value: str) -> tuple[float, float]:
        at, colon, rest = value.partition(":")
        if not colon:
            raise wrong_option_error(
                option, value, "a time and a value as TIME:VALUE, such as 2h:15m or 6h:32"
            )
        return (0.0 if at == "0" else _parse_seconds(option, at)), parse(option, rest)

    return results_or_all_problems(partial(parse_value, each) for each in values)


def _refuse_times_after_end(
    option: str, texts: list[str] | None, moments: list[float], arrivals: Mapping[str, Arrivals]
) -> None:
    """Refuse times after the end of the simulation."""
    end = max(each.seconds for each in arrivals.values())
    late = [value for value, at in zip(texts or [], moments, strict=True) if at >= end]
    if late:
        allowed = f"a time before the end of the simulation at {timedelta(seconds=round(end))}"
        raise wrong_option_error(option, ", ".join(late), allowed)


def _parse_partition_count(option: str, value: str) -> int:
    if not (value.isascii() and value.isdecimal()) or not 1 <= int(value) <= 100_000:
        raise wrong_option_error(option, value, "a number of partitions, 1 to 100,000")
    return int(value)


def _parse_spike_rates(value: str) -> tuple[float, float]:
    try:
        low, high = (float(each) for each in value.split(","))
    except ValueError as error:
        raise wrong_option_error(
            "--spikes", value, "two rates in records per second, such as 100,10000"
        ) from error
    if not 0 <= low <= high <= MOST_RECORDS_PER_SECOND:
        allowed = "two rates in records per second, the lower one first, such as 100,10000"
        raise wrong_option_error("--spikes", value, f"{allowed}, at most {MOST_RECORDS_PER_SECOND:,}")
    return low, high


_MOST_SPIKES = 100_000
"""Most changes of the rate in a simulation; each takes time and memory."""

_MOST_BATCHES = 5_000_000
"""Most batches in a simulation: with its ages and as JSON, a batch takes about a kilobyte of memory."""

PERCENTILES = (50, 95, 99)


def simulation_document(plan: Plan, job: str, result: JobResult) -> dict[str, Any]:
    """Return a job's simulation as an object that ``json.dumps`` takes.

    Returns
    -------
    dict
        ``seconds``, ``usd``, ``usd_month``, ``worker_seconds``, ``mean_executors``, ``executors`` (``times`` and
        ``count``), ``queries`` by name: ``arrived``, ``committed``, ``waiting``, ``most_waiting`` records,
        ``age`` (``p50``, ``p95``, ``p99``, ``max`` in seconds, weighted by records), ``sla``, ``within_sla`` (share of
        the records that were committed in time, among those committed or already too late; None if there are none),
        ``kept`` (None likewise), and ``batches`` (``start``, ``end``, ``records``, ``waiting``, ``oldest``, as lists).
    """
    queries = {}
    for name, query in result.queries.items():
        sla = plan.jobs[job].queries[name].latency_seconds.value
        some, within = len(query.ends) > 0, query.share_in_time(sla, result.seconds)
        age = {f"p{p}": query.ages.percentile(p) for p in PERCENTILES} | {"max": query.ages.oldest}
        queries[name] = {
            "arrived": query.arrived,
            "committed": query.committed,
            "waiting": query.waiting,
            "most_waiting": query.most_waiting,
            "age": age if some else None,
            "sla": sla,
            "within_sla": within,
            "kept": None if within is None else within >= WITHIN,
            "batches": {
                "start": query.starts.tolist(),
                "end": query.ends.tolist(),
                "records": query.records.tolist(),
                "waiting": query.backlog.tolist(),
                "oldest": query.oldest_age_by_batch.tolist(),
            },
        }
    return {
        "seconds": result.seconds,
        "usd": result.usd,
        "usd_month": monthly_usd(result),
        "worker_seconds": result.worker_seconds,
        "mean_executors": result.mean_executors,
        "executors": {"times": result.times.tolist(), "count": result.executors.tolist()},
        "queries": queries,
    }


def _print_results(jobs: Mapping[str, Any]) -> None:
    """Print the figures of jobs, as :func:`simulation_document` has them."""
    columns = terminal_width(sys.stdout)
    verdicts = (
        [*_COLUMNS]
        if columns is None or columns >= _WIDE
        else ["p95", "max", "SLA", "within", "waiting at the end"]
    )
    for name, job in jobs.items():
        head = Text.assemble(
            (name, "bold"),
            f"  {timedelta(seconds=round(job['seconds']))}, {job['mean_executors']:.2f} executors on average, "
            f"{int(max(job['executors']['count']))} at most, ${job['usd']:,.2f} (${job['usd_month']:,.2f} a month)",
        )
        table = plain_table(*word_columns("query"), *figure_columns(*verdicts))
        for each, query in job["queries"].items():
            cells = {
                "batches": f"{len(query['batches']['end']):,}",
                "SLA": f"{query['sla']:g} s",
                "most waiting": f"{query['most_waiting']:,.0f}",
                "waiting at the end": f"{query['waiting']:,.0f}",
                **({} if query["kept"] is None else {"within": f"{query['within_sla']:.2%}"}),
                **{column: f"{age:,.1f} s" for column, age in (query["age"] or {}).items()},
            }
            red = {} if columns is None or query["kept"] is not False else {"within": "bold red"}
            table.add_row(each, *(Text(cells.get(column, "-"), red.get(column, "")) for column in verdicts))
        print_rich(head, table)


_COLUMNS = ("batches", "p50", "p95", "p99", "max", "SLA", "within", "most waiting", "waiting at the end")
_WIDE = 118
"""Terminal width in columns from which all figures of a query are shown."""
