"""Tables of a plan for the terminal or a pipe."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from millrace.cli.shared.console import WIDE
from millrace.config.engines import KINDS
from millrace.config.model import Environment
from millrace.sizing.plan_model import ClusterPlan, CostItem, Figure, JobPlan, Plan, QueryPlan, StreamPlan
from millrace.sizing.planning import total_cost
from millrace.sizing.readable_numbers import count

_LEGEND = "~ rests on a rate that nobody measured     = pinned in the file"
_WORKERS = "Workers are counted as if all ran all month."


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
    yield from _titled_section("Streams", _streams_table(plan.streams.values(), terminal, inline), terminal)
    if plan.clusters:
        yield from _titled_section(
            "Kafka clusters", _clusters_table(plan.clusters.values(), terminal, inline), terminal
        )
    yield from _titled_section("Jobs", _job_tables(environment, plan.jobs.values(), terminal), terminal)
    yield from _titled_section("Dollars a month", cost_table(plan, terminal=terminal), terminal)
    yield Text(
        f"Prices of {plan.prices.isoformat()}, {plan.prices_of}. {costs_left_out_sentence(plan)}. {_WORKERS}",
        "dim",
    )
    for warning in plan.warnings:
        yield Text(f"Note: {warning}", "yellow")


def costs_left_out_sentence(plan: Plan) -> str:
    """Return in one sentence the costs that are not in the bill."""
    return f"Not in it: {'; '.join(plan.left_out)}"


def _titled_section(title: str, body: RenderableType, terminal: bool) -> Iterator[RenderableType]:
    yield Text("")
    yield Text(title, "bold cyan" if terminal else "")
    yield body


class _PlainTable:
    """A table or line for a pipe, without wrapping and colours, because Rich is slow with them."""

    def __init__(self, *columns: tuple[str, str], indent: int = 2) -> None:
        self._numbers = [kind == "number" for _, kind in columns]
        self._rows = [[name for name, _ in columns]]
        self._indent = " " * indent

    def add_row(self, *cells: str | Text) -> None:
        self._rows.append([each.plain if isinstance(each, Text) else each for each in cells])

    def add_section(self) -> None:
        """Do nothing: a pipe has no rules."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[Segment]:
        widths = [max(map(len, column)) for column in zip(*self._rows, strict=True)]
        for row in self._rows:
            cells = [
                cell.rjust(width) if number else cell.ljust(width)
                for cell, width, number in zip(row, widths, self._numbers, strict=True)
            ]
            yield Segment(f"{self._indent}{'    '.join(cells)}".rstrip())
            yield Segment.line()


def _make_table(terminal: bool, *columns: tuple[str, str], indent: int = 2) -> Table | _PlainTable:
    """Make a table; ``columns`` are names with ``text``, ``number`` or ``why``."""
    if not terminal:
        return _PlainTable(*columns, indent=indent)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), show_edge=False)
    for name, kind in columns:
        if kind == "why":
            table.add_column(name, style="dim", overflow="fold", ratio=1)
        else:
            table.add_column(name, justify="right" if kind == "number" else "left", no_wrap=True)
    return table


class _TableWithReasons:
    """A table with the reasons in a column if there is room, else below it."""

    def __init__(self, terminal: bool, inline: bool, *columns: tuple[str, str]) -> None:
        self._terminal, self._inline = terminal, inline
        self._table = _make_table(terminal, *columns, *[("why", "why")] * inline)
        self._reasons: list[RenderableType] = []

    def add_row_with_reason(self, cells: list[str], why: str) -> None:
        self._table.add_row(*cells, *[why] * self._inline)
        if not self._inline:
            self._reasons.append(_reason_line(f"{cells[0]}: {why}", self._terminal))

    def to_group(self) -> Group:
        return Group(self._table, *self._reasons)


def _streams_table(streams: Iterable[StreamPlan], terminal: bool, inline: bool) -> Group:
    listing = _TableWithReasons(
        terminal,
        inline,
        ("stream", "text"),
        ("kind", "text"),
        ("partitions", "number"),
        ("$/month", "number"),
    )
    for stream in streams:
        kind = f"{stream.kind} {stream.mode}"
        figure = stream.expected_partitions
        listing.add_row_with_reason(
            [stream.name, kind, _figure_cell(figure), _total_dollars_cell(stream.cost)], figure.why
        )
    return listing.to_group()


def _clusters_table(clusters: Iterable[ClusterPlan], terminal: bool, inline: bool) -> Group:
    listing = _TableWithReasons(
        terminal,
        inline,
        ("cluster", "text"),
        ("brokers", "number"),
        ("type", "text"),
        ("GiB each", "number"),
        ("$/month", "number"),
    )
    for cluster in clusters:
        cells = [
            cluster.name,
            _figure_cell(cluster.brokers),
            _figure_cell(cluster.broker_type) if cluster.broker_type else cluster.tier,
            _figure_cell(cluster.storage_gib_per_broker),
            _total_dollars_cell(cluster.cost),
        ]
        listing.add_row_with_reason(
            cells, cluster.brokers.why if cluster.brokers else "AWS sizes a serverless cluster"
        )
    return listing.to_group()


def _job_tables(environment: Environment, jobs: Iterable[JobPlan], terminal: bool) -> Group:
    parts: list[RenderableType] = []
    for job in jobs:
        engine = KINDS[job.engine].title
        head = Text()
        head.append(job.name, "bold")
        head.append(f"  {engine} {job.version}, {_count_cell(job.max_workers, 'worker')} of {job.worker}")
        head.append(f", {environment.jobs[job.name].sla_words}")
        head.append(f", {_total_dollars_cell(job.cost)} a month")
        parts += [
            head,
            _reason_line(f"{_count_cell(job.cores, 'core')}: {job.cores.why}", terminal),
            _reason_line(f"{_count_cell(job.max_workers, 'worker')}: {job.max_workers.why}", terminal),
            _reason_line(_executor_range_text(job), terminal),
            _reason_line(f"network {_figure_cell(job.network)}: {job.network.why}", terminal),
            Padding(_queries_table(job, terminal), (0, 0, 0, 2))
            if terminal
            else _queries_table(job, terminal),
        ]
        parts += [
            _reason_line(f"{query.name}, {reason}", terminal)
            for query in job.queries.values()
            for reason in _query_reasons(query)
        ]
        parts += [_reason_line(f"advice: {line}", terminal) for line in job.advice]
        parts.append(Text(""))
    return Group(*parts[:-1])


def _executor_range_text(job: JobPlan) -> str:
    """Return the range of the job's executors, and the memory that each needs."""
    least, most = job.scaling.min_executors, job.executors
    executors = f"{_figure_cell(most)} {'executor' if most.value == 1 else 'executors'}"
    if least.value != most.value:
        executors = f"{_figure_cell(least)} to {executors}"
    return f"{executors}; {_figure_cell(job.memory)} of {job.memory_gib} GiB: {job.memory.why}"


def _reason_line(text: str, terminal: bool) -> Padding | _PlainTable:
    return Padding(Text(text, "dim"), (0, 0, 0, 2)) if terminal else _PlainTable((text, "text"))


def _queries_table(job: JobPlan, terminal: bool) -> Table | _PlainTable:
    spread = any(query.repartition for query in job.queries.values())
    columns = [("query", "text"), ("trigger", "number"), ("records a batch", "number"), ("a shard", "number")]
    if spread:
        columns.append(("repartition", "number"))
    table = _make_table(terminal, *columns, indent=4)
    for query in job.queries.values():
        trigger = query.trigger_seconds
        row = [
            query.name,
            f"{_origin_mark(trigger)}{trigger.value:g} s",
            _figure_cell(query.records_per_batch),
            _figure_cell(query.records_per_partition),
        ]
        if spread:
            row.append(_figure_cell(query.repartition))
        table.add_row(*row)
    return table


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


def cost_table(plan: Plan, *, terminal: bool) -> Table | _PlainTable:
    """Return the table of a month's bill with the reason for each line."""
    table = _make_table(terminal, ("for", "text"), ("item", "text"), ("$/month", "number"), ("why", "why"))
    groups: list[tuple[str, tuple[CostItem, ...]]] = [
        *((f"stream {each.name}", each.cost) for each in plan.streams.values()),
        *((f"cluster {each.name}", each.cost) for each in plan.clusters.values()),
        *((f"job {each.name}", each.cost) for each in plan.jobs.values()),
        ("shared", plan.shared),
    ]
    for name, items in groups:
        for position, line in enumerate(items):
            shown = _dollars_cell(line.usd, assumed=line.assumed)
            table.add_row(name if position == 0 else "", line.name, shown, line.why)
    sum_ = total_cost(plan)
    everything = count(sum(len(items) for _, items in groups), "item")
    table.add_section()
    table.add_row(
        Text("total", "bold"), "", Text(_dollars_cell(sum_.value, assumed=sum_.assumed), "bold"), everything
    )
    return table


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
