"""Risks of a plan: one function for each kind, from the plan, its inputs and its simulation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from millrace.cli.plan.report.remedies_of_throttled_reads import remedies_of_throttled_reads
from millrace.cli.shared.verdict import Risk, Severity, also_concerned_text
from millrace.config import Environment
from millrace.sizing import Plan, total_cost
from millrace.sizing.alternatives.doubtful_plan_inputs import (
    BUSY,
    FULL,
    SLOW,
    driver_load_shares,
    share_of_limits_at_peak,
)
from millrace.sizing.cost import HOURS
from millrace.sizing.kafka_cluster_load import cluster_load
from millrace.sizing.plan_model import CostItem
from millrace.sizing.planning import text_if_cost_limit_exceeded
from millrace.sizing.prices_and_limits import service_limits
from millrace.sizing.queries.demand import QueryDemand, demands_by_stream
from millrace.sizing.queries.environment_demands import query_demands_and_findings
from millrace.sizing.queries.shard_calls import calls_per_second, paces_as_planned
from millrace.sizing.readable_numbers import (
    count,
    dollars,
    duration_text,
    format_number,
    join_names,
    percent,
    plural,
)
from millrace.sizing.simulation.expected_cost import keys_that_bound_catch_up, keys_that_pin_scaling
from millrace.sizing.simulation.plan_simulation_check import SimulatedQuery


class SimulatedPlan:
    """A plan with the results of its simulation, for the search for risks.

    Parameters
    ----------
    environment, plan
        An environment and its plan, with the cost of its jobs at the average rate.
    played
        Simulation of each of its queries.
    old_prices
        Note on the age of the prices.
    """

    def __init__(
        self,
        environment: Environment,
        plan: Plan,
        played: Sequence[SimulatedQuery],
        old_prices: str | None = None,
    ) -> None:
        self.environment, self.plan, self.played, self.old_prices = environment, plan, played, old_prices
        self.demands: list[QueryDemand] = query_demands_and_findings(environment)[0]
        self.total = total_cost(plan).value

    def monthly_usd_of(self, *keys: str) -> float:
        """Return the monthly cost of the jobs, streams and clusters of keys such as ``jobs.flights.queries.land``, each once."""
        costs, parts = (
            self.plan.cost_items_by_key,
            dict.fromkeys(".".join(key.split(".")[:2]) for key in keys),
        )
        return sum((sum(line.usd for line in costs[part]) for part in parts), 0.0)

    def risk(self, kind: str, severity: Severity, words: str, keys: Iterable[str]) -> Risk:
        """Return a risk with the monthly cost of what it concerns."""
        concerns = tuple(dict.fromkeys(keys))
        return Risk(kind, severity, words, concerns, self.monthly_usd_of(*concerns))

    def bill_lines(self) -> Iterator[CostItem]:
        """Return every line of the bill."""
        return chain.from_iterable(self.plan.cost_items_by_key.values())


def catch_up_limiting_keys_text(checked: SimulatedPlan, query: SimulatedQuery) -> str:
    """Return the keys that keep a query from catching up, in words; empty if none does."""
    pins = keys_that_bound_catch_up(checked.environment, query.job, query.query)
    return f": {join_names(pins)} {'is' if len(pins) == 1 else 'are'} pinned" if pins else ""


def _late_at_peak_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    late = sorted((each for each in checked.played if not each.meets_sla), key=lambda each: each.within)
    if late:
        first = late[0]
        yield _risk_of_queries(
            checked,
            "late-at-peak",
            [(each.job, each.query) for each in late],
            "the simulator contradicts the plan at the steady peak: {names} {miss}; "
            + (
                f"the backlog of {first.query} grows by {format_number(first.growth)} records/s"
                if first.growth
                else f"{percent(first.within)} of {first.query}'s records are within {duration_text(first.sla)}{first.sla_share_in_brackets}"
            ),
            severe=True,
        )


def _late_at_rise_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    late = sorted(
        (share, job.name, query)
        for job in checked.plan.jobs.values()
        for query, share in job.late_at_rise.items()
    )
    if late:
        share, job, first = late[0]
        pins = join_names(
            [f"jobs.{job}.{key}" for key in keys_that_pin_scaling(checked.environment.jobs[job])]
        )
        yield _risk_of_queries(
            checked,
            "late-at-rise",
            [(job, query) for _, job, query in late],
            f"workers come too late for a peak: {percent(share)} of {first}'s records in time when traffic rises"
            f"{{also}}; {pins} is pinned, without it the plan holds the workers",
            severe=True,
        )


def _contradicted_catch_up_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    contradicted = (each for each in checked.played if each.waiting and not each.catch_up_takes_over_a_day)
    late = sorted(contradicted, key=lambda each: -each.waiting)
    if late:
        first = late[0]
        yield _risk_of_queries(
            checked,
            "catch-up-contradicted",
            [(each.job, each.query) for each in late],
            f"the simulator contradicts the catch-up after {duration_text(first.outage.total_seconds())} of outage: "
            f"{format_number(first.waiting)} records of {first.query} still wait when the plan has none{{also}}",
        )


def _slow_catch_up_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    slow = [
        each
        for each in checked.played
        if each.catch_up is not None and each.catch_up > SLOW * each.outage.total_seconds()
    ]
    if slow:
        slow.sort(key=lambda each: -(each.catch_up or 0.0))
        first = slow[0]
        assert first.catch_up is not None
        outage = duration_text(first.outage.total_seconds())
        took = (
            "never catches up"
            if math.isinf(first.catch_up)
            else f"catches up in {duration_text(first.catch_up)}"
        )
        yield _risk_of_queries(
            checked,
            "slow-catch-up",
            [(each.job, each.query) for each in slow],
            f"after {outage} of outage at the peak, {first.query} {took}{{also}}"
            + (catch_up_limiting_keys_text(checked, first) if first.waiting else ""),
            severe=any(each.waiting and each.catch_up_takes_over_a_day for each in slow),
        )


def _risk_of_queries(
    checked: SimulatedPlan, kind: str, queries: Sequence[tuple[str, str]], words: str, *, severe: bool = False
) -> Risk:
    """Return a risk of several queries; ``{names}``, ``{also}`` and ``{miss}`` in the words are replaced by theirs."""
    return checked.risk(
        kind,
        "breach" if severe else "warning",
        words.format(
            names=join_names([query for _, query in queries]),
            also=also_concerned_text([query for _, query in queries]),
            miss="misses its SLA" if len(queries) == 1 else "miss their SLA",
        ),
        (f"jobs.{job}.queries.{query}" for job, query in queries),
    )


def _assumed_rate_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    usd = sum(line.usd for line in checked.bill_lines() if line.assumed)
    read = {name for demand in checked.demands for name in demand.streams}
    streams = [
        n for n, each in checked.environment.streams.items() if n in read and each.traffic.basis == "assumed"
    ]
    jobs = list(dict.fromkeys(demand.job for demand in checked.demands if demand.speed.basis == "assumed"))
    if usd and (streams or jobs):
        what = [f"{_singular_or_plural('stream', streams)} {join_names(streams)}"] * bool(streams)
        what += [f"{_singular_or_plural('job', jobs)} {join_names(jobs)}"] * bool(jobs)
        yield Risk(
            "assumed-rates",
            "warning",
            f"{dollars(usd)} of the cost ({percent(usd / checked.total)}) rest on rates that nobody measured: "
            + "; ".join(what),
            (*(f"streams.{each}" for each in streams), *(f"jobs.{each}" for each in jobs)),
            usd,
        )


def _unpriced_sink_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    """Yield a risk for each sink that is billed by write, because the bill does not include it."""
    jobs = checked.environment.jobs
    for demand in checked.demands:
        writes = {
            each.sink.paid_by_write
            for each in jobs[demand.job].queries[demand.query].sinks_by_place.values()
            if each.sink.paid_by_write
        }
        month = demand.work.rate * demand.average * HOURS * 3600
        for what in sorted(writes):
            yield checked.risk(
                "unpriced-writes",
                "warning",
                f"no line of the bill has the {what} of {demand.query}: up to {format_number(month)} a month",
                (f"jobs.{demand.job}.queries.{demand.query}",),
            )


def _singular_or_plural(noun: str, several: Sequence[str]) -> str:
    return noun if len(several) == 1 else plural(noun)


def _full_stream_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    shares = {
        n: share_of_limits_at_peak(each, checked.plan.streams[n])
        for n, each in checked.environment.streams.items()
    }
    full = sorted((name for name, share in shares.items() if share > FULL), key=lambda name: -shares[name])
    if full:
        stream = checked.environment.streams[full[0]]
        parts = count(checked.plan.streams[full[0]].expected_partitions.value, stream.parts.removesuffix("s"))
        yield checked.risk(
            "full-shards",
            "warning",
            f"no room for a hot key or a busier day: {parts} of {full[0]} {percent(shares[full[0]])} full at the peak"
            + also_concerned_text(full),
            (f"streams.{each}" for each in full),
        )


def _throttled_read_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    """Yield streams whose readers without fan-out call each shard more often than it answers: each batch calls each shard."""
    most, environment = service_limits()["kinesis.shard.calls_per_second"], checked.environment
    late = {(each.job, each.query) for each in checked.played if not each.meets_sla}
    fanning_out = (name for name, stream in environment.streams.items() if stream.fans_out)
    for stream, paces in paces_as_planned(fanning_out, checked.demands, checked.plan).items():
        calls = calls_per_second(paces.values())
        if calls > most * (1 + 1e-9):
            severe = bool(late & paces.keys())
            does = "records are late" if severe else "batches wait, and records are in time"
            ways = remedies_of_throttled_reads(environment, stream, [*paces], checked.total) if severe else ()
            yield _risk_of_queries(
                checked,
                "throttled-reads",
                [*paces],
                f"each shard of {stream} answers {most:g} GetRecords a second, and batches make {calls:.3g}: {does}{{also}}"
                + "".join(f"; {way}" for way in ways),
                severe=severe,
            )


def _cores_near_driver_limit_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    most = service_limits()["spark.driver.most_cores"]
    large_ones = [job for job in checked.plan.jobs.values() if job.cores.value > FULL * most]
    if large_ones:
        first = max(large_ones, key=lambda job: job.cores.value)
        yield checked.risk(
            "driver-limit",
            "warning",
            f"one driver hands tasks to {first.cores.value:,} cores of {first.name}, of the {most:,.0f} that it is "
            "trusted with" + also_concerned_text([job.name for job in large_ones]),
            (f"jobs.{job.name}" for job in large_ones),
        )


def _busy_driver_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    loads = driver_load_shares(checked.demands, checked.plan.jobs)
    busy = sorted((name for name, load in loads.items() if load > BUSY), key=lambda name: -loads[name])
    if busy:
        most = service_limits()["spark.sharing.share"]
        yield checked.risk(
            "driver-limit",
            "warning",
            f"fixed costs of batches take {percent(loads[busy[0]])} of the time of {busy[0]}'s driver, of {percent(most)} at most"
            + also_concerned_text(busy),
            (f"jobs.{name}" for name in busy),
        )


def _brokers_without_reserve_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    """Yield clusters that cannot carry the load with one broker less, as AWS restarts each broker for patches."""
    known, reading = service_limits().brokers, demands_by_stream(checked.demands)
    counts = {name: each.expected_partitions.value for name, each in checked.plan.streams.items()}
    for name, cluster in checked.plan.clusters.items():
        if cluster.brokers is None or cluster.broker_type is None:
            continue
        brokers, key = cluster.brokers.value, f"clusters.{name}"
        if brokers == 1:
            words = f"cluster {name} has a single broker: its topics stop whenever AWS patches it"
            yield checked.risk("broker-limit", "warning", words, (key,))
            continue
        load = cluster_load(checked.environment, name, counts, reading)
        takes = known[cluster.broker_type.value].producer_mib_per_second(load.readers, cluster.volume_mib)
        share = load.mib_in / (brokers - 1) / takes
        if share > 1:
            words = (
                f"with one broker of {name} down, as for each patch, the other {count(brokers - 1, 'broker')} "
                f"must take {percent(share)} of what they can at the peak"
            )
            yield checked.risk("broker-limit", "warning", words, (key,))


def _without_tls_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    open_ones = [n for n, each in checked.environment.kafka.items() if each.authentication.kind == "none"]
    if open_ones:
        yield checked.risk(
            "kafka-without-tls",
            "warning",
            f"records of Kafka {_singular_or_plural('cluster', open_ones)} {join_names(open_ones)} travel without TLS, and whoever "
            "reaches the brokers reads and writes them",
            (f"clusters.{each}" for each in open_ones if each in checked.plan.clusters),
        )


def _cost_limit_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    if (told := text_if_cost_limit_exceeded(checked.environment, checked.plan)) is not None:
        yield Risk("over-limit", "breach", told, ("total",), checked.total)


def _no_peak_factor_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    calm = [
        name
        for name, stream in checked.environment.streams.items()
        if "peak_factor" not in stream.traffic.model_fields_set
    ]
    if calm:
        read_by = [demand.job for demand in checked.demands if set(demand.streams) & set(calm)]
        yield checked.risk(
            "no-peak",
            "warning",
            f"sized for the average alone: {_singular_or_plural('stream', calm)} {join_names(calm)} "
            f"{'has' if len(calm) == 1 else 'have'} no `peak_factor`",
            (*(f"streams.{each}" for each in calm), *(f"jobs.{each}" for each in read_by)),
        )


def _doubtful_price_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    if checked.plan.prices_of != checked.plan.region:
        words = (
            f"all prices are those of {checked.plan.prices_of}: there is no table of {checked.plan.region}"
        )
        yield Risk("other-prices", "note", words, ("total",), checked.total)
    usd = sum(line.usd for line in checked.bill_lines() if line.unconfirmed)
    if usd:
        words = (
            f"{dollars(usd)} of the cost ({percent(usd / checked.total)}) are at prices that nobody confirmed"
        )
        yield Risk("unconfirmed-prices", "note", words, ("total",), usd)
    if checked.old_prices is not None:
        yield Risk("old-prices", "note", checked.old_prices, ("total",), checked.total)


def _unread_stream_risks(checked: SimulatedPlan) -> Iterator[Risk]:
    read = {name for demand in checked.demands for name in demand.streams}
    idle = [name for name in checked.plan.streams if name not in read]
    if idle:
        yield checked.risk(
            "unread-streams",
            "note",
            f"no job reads {_singular_or_plural('stream', idle)} {join_names(idle)}",
            (f"streams.{each}" for each in idle),
        )


RISKS: tuple[Callable[[SimulatedPlan], Iterator[Risk]], ...] = (
    *(_late_at_peak_risks, _late_at_rise_risks, _contradicted_catch_up_risks, _slow_catch_up_risks),
    *(
        _cost_limit_risks,
        _assumed_rate_risks,
        _unpriced_sink_risks,
        _full_stream_risks,
        _throttled_read_risks,
        _cores_near_driver_limit_risks,
        _busy_driver_risks,
        _brokers_without_reserve_risks,
        _without_tls_risks,
        _no_peak_factor_risks,
        _doubtful_price_risks,
        _unread_stream_risks,
    ),
)
