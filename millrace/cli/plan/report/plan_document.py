"""A checked plan as a document: what ``millrace plan --json`` prints and its page draws, with the flow of its data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from millrace.cli.plan.report.plan_risks import SimulatedPlan
from millrace.cli.shared.verdict import Risk, Severity, Verdict, verdict_document
from millrace.config import Environment
from millrace.config.engines import KINDS
from millrace.config.queries import DeriveQuery, LandingQueryBase, Query
from millrace.config.sinks.stream_sink_base import StreamSink
from millrace.sizing.alternatives.doubtful_plan_inputs import FULL, share_of_limits_at_peak
from millrace.sizing.cost import GB, SECONDS
from millrace.sizing.cost_saving_moves import CostSavingMove
from millrace.sizing.costs.storage_and_unpriced_costs import gb_added_per_second
from millrace.sizing.plan_as_plain_data import plan_as_plain_data
from millrace.sizing.plan_model import JobPlan, WorkerChoice
from millrace.sizing.queries.demand import QueryDemand
from millrace.sizing.queries.driver import fixed_seconds_of_batches
from millrace.sizing.queries.environment_demands import feasible_demands_of_job
from millrace.sizing.readable_numbers import (
    count,
    dollars,
    duration_text,
    format_bytes,
    format_number,
    join_names,
)

_TROUBLES: Mapping[str, str] = {
    "late-at-peak": "late at the peak",
    "late-at-rise": "late when traffic rises",
    "catch-up-contradicted": "catches up late",
    "slow-catch-up": "slow to catch up",
    "full-shards": "nearly full",
    "throttled-reads": "reads are throttled",
    "unpriced-writes": "writes without a price",
    "driver-limit": "near one driver's limit",
}
"""Words in a box for each kind of risk that concerns a single stream or job."""

_KINDS = {"table": "Iceberg table", "letters": "dead letters"}


def flow_chart(checked: SimulatedPlan, risks: Sequence[Risk]) -> dict[str, list[dict[str, Any]]]:
    """Return a box for each stream, job and table that a job writes, and the arrows between them.

    A sink that is a stream of the environment shares that stream's box. What a query derives from a table of its own job has
    its arrow from that table; all else that a job writes has it from the job.

    Parameters
    ----------
    risks
        Risks of the plan's verdict; each box shows those that concern it.

    Returns
    -------
    dict
        ``boxes``, each with ``key``, ``kind`` (``stream``, ``job`` or ``table``), ``name``, ``lines``, ``usd`` a month, ``link``
        (element of the page), ``severity`` and ``trouble``; ``arrows``, each with ``begin`` and ``end`` (keys) and ``label``.
    """
    boxes = {
        box["key"]: box
        for make, names in ((_stream_box, checked.environment.streams), (_job_box, checked.environment.jobs))
        for box in (make(checked, name) for name in names)
    }
    queries = [(each, checked.environment.jobs[each.job].queries[each.query]) for each in checked.demands]
    landed = {(each.job, query.table) for each, query in queries if isinstance(query, LandingQueryBase)}
    flows = defaultdict[tuple[str, str], float](float)
    for demand, query in queries:
        job, sources = f"job {demand.job}", list(demand.streams)
        begins = [job]
        if isinstance(query, DeriveQuery):
            sources = [table for table, _ in query.source_tables_and_routes]
            own = [f"table {table}" for table in sources if (demand.job, table) in landed]
            begins = own or begins
            flows |= {(f"table {table}", job): 0.0 for table in sources if f"table {table}" not in own}
        else:
            for name, part in demand.streams.items():
                size = checked.environment.streams[name].traffic.record_size
                flows[f"stream {name}", job] += demand.work.rate * part * size
        targets = list(dict.fromkeys(_box_keys_of_targets(query, checked.environment.streams)))
        alone = sum(not key.startswith("letters ") for key in targets) == 1
        for key in targets:
            box = boxes.setdefault(
                key, _flow_box(key, "table", [_KINDS.get(key.split(" ")[0], key.split(" ")[0])])
            )
            if box["kind"] == "table":
                letters = (
                    _written_rows_lines(checked, demand, query)
                    if alone and not key.startswith("letters ")
                    else []
                )
                box["lines"] += [f"from {join_names(sources)}", *letters]
            flows |= dict.fromkeys(((begin, key) for begin in begins), 0.0)
    for key, (severity, trouble) in _largest_risk_by_part(risks).items():
        boxes[key] |= {"severity": severity, "trouble": trouble}
    return {
        "boxes": list(boxes.values()),
        "arrows": [
            {"begin": begin, "end": end, "label": f"{format_bytes(flowing)}/s" if flowing else ""}
            for (begin, end), flowing in flows.items()
        ],
    }


def _flow_box(
    key: str, kind: str, lines: list[str], usd: float = 0.0, link: str | None = None
) -> dict[str, Any]:
    return {
        "key": key,
        "kind": kind,
        "name": key.split(" ", 1)[1],
        "lines": lines,
        "usd": usd,
        "link": link,
        "severity": None,
        "trouble": "",
    }


def _written_rows_lines(checked: SimulatedPlan, demand: QueryDemand, query: Query) -> list[str]:
    """Return the rows of a query's only target; those of a transform are unknown, so the records that it reads."""
    rate = f"{format_number(demand.work.rate)} records/s"
    gb_month = gb_added_per_second(checked.environment, query, demand) * SECONDS
    return [
        f"peak {rate}" if isinstance(query, LandingQueryBase) else f"reads {rate} at the peak",
        *([f"+{format_bytes(gb_month * GB)} a month"] if gb_month else []),
    ]


def _largest_risk_by_part(risks: Sequence[Risk]) -> dict[str, tuple[Severity, str]]:
    """Return the largest risk of each stream and job."""
    troubles: dict[str, tuple[Severity, str]] = {}
    for risk in risks:
        if risk.kind in _TROUBLES:
            for each in risk.concerns:
                section, name = each.split(".")[:2]
                troubles.setdefault(
                    f"{section.removesuffix('s')} {name}", (risk.severity, _TROUBLES[risk.kind])
                )
    return troubles


def _stream_box(checked: SimulatedPlan, name: str) -> dict[str, Any]:
    stream, sized = checked.environment.streams[name], checked.plan.streams[name]
    traffic = stream.traffic
    parts = count(sized.expected_partitions.value, stream.parts.removesuffix("s"))
    guess = "" if traffic.basis == "measured" else "~"
    lines = [
        f"{sized.kind} {sized.mode}, {parts}",
        f"{guess}{format_number(traffic.records_per_second)} records/s, "
        f"peak {format_number(traffic.peak_records_per_second)}",
        f"{guess}{format_bytes(traffic.record_size)} a record",
    ]
    return _flow_box(f"stream {name}", "stream", lines, checked.monthly_usd_of(f"streams.{name}"))


def _job_box(checked: SimulatedPlan, name: str) -> dict[str, Any]:
    job = checked.plan.jobs[name]
    usd = checked.monthly_usd_of(f"jobs.{name}")
    lines = [
        f"{KINDS[job.engine].title} {job.version}",
        f"{count(job.max_workers.value, 'worker')} of {job.worker}",
        f"{checked.environment.jobs[name].sla_words}, "
        f"{dollars(usd, assumed=any(line.assumed for line in job.cost))} a month",
    ]
    return _flow_box(f"job {name}", "job", lines, usd, f"job-{name}")


def _box_keys_of_targets(query: Query, streams: Container[str]) -> Iterator[str]:
    """Yield keys of a query's targets: ``table x`` in the catalog, ``stream x`` of the environment, else kind and name."""
    if isinstance(query, LandingQueryBase):
        yield f"table {query.table}"
    for each in query.sinks_by_place.values():
        key, target = each.sink.target_key_and_name
        named, kind = getattr(each.sink, key), each.sink.kind
        if each.sink.catalog_table is not None:
            yield f"table {each.sink.catalog_table}"
        elif isinstance(each.sink, StreamSink) and named in streams:
            yield f"stream {named}"
        else:
            yield f"{kind} {target.removeprefix(f'{kind} ')}"
    letters = getattr(query, "dead_letters", None)
    if letters is not None:
        yield f"letters {letters}"


def plan_document(
    checked: SimulatedPlan, verdict: Verdict, moves: Sequence[CostSavingMove] = ()
) -> dict[str, Any]:
    """Return a checked plan with its verdict as an object that ``json.dumps`` takes.

    Returns
    -------
    dict
        The keys of :func:`millrace.sizing.plan_as_plain_data.plan_as_plain_data`, and ``verdict``; ``moves``, changes of the file that cost less;
        ``flow`` (:func:`millrace.cli.plan.report.plan_document.flow_chart`); ``room``, by limit (``capacity`` and ``age`` of queries, ``shards`` of
        streams) the ``share`` of it that each subject uses; ``ours`` of each stream; ``way`` and ``worst_age_seconds`` of each
        choice of a job's workers.
    """
    environment = checked.environment
    document = plan_as_plain_data(checked.plan)
    for name, stream in environment.streams.items():
        document["streams"][name]["ours"] = not stream.belongs_to_others
    for name, job in checked.plan.jobs.items():
        for choice, choice_document in zip(job.choices(), document["jobs"][name]["choices"], strict=True):
            choice_document |= {
                "way": str(choice),
                "worst_age_seconds": worst_record_age_seconds(environment, job, choice),
            }
    return {
        "version": document.pop("version"),
        "verdict": verdict_document(verdict),
        "moves": [asdict(each) for each in moves],
        **document,
        "flow": flow_chart(checked, verdict.risks),
        "room": {
            "capacity": [*_query_capacity_bars(checked)],
            # Oldest record of the simulation by the SLA; NaN if nothing was committed, and the verdict says so.
            "age": [
                _bar_item(
                    f"{each.job}/{each.query}",
                    each.oldest / each.sla,
                    f"oldest {duration_text(each.oldest)} of {duration_text(each.sla)}",
                )
                for each in checked.played
                if each.oldest == each.oldest
            ],
            "shards": [
                _bar_item(
                    name,
                    share,
                    f"of {count(sized.expected_partitions.value, stream.parts.removesuffix('s'))}",
                )
                for name, stream in environment.streams.items()
                for sized in [checked.plan.streams[name]]
                if (share := share_of_limits_at_peak(stream, sized))
            ],
        },
    }


def _bar_item(name: str, share: float, words: str) -> dict[str, Any]:
    return {
        "name": name,
        "share": share,
        "words": words,
        "severity": "breach" if share > 1 else "warning" if share > FULL else None,
    }


def _query_capacity_bars(checked: SimulatedPlan) -> Iterator[dict[str, Any]]:
    """Yield the peak as a share of the capacity of full batches."""
    for name, job in checked.plan.jobs.items():
        own = [demand for demand in checked.demands if demand.job == name]
        for demand, fixed in zip(
            own, fixed_seconds_of_batches(checked.environment.jobs[name], own, job.vcpu), strict=True
        ):
            query = job.queries[demand.query]
            if query.records_per_batch is None:
                continue
            limit, trigger = query.records_per_batch.value, query.trigger_seconds.value
            each = (query.batch_seconds.value - fixed) / (demand.work.rate * trigger)
            capacity = limit / max(trigger, fixed + limit * each)
            yield _bar_item(
                f"{name}/{demand.query}",
                demand.work.rate / capacity,
                f"{format_number(demand.work.rate)} of {format_number(capacity)} records/s",
            )


def worst_record_age_seconds(environment: Environment, job: JobPlan, choice: WorkerChoice) -> float:
    """Return the age in seconds that no record exceeds at the peak with a choice's cores: T + D, in each query.

    Cores of complete workers, including those that the queries do not need, are divided as in the plan.
    """
    own = feasible_demands_of_job(environment, job.name)
    factor = choice.executors * choice.vcpu / job.cores.value
    ages = {}
    planned, fixed = (
        fixed_seconds_of_batches(environment.jobs[job.name], own, cores) for cores in (job.vcpu, choice.vcpu)
    )
    for demand, before, after in zip(own, planned, fixed, strict=True):
        query = job.queries[demand.query]
        work = query.batch_seconds.value - before
        ages[demand.query] = query.trigger_seconds.value + after + work / factor
    landed = max((ages[demand.query] for demand in own if demand.lands), default=0.0)
    derived = max((ages[demand.query] for demand in own if not demand.lands), default=0.0)
    return landed + derived
