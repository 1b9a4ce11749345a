"""Flow of an environment: streams, jobs and tables, with the data between them at the peak."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

from millrace.cli.plan.report.plan_verdict import CheckedPlan
from millrace.cli.shared.flow_picture import Arrow, Box
from millrace.cli.shared.verdict import Risk, Severity
from millrace.config.engines import KINDS
from millrace.config.queries import DeriveQuery, Landing, Query
from millrace.config.sinks.stream_sinks import StreamSink
from millrace.config.units import format_duration
from millrace.sizing.cost import GB, SECONDS
from millrace.sizing.storage import stored_gb
from millrace.sizing.text_format import count, dollars, format_bytes, format_number

_TROUBLES: Mapping[str, str] = {
    "late-at-peak": "late at the peak",
    "late-at-rise": "late when traffic rises",
    "catch-up-contradicted": "catches up late",
    "slow-catch-up": "slow to catch up",
    "full-shards": "nearly full",
    "unpriced-writes": "writes without a price",
    "driver-limit": "near one driver's limit",
}
"""Words in a box for each kind of risk that concerns a single stream or job."""


def flow(found: CheckedPlan, risks: Sequence[Risk]) -> tuple[list[Box], list[Arrow]]:
    """Return a box for each stream, job and table that a job writes, and the arrows between them.

    A sink that is a stream of the environment shares that stream's box. A table that its own job reads again has
    only one arrow, from the job to the table.

    Parameters
    ----------
    risks
        Risks of the plan's verdict; each box shows those that concern it.
    """
    troubles = _troubles(risks)
    writers = _written(found)
    streams = [_stream(found, name, troubles) for name in found.environment.streams]
    jobs = [_job(found, name, troubles) for name in found.environment.jobs]
    names = {box.key for box in streams}
    tables = [_table(key, *told) for key, (_, told) in writers.items() if key not in names]
    arrows = [*_reads(found, writers)]
    arrows += [Arrow(f"job {job}", key) for key, (by_job, _) in writers.items() for job in sorted(by_job)]
    return [*streams, *jobs, *tables], arrows


def flow_rows(boxes: Sequence[Box], arrows: Sequence[Arrow]) -> list[list[str]]:
    """Return the flow as rows of a table: each arrow, then the boxes without an arrow."""
    touched = {each for arrow in arrows for each in (arrow.begin, arrow.end)}
    told = {box.key: "; ".join((*box.lines, box.trouble)).rstrip("; ") for box in boxes}
    rows = [[each.begin, each.end, each.label or "-", told[each.begin]] for each in arrows]
    return rows + [[box.key, "-", "-", told[box.key]] for box in boxes if box.key not in touched]


def _troubles(risks: Sequence[Risk]) -> dict[str, tuple[Severity, str]]:
    """Return the largest risk of each stream and job."""
    found: dict[str, tuple[Severity, str]] = {}
    for risk in risks:
        if risk.kind in _TROUBLES:
            for each in risk.concerns:
                section, name = each.split(".")[:2]
                found.setdefault(f"{section.removesuffix('s')} {name}", (risk.severity, _TROUBLES[risk.kind]))
    return found


def _stream(found: CheckedPlan, name: str, troubles: Mapping[str, tuple[Severity, str]]) -> Box:
    stream, sized = found.environment.streams[name], found.plan.streams[name]
    traffic, key = stream.traffic, f"stream {name}"
    severity, trouble = troubles.get(key, (None, ""))
    peak = traffic.records_per_second * traffic.peak_factor
    parts = count(sized.expected_partitions.value, stream.parts.removesuffix("s"))
    guess = "" if traffic.basis == "measured" else "~"
    lines = (
        f"{sized.kind} {sized.mode}, {parts}",
        f"{guess}{format_number(traffic.records_per_second)} records/s, peak {format_number(peak)}",
        f"{guess}{format_bytes(traffic.record_size)} a record",
    )
    return Box(key, "stream", name, lines, found.usd(f"streams.{name}"), None, severity, trouble)


def _job(found: CheckedPlan, name: str, troubles: Mapping[str, tuple[Severity, str]]) -> Box:
    job, key = found.plan.jobs[name], f"job {name}"
    severity, trouble = troubles.get(key, (None, ""))
    usd = found.usd(f"jobs.{name}")
    sla = format_duration(found.environment.jobs[name].latency)
    lines = (
        f"{KINDS[job.engine].title} {job.version}",
        f"{count(job.max_workers.value, 'worker')} of {job.worker}",
        f"SLA {sla}, {dollars(usd, assumed=any(line.assumed for line in job.cost))} a month",
    )
    return Box(key, "job", name, lines, usd, f"job-{name}", severity, trouble)


def _table(key: str, rate: float, gb_month: float) -> Box:
    kind, name = key.split(" ", 1)
    lines = [f"peak {format_number(rate)} records/s"] * bool(rate) + [
        f"+{format_bytes(gb_month * GB)} a month"
    ] * bool(gb_month)
    return Box(key, "table", name, (_KINDS.get(kind, kind), *lines))


_KINDS = {"table": "Iceberg table", "letters": "dead letters"}


def _targets(query: Query, streams: Container[str]) -> Iterator[str]:
    """Yield keys of a query's targets: ``table x`` in the catalog, ``stream x`` of the environment, else kind and name."""
    if isinstance(query, Landing):
        yield f"table {query.table}"
    for each in query.ends.values():
        named = getattr(each.sink, each.sink.named_by, None)
        if each.sink.catalog_table is not None:
            yield f"table {each.sink.catalog_table}"
        elif isinstance(each.sink, StreamSink) and named in streams:
            yield f"stream {named}"
        else:
            yield each.sink.target[1]
    letters = getattr(query, "dead_letters", None)
    if letters is not None:
        yield f"letters {letters}"


_Written = dict[str, tuple[set[str], tuple[float, float]]]
"""By target: the jobs that write it, rows a second at the peak, and GB added a month; 0 if unknown."""


def _written(found: CheckedPlan) -> _Written:
    writers: _Written = {}
    for demand in found.demands:
        query = found.environment.jobs[demand.job].queries[demand.query]
        targets = list(dict.fromkeys(_targets(query, found.environment.streams)))
        own = [key for key in targets if not key.startswith("letters ")]
        added = stored_gb(found.environment, query, demand) * SECONDS
        for key in targets:
            # With several sinks the share of each is unknown, and so is the number of dead letters.
            alone = float(own == [key])
            jobs, (rate, gb_month) = writers.get(key, (set(), (0.0, 0.0)))
            writers[key] = (jobs | {demand.job}, (rate + alone * demand.work.rate, gb_month + alone * added))
    return writers


def _reads(found: CheckedPlan, writers: _Written) -> Iterator[Arrow]:
    """Yield arrows from streams to jobs with the bytes at the peak, and from tables to jobs that do not write them."""
    flows: dict[tuple[str, str], float] = {}
    for demand in found.demands:
        query = found.environment.jobs[demand.job].queries[demand.query]
        if isinstance(query, DeriveQuery):
            for table, _ in query.reads:
                if demand.job not in writers[f"table {table}"][0]:
                    flows.setdefault((f"table {table}", f"job {demand.job}"), 0.0)
            continue
        for name, part in demand.streams.items():
            key = (f"stream {name}", f"job {demand.job}")
            flows[key] = (
                flows.get(key, 0.0)
                + demand.work.rate * part * found.environment.streams[name].traffic.record_size
            )
    for (begin, end), flowing in flows.items():
        yield Arrow(begin, end, f"{format_bytes(flowing)}/s" if flowing else "")
