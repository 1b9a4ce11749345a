"""Tables of a plan for the terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from millrace.cli.shared.console import WIDE, figure_columns, plain_table, table_with_rows, word_columns
from millrace.config.base import grouped
from millrace.config.engines import KINDS
from millrace.config.model import Environment
from millrace.sizing.plan_model import ClusterPlan, CostItem, Figure, JobPlan, Plan, QueryPlan, StreamPlan
from millrace.sizing.planning import total_cost
from millrace.sizing.readable_numbers import count

_LEGEND = "~ rests on a rate that nobody measured     = pinned in the file"
_WORKERS = "Workers are counted as if all ran all month."

MANY_JOBS = 20
"""Number of jobs from which each has one row in place of its reasons, and each item of the bill one sum."""


def plan_tables(environment: Environment, plan: Plan, *, width: int | None) -> Iterator[RenderableType]:
    """Yield the output of ``millrace plan`` below its verdict, top to bottom.

    Parameters
    ----------
    environment
        Source of the jobs' SLAs, which the plan does not repeat.
    width
        Columns of the terminal; ``None`` for a pipe, which gets plain lines of any length.
    """
    terminal = width is not None
    inline = width is None or width >= WIDE
    yield Text(_LEGEND, "dim")
    for line in plan.advice:
        yield Text(f"Advice: {line}")
    yield from _titled_section("Streams", _streams_table(plan.streams.values(), terminal, inline))
    if plan.clusters:
        yield from _titled_section(
            "Kafka clusters", _clusters_table(plan.clusters.values(), terminal, inline)
        )
    notes = plan.warnings
    if len(plan.jobs) < MANY_JOBS:
        yield from _titled_section("Jobs", _job_blocks(environment, plan.jobs.values(), terminal))
    else:
        yield from _titled_section("Jobs", _jobs_table(environment, plan.jobs.values(), terminal))
        notes = tuple(each for each in notes if not each.startswith("jobs."))
        hidden = count(len(plan.warnings) - len(notes), "note")
        yield _reason_line(
            f"--explain jobs.NAME shows a job with its queries and reasons, and its part of {hidden}"
        )
    yield from _titled_section("Dollars a month", cost_table(plan, terminal=terminal))
    yield Text(
        f"Prices of {plan.prices.isoformat()}, {plan.prices_of}. {costs_left_out_sentence(plan)}. {_WORKERS}",
        "dim",
    )
    yield from map(_note_line, notes)


def job_tables(
    environment: Environment, plan: Plan, name: str, *, terminal: bool
) -> Iterator[RenderableType]:
    """Yield one job's figures with their reasons, its queries, and the notes on it."""
    yield _job_blocks(environment, [plan.jobs[name]], terminal)
    yield from (
        _note_line(each) for each in plan.warnings if each.startswith((f"jobs.{name}.", f"jobs.{name}:"))
    )


def costs_left_out_sentence(plan: Plan) -> str:
    """Return in one sentence the costs that are not in the bill."""
    return f"Not in it: {'; '.join(plan.left_out)}"


def _titled_section(title: str, body: RenderableType) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, "bold cyan")
    yield body


def _ruled_table(
    terminal: bool, *columns: Column, why: bool = False, rows: Iterable[Iterable[str]] = ()
) -> Table:
    """Return a table with a rule below its head in a terminal; in a pipe without any."""
    if why:
        columns = (*columns, Column("why", style="dim", overflow="fold"))
    ruled = Table(*columns, box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    return table_with_rows(ruled if terminal else plain_table(*columns), rows)


@dataclass(frozen=True)
class _Indented:
    """A part some columns to the right; Rich's padding would measure a large table twice."""

    body: RenderableType
    columns: int = 2

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        inside = options.update_width(options.max_width - self.columns)
        for line in console.render_lines(self.body, inside, pad=False):
            yield from (Segment(" " * self.columns), *line, Segment.line())


def _table_with_reasons(
    terminal: bool, inline: bool, columns: Sequence[Column], rows: Sequence[tuple[Sequence[str], str]]
) -> Group:
    """Return a table with the reason for each row in a column if there is room, else below it."""
    table = _ruled_table(
        terminal, *columns, why=inline, rows=((*cells, *[why] * inline) for cells, why in rows)
    )
    reasons = () if inline else (_reason_line(f"{cells[0]}: {why}") for cells, why in rows)
    return Group(_Indented(table, 0 if terminal else 2), *reasons)


def _streams_table(streams: Iterable[StreamPlan], terminal: bool, inline: bool) -> Group:
    columns = [*word_columns("stream", "kind"), *figure_columns("partitions", "$/month")]
    rows = [
        (
            (
                each.name,
                f"{each.kind} {each.mode}",
                _figure_cell(each.expected_partitions),
                _total_dollars_cell(each.cost),
            ),
            each.expected_partitions.why,
        )
        for each in streams
    ]
    return _table_with_reasons(terminal, inline, columns, rows)


def _clusters_table(clusters: Iterable[ClusterPlan], terminal: bool, inline: bool) -> Group:
    columns = [
        *word_columns("cluster"),
        *figure_columns("brokers"),
        *word_columns("type"),
        *figure_columns("GiB each", "$/month"),
    ]
    rows = [
        (
            (
                each.name,
                _figure_cell(each.brokers),
                _figure_cell(each.broker_type) if each.broker_type else each.tier,
                _figure_cell(each.storage_gib_per_broker),
                _total_dollars_cell(each.cost),
            ),
            each.brokers.why if each.brokers else "AWS sizes a serverless cluster",
        )
        for each in clusters
    ]
    return _table_with_reasons(terminal, inline, columns, rows)


def _jobs_table(environment: Environment, jobs: Iterable[JobPlan], terminal: bool) -> _Indented:
    """Return a table with one row for each job."""
    table = _ruled_table(
        terminal,
        *word_columns("job", "engine"),
        *figure_columns("cores", "workers"),
        *word_columns("of", "SLA"),
        *figure_columns("$/month"),
        rows=(
            (
                job.name,
                f"{KINDS[job.engine].title} {job.version}",
                _figure_cell(job.cores),
                _figure_cell(job.max_workers),
                job.worker,
                environment.jobs[job.name].sla_words.removeprefix("SLA "),
                _total_dollars_cell(job.cost),
            )
            for job in jobs
        ),
    )
    return _Indented(table, 0 if terminal else 2)


def _job_blocks(environment: Environment, jobs: Iterable[JobPlan], terminal: bool) -> Group:
    """Return each job's figures with their reasons, and a table of its queries."""
    parts: list[RenderableType] = []
    for job in jobs:
        head = Text.assemble(
            (job.name, "bold"),
            f"  {KINDS[job.engine].title} {job.version}, {_count_cell(job.max_workers, 'worker')} of {job.worker}",
            f", {environment.jobs[job.name].sla_words}, {_total_dollars_cell(job.cost)} a month",
        )
        reasons = [
            f"{_count_cell(job.cores, 'core')}: {job.cores.why}",
            f"{_count_cell(job.max_workers, 'worker')}: {job.max_workers.why}",
            _executor_range_text(job),
            f"network {_figure_cell(job.network)}: {job.network.why}",
        ]
        notes = [f"{query.name}, {why}" for query in job.queries.values() for why in _query_reasons(query)]
        notes += [f"advice: {line}" for line in job.advice]
        parts += [head, *map(_reason_line, reasons), _queries_table(job, terminal), *map(_reason_line, notes)]
        parts.append(Text(""))
    return Group(*parts[:-1])


def _executor_range_text(job: JobPlan) -> str:
    """Return the range of the job's executors, and the memory that each needs."""
    least, most = job.scaling.min_executors, job.executors
    executors = f"{_figure_cell(most)} {'executor' if most.value == 1 else 'executors'}"
    if least.value != most.value:
        executors = f"{_figure_cell(least)} to {executors}"
    return f"{executors}; {_figure_cell(job.memory)} of {job.memory_gib} GiB: {job.memory.why}"


def _reason_line(text: str) -> _Indented:
    return _Indented(Text(text, "dim"))


def _note_line(text: str) -> Text:
    return Text(f"Note: {text}", "yellow")


def _queries_table(job: JobPlan, terminal: bool) -> _Indented:
    spread = ["repartition"] if any(query.repartition for query in job.queries.values()) else []
    table = _ruled_table(
        terminal,
        *word_columns("query"),
        *figure_columns("trigger", "records a batch", "a shard", *spread),
        rows=(
            (
                query.name,
                f"{_origin_mark(query.trigger_seconds)}{query.trigger_seconds.value:g} s",
                _figure_cell(query.records_per_batch),
                _figure_cell(query.records_per_partition),
                *[_figure_cell(query.repartition) for _ in spread],
            )
            for query in job.queries.values()
        ),
    )
    return _Indented(table, 2 if terminal else 4)


def _query_reasons(query: QueryPlan) -> Iterator[str]:
    figures: dict[str, Figure[Any] | None] = {
        "trigger": query.trigger_seconds,
        "limit": query.records_per_batch,
        "repartition": query.repartition,
    }
    again = query.catch_up_seconds
    for name, figure in figures.items():
        if figure is not None:
            yield f"{name} {figure.why}" if figure.why.startswith("pinned") else f"{name}: {figure.why}"
    if again is not None:
        yield f"caught up in {again.value:,.0f} s {again.why}"


def cost_table(plan: Plan, *, terminal: bool) -> _Indented:
    """Return the table of a month's bill with the reason for each line; of many jobs with a sum of each item."""
    table = _ruled_table(terminal, *word_columns("for", "item"), *figure_columns("$/month"), why=True)
    groups = [
        *(("streams", f"stream {each.name}", each.cost) for each in plan.streams.values()),
        *(("clusters", f"cluster {each.name}", each.cost) for each in plan.clusters.values()),
        *(("jobs", f"job {each.name}", each.cost) for each in plan.jobs.values()),
        ("shared", "shared", plan.shared),
    ]
    # Alike named items of one job stay apart: each has a reason of its own.
    lines = grouped(
        ((kind, item.name) if len(plan.jobs) >= MANY_JOBS else (name, f"{position}"), item)
        for kind, name, items in groups
        for position, item in enumerate(items)
    )
    before = ""
    for (name, _), (first, *more) in lines.items():
        why = f"sum of {1 + len(more)}" if more else first.why
        shown = _total_dollars_cell((first, *more))
        table.add_row(name if name != before else "", first.name, shown, why)
        before = name
    sum_ = total_cost(plan)
    everything = count(sum(len(items) for _, _, items in groups), "item")
    table.add_section()
    table.add_row(
        Text("total", "bold"), "", Text(_dollars_cell(sum_.value, assumed=sum_.assumed), "bold"), everything
    )
    return _Indented(table, 0 if terminal else 2)


def _origin_mark(figure: Figure[Any]) -> str:
    return "=" if figure.origin == "pinned" else "~" if figure.assumed else ""


def _figure_cell(figure: Figure[Any] | None) -> str:
    if figure is None:
        return "-"
    value = f"{figure.value:,}" if isinstance(figure.value, int) else str(figure.value)
    return _origin_mark(figure) + value


def _count_cell(figure: Figure[int], noun: str) -> str:
    return _origin_mark(figure) + count(figure.value, noun)


def _total_dollars_cell(items: tuple[CostItem, ...]) -> str:
    if not items:
        return "-"
    return _dollars_cell(sum(line.usd for line in items), assumed=any(line.assumed for line in items))


def _dollars_cell(usd: float, *, assumed: bool) -> str:
    return f"{'~' if assumed else ''}${usd:,.2f}"
