"""Demands of all queries of an environment: peak of their streams, share of the SLA, cores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from functools import cache, cached_property, lru_cache, partial

from millrace.config.base import grouped
from millrace.config.checks.kafka import partition_lists_by_stream_and_table
from millrace.config.document.problems import Finding
from millrace.config.model import Environment
from millrace.config.queries import (
    DeriveQuery,
    LandingQueries,
    LandingQueryBase,
    LandQuery,
    Query,
    RouteQuery,
    SourceQueryBase,
)
from millrace.sizing.plan_model import FigureInput, Inputs
from millrace.sizing.prices_and_limits import limit_per_second, service_limits
from millrace.sizing.queries.benchmark_figures import result_file_problems as result_problems
from millrace.sizing.queries.benchmark_figures import speed_of_query, yaml_path_of_rate
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.demand_inputs import (
    expiring_records_finding,
    extra_core_inputs,
    infeasible_finding,
    traffic_inputs,
)
from millrace.sizing.queries.latency_shares import LatencyShares
from millrace.sizing.queries.query_plan import (
    cores_needed_by_query,
    outage_to_plan_for,
    peak_multiple_to_catch_up,
)
from millrace.sizing.queries.shard_calls import WORKING, Pace, triggers_that_shards_answer
from millrace.sizing.queries.sizing_formulas import InfeasibleError, QueryWork, burst_factor
from millrace.sizing.queries.trigger_interval_limits import (
    longest_join_trigger,
    partitions_that_hold_run,
    seconds_that_fit_in_memory,
    seconds_within_batch_limit,
    seconds_within_retention,
    work_with_landing_pace,
    work_with_trigger_limit,
)
from millrace.sizing.readable_numbers import rate_text


def streams_of_derive_query(found: LandingQueries, query: DeriveQuery) -> tuple[str, ...]:
    """Return the streams whose records a derive query reads, from its table and from the joined one.

    With a route, only that route's stream counts; a stream in both tables is read twice and is listed twice.
    """
    read = {}
    for table, route in query.source_tables_and_routes:
        *_, landing = found[table][0]
        streams = landing.source_stream_names
        if isinstance(landing, RouteQuery) and route is not None:
            streams = (landing.routes[route].source,)
        read.update(dict.fromkeys((table, stream) for stream in streams))
    return tuple(stream for _, stream in read)


def query_demands_and_findings(
    environment: Environment, as_asked: tuple[str, ...] = ()
) -> tuple[list[QueryDemand], list[Finding]]:
    """Return the demands of all queries.

    Parameters
    ----------
    as_asked
        Jobs that have only the cores to catch up that the file asks for, because of a pin.

    Returns
    -------
    tuple
        The feasible demands, and a finding for each demand that no number of cores can meet.
    """
    found, problems = _query_demands_and_findings(environment, as_asked)
    return [*found], [*problems]


def feasible_demands_of_job(environment: Environment, job: str) -> list[QueryDemand]:
    """Return the feasible demands of a job's queries."""
    return _feasible_demands_by_job(environment).get(job, [])


@lru_cache(maxsize=4)
def _query_demands_and_findings(
    environment: Environment, as_asked: tuple[str, ...]
) -> tuple[list[QueryDemand], list[Finding]]:
    found: list[QueryDemand] = []
    problems = [wrong for job in environment.jobs for wrong in result_problems(environment, job)]
    if problems:
        return [], problems
    facts = _QueryFacts(environment)
    for job_name, query_name, query in environment.queries:
        for only_asked in (job_name in as_asked, True):
            demand = _query_demand(facts, job_name, query_name, query, as_asked=only_asked)
            expiring = expiring_records_finding(demand, environment, query)
            if expiring is not None:
                problems.append(expiring)
                break
            try:
                needed = cores_needed_by_query(environment, environment.jobs[job_name], demand)
            except InfeasibleError as error:
                wrong = infeasible_finding(demand, environment, query, error)
            else:
                found.append(replace(demand, needed=needed))
                break
        else:
            problems.append(wrong)
    return found, problems


@lru_cache(maxsize=4)
def _feasible_demands_by_job(environment: Environment) -> dict[str, list[QueryDemand]]:
    return grouped((each.job, each) for each in _query_demands_and_findings(environment, ())[0])


class _QueryFacts:
    """Facts that all queries need: speeds of jobs, landing queries, readers of tables."""

    def __init__(self, environment: Environment) -> None:
        self.environment = environment
        self.speeds = {
            (job, name): speed_of_query(environment, job, name) for job, name, _ in environment.queries
        }
        self.shares = LatencyShares(environment, self.speeds)
        self.landing = self.shares.landing
        self.longest_trigger = cache(partial(_longest_trigger, self))
        self.seconds_that_a_batch_may_hold = cache(partial(_seconds_that_a_batch_may_hold, self))
        self._landing_works: dict[str, QueryWork] = {}
        self._triggers: dict[str, float] = {}
        self.joined: dict[str, frozenset[str]] = {}
        """Tables whose triggers are equal where they can be, by table: those that queries join, one after the other."""
        for _, _, query in environment.queries:
            tables = (
                [table for table, _ in query.source_tables_and_routes if table in self.landing]
                if isinstance(query, DeriveQuery)
                else []
            )
            group = frozenset(tables).union(*(self.joined.get(table, ()) for table in tables))
            self.joined |= dict.fromkeys(group, group)
        self.shared_out = partition_lists_by_stream_and_table(environment)
        self.readers_of = Counter(
            name
            for _, _, query in environment.queries
            if isinstance(query, SourceQueryBase) and not query.uses_fan_out
            for name in query.source_stream_names
        )

    def landing_work(self, table: str) -> QueryWork:
        """Return the work of the query that lands a table."""
        if table not in self._landing_works:
            self._landing_works[table] = _query_demand(self, *self.landing[table][0]).work
        return self._landing_works[table]

    def longest_trigger_seconds(self, job: str, overhead: float) -> float:
        """Return the longest trigger of a job's queries: the shortest of all that they would have alone.

        A query whose batches have a larger fixed cost than that keeps its own.

        Queries that share cores wait for each other's batches. If one of them had a longer trigger, the others would wait for larger
        batches of it, and a looser SLA would take more cores.
        """
        if job not in self._triggers:
            queries = self.environment.jobs[job].queries
            own = (self.longest_trigger(job, name) for name in queries)
            self._triggers[job] = min(own) if len(queries) > 1 else math.inf
        return self._triggers[job] if self._triggers[job] > overhead else math.inf

    @cached_property
    def slower_triggers(self) -> dict[tuple[str, str], float]:
        """Triggers, by job and query, that are longer than a query would have alone, because shards answer so many calls a second."""
        paces: dict[str, dict[tuple[str, str], Pace]] = {}
        for job, name, query in self.environment.queries:
            if not isinstance(query, SourceQueryBase) or query.uses_fan_out:
                continue
            speed = self.speeds[job, name]
            if (pinned := self.environment.jobs[job].run_every or query.trigger) is None:
                alone = min(
                    self.longest_trigger(job, name),
                    self.longest_trigger_seconds(job, speed.overhead),
                )
                room = self.shares.of_query(job, query).seconds * (1 - WORKING)
                room -= speed.overhead + speed.per_record
                longest = max(alone, min(self.seconds_that_a_batch_may_hold(job, name), room))
            else:
                alone = longest = pinned.total_seconds()
            for stream in query.source_stream_names:
                if self.environment.streams[stream].fans_out:
                    paces.setdefault(stream, {})[job, name] = Pace(alone, longest)
        return triggers_that_shards_answer(paces)


def _longest_trigger(facts: _QueryFacts, job: str, name: str) -> float:
    """Return the longest trigger of a query by its SLA, and by what memory and retention hold."""
    query = facts.environment.jobs[job].queries[name]
    work = QueryWork(1.0, 0.0, facts.speeds[job, name].overhead, facts.shares.of_query(job, query).seconds)
    if isinstance(query, SourceQueryBase):
        work = work_with_trigger_limit(work, facts.seconds_that_a_batch_may_hold(job, name), followed=False)
    return work.longest_batch_seconds


def _seconds_that_a_batch_may_hold(facts: _QueryFacts, job: str, name: str) -> float:
    """Return the seconds of arrivals that memory, retention and a stated limit hold of a query and of those whose tables are joined with its own.

    Beside joined batches, tables or state a longer trigger saves next to nothing, and its batches take the memory of these.
    """
    query = facts.environment.jobs[job].queries[name]
    # Tables that are joined get one trigger, so that the join reads whole batches of both.
    tables = facts.joined.get(query.table, ()) if isinstance(query, LandingQueryBase) else ()
    each: list[tuple[str, Query]] = [
        (job, query),
        *(facts.landing[table][0][::2] for table in sorted(tables)),
    ]
    jobs, streams = facts.environment.jobs, facts.environment.streams
    seconds = min(
        found
        for whose, one in each
        for peaks in (_peak_rates_by_stream(facts, one),)
        for found in (
            seconds_that_fit_in_memory(
                streams,
                peaks,
                _seconds_per_record_of_shared_partitions(facts, one, peaks),
                peak_multiple_to_catch_up(jobs[whose], asked=True),
                jobs[whose].heap_share,
            ),
            seconds_within_retention(
                [streams[name] for name in one.source_stream_names], outage_to_plan_for(jobs[whose])
            ),
            seconds_within_batch_limit(
                getattr(one, "records_per_batch", None),
                sum(peaks.values()) * peak_multiple_to_catch_up(jobs[whose]),
            ),
        )
    )
    overheads = (
        [facts.speeds[facts.landing[table][0][:2]].overhead for table in tables] if len(tables) > 1 else []
    )
    memory = facts.environment.jobs[job].memory
    if memory.state or memory.tables:
        overheads += [facts.speeds[job, name].overhead for name in facts.environment.jobs[job].queries]
    return min([seconds, *map(longest_join_trigger, overheads)])


def _seconds_per_record_of_shared_partitions(
    facts: _QueryFacts, query: Query, peaks: Mapping[str, float]
) -> dict[str, float]:
    """Return the seconds in which a partition of each stream delivers one record to a query that shares its throughput with others."""
    found = dict.fromkeys(peaks, 0.0)
    if not isinstance(query, SourceQueryBase):
        return found
    for name in peaks:
        stream = facts.environment.streams[name]
        readers = 1 if query.uses_fan_out else facts.readers_of[name]
        out = (limit_per_second(limit) for limit in stream.limits if limit.of == "bytes out")
        found[name] = sum(stream.traffic.record_size * readers / each for each in out)
    return found


def _query_demand(
    facts: _QueryFacts, job_name: str, query_name: str, query: Query, *, as_asked: bool = False
) -> QueryDemand:
    environment, fast = facts.environment, facts.speeds[job_name, query_name]
    names = _streams_of_query(facts, query)
    traffics = [environment.streams[name].traffic for name in names]
    every = environment.jobs[job_name].run_every
    share = facts.shares.of_query(job_name, query)
    started = 0.0 if every is None else service_limits()["bounded.start_seconds"]
    part, partitions = _topic_share_and_partitions(facts, query)
    peaks = _peak_rates_by_stream(facts, query)
    rate = sum(peaks.values())
    each_hand_over = _seconds_per_record_of_shared_partitions(facts, query, peaks)
    hand_over = sum(peak * each_hand_over[name] for name, peak in peaks.items()) / rate
    per_record = fast.per_record * _share_of_table_records_read(facts, query)
    # A task that reads a partition holds its core until the partition has delivered: of two streams one may deliver slowly, and the
    # other one bring the work.
    held = {name: peak * max(per_record, each_hand_over[name]) for name, peak in peaks.items()}
    if (mean := sum(held.values()) / rate) > max(per_record, hand_over) * (1 + 1e-9):
        per_record = mean
    work = QueryWork(
        rate=rate,
        per_record=per_record,
        overhead=fast.overhead,
        sla=share.seconds,
        trigger=facts.slower_triggers.get((job_name, query_name))
        if (pace := every or query.trigger) is None
        else pace.total_seconds(),
        hand_over=hand_over,
        alone=isinstance(query, SourceQueryBase)
        and (query.uses_fan_out or max(facts.readers_of[name] for name in names) == 1),
    )
    if isinstance(query, SourceQueryBase):
        followed = isinstance(query, LandingQueryBase) and query.table in facts.shares.readers
        work = work_with_trigger_limit(
            work, facts.seconds_that_a_batch_may_hold(job_name, query_name), followed=followed
        )
        work = replace(
            work, most_trigger=min(work.most_trigger, facts.longest_trigger_seconds(job_name, work.overhead))
        )
    else:
        landed = [facts.landing_work(table) for table, _ in query.source_tables_and_routes]
        work = work_with_landing_pace(work, landed, facts.longest_trigger_seconds(job_name, work.overhead))
    again = peak_multiple_to_catch_up(environment.jobs[job_name], asked=as_asked)
    longest = max(work.most_arrival_seconds, work.longest_batch_seconds)
    burst = 1.0 if as_asked else burst_factor(work.rate * longest)

    @cache
    def inputs() -> Inputs:
        rate, whose = yaml_path_of_rate(environment, job_name, query_name), share.job
        latency = f"{environment.jobs[whose].latency.total_seconds():g} s"
        traffic = tuple(each for name in peaks for each in traffic_inputs(name, environment.streams[name]))
        return (
            FigureInput("λ", f"{rate_text(work.rate)} records/s", "average · peak factor", inputs=traffic),
            FigureInput("b", f"{work.per_record * 1e6:,.1f} core-µs a record", origin=fast.origin, path=rate),
            FigureInput("a", f"{work.overhead:g} s a batch", origin=fast.origin, path=rate),
            FigureInput(
                "S",
                f"{work.sla:g} s",
                share.words,
                inputs=(FigureInput("latency", latency, path=("jobs", whose, "latency")),),
            ),
        )

    return QueryDemand(
        job=job_name,
        query=query_name,
        streams={name: each / sum(held.values()) for name, each in held.items()},
        lands=isinstance(query, SourceQueryBase),
        work=work,
        needed=0.0,
        # If records depend on each other, the time for one partition does not predict the time for many.
        assumed="assumed" in (*(each.basis for each in traffics), fast.basis)
        or (isinstance(query, DeriveQuery) and query.state is not None),
        share=share.words,
        sla_of=share,
        latency=share.seconds + started
        if isinstance(query, SourceQueryBase)
        else facts.shares.sla_seconds(job_name),
        fan_out=isinstance(query, SourceQueryBase) and query.uses_fan_out,
        average=sum(each.records_per_second for each in traffics) * part / work.rate,
        speed=fast,
        inputs=inputs,
        spares=lambda: extra_core_inputs(environment, job_name, again, work, tuple(peaks)),
        again=again,
        burst=burst,
        read_at_once=work.rate * work.hand_over * max(again, burst),
        held_by=(0.0, 0.0)
        if every is None
        else partitions_that_hold_run(
            environment.streams, peaks, every.total_seconds(), environment.jobs[job_name].heap_share
        ),
        stage=int(every is not None and not isinstance(query, SourceQueryBase)),
        part=part,
        partitions=partitions,
    )


def _share_of_table_records_read(facts: _QueryFacts, query: Query) -> float:
    """Return the share of a table's records that a query takes: limits and batches count them all."""
    shares = []
    for table, route in query.source_tables_and_routes if isinstance(query, DeriveQuery) else ():
        *_, landing = facts.landing[table][0]
        routes = landing.routes if isinstance(landing, RouteQuery) else {}
        shares.append(1.0 if route is None or route not in routes else routes[route].share)
    return max(shares, default=1.0)


def _streams_of_query(facts: _QueryFacts, query: Query) -> tuple[str, ...]:
    return (
        query.source_stream_names
        if isinstance(query, SourceQueryBase)
        else streams_of_derive_query(facts.landing, query)
    )


def _peak_rates_by_stream(facts: _QueryFacts, query: Query) -> dict[str, float]:
    """Return the records per second of a query's streams at the peak."""
    names, (part, _) = _streams_of_query(facts, query), _topic_share_and_partitions(facts, query)
    found = dict.fromkeys(names, 0.0)
    for name in names:
        found[name] += facts.environment.streams[name].traffic.peak_records_per_second * part
    return found


def _topic_share_and_partitions(facts: _QueryFacts, query: Query) -> tuple[float, int | None]:
    """Return a query's share of a shared topic, and its number of partitions; lists are balanced, so all shares are equal."""
    listed = query.kafka.partitions if isinstance(query, LandQuery) and query.kafka is not None else None
    if listed is None or not isinstance(query, LandQuery):
        return 1.0, None
    return 1 / len(facts.shared_out[query.source, query.table]), len(listed)
