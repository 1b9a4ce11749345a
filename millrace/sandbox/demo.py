"""``make demo``: the flights example is deployed, fed, killed and checked by its ledger."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import Console
from rich.table import Column, Table

from millrace.config import load
from millrace.config.engines.versions import VERSIONS, SparkLine
from millrace.sandbox.localstack_deployment import Sandbox, deploy_sandbox, running_localstack_and_kafka
from millrace.sandbox.one_job_failure_drill import DrillFeed, DrillResult, FailureDrill
from millrace.sandbox.operate_running_sandbox import save_endpoints as keep_record
from millrace.sandbox.payloads import records_from_nycflights
from millrace.sandbox.programs.child_processes import RUN
from millrace.sandbox.programs.history_server import start_sandbox_history_server
from millrace.sandbox.programs.run_launch_document_locally import EVENT_LOGS

Records = Literal["few", "month", "all"]

JOBS = ("departures", "flights")
"""Jobs of the example, which an environment for the demo must have."""

_TELLING = (
    *("carrier", "flight", "route", "delayed", "airline_name"),
    *("dest_name", "plane_model", "temp", "wind_speed", "visib"),
)
"""Columns that show the enrichment beside the records' own."""

_DIRTY_SHARE = 0.01
_SEED = 2013
_LIVE_MOST = 2_000
"""Records at the end that are sent live: enough for a p95, sent in ten seconds."""
_LIVE_SECONDS = 10.0


@dataclass
class PhaseTimer:
    """Timer of the phases of a run, which it shows as they pass."""

    console: Console
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time_phase(self, name: str) -> Iterator[None]:
        """Time one phase."""
        started = time.monotonic()
        self.console.print(f"{name} …")
        yield
        self.seconds[name] = round(time.monotonic() - started, 1)
        self.console.print(f"[green]✓[/] {name} [dim]{self.seconds[name]:.1f} s[/]", highlight=False)


def progress_printer(console: Console) -> Callable[[str, str], None]:
    """Return a function that prints the progress of a drill when its phase changes and every ten seconds."""
    before, at = "", 0.0

    def print_progress(phase: str, counts: str) -> None:
        nonlocal before, at
        if phase != before or time.monotonic() - at > 10:
            before, at = phase, time.monotonic()
            console.print(f"  {phase}: {counts}")

    return print_progress


def write_environment_with_spark_version(environment: str, line: SparkLine) -> Path:
    """Write an environment that extends another one and whose jobs run on a Spark line.

    Returns
    -------
    Path
        Its file. A job keeps its engine if that has a version of the line.
    """
    file = RUN / f"spark{line.name.replace('.', '')}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    over: dict[str, dict[str, str | None]] = {}
    for name, job in load(environment).jobs.items():
        versions = [each for each in VERSIONS if each.spark_line == line]
        version = next((each for each in versions if each.engine == job.engine), versions[0])
        over[name] = {"engine": version.engine, "version": version.name}
        if version.engine != job.engine and "worker" in job.model_fields_set:
            over[name]["worker"] = None  # another engine has other workers: the plan chooses
    file.write_text(json.dumps({"extends": environment, "jobs": over}))
    return file


def feed_by_job(records: Records) -> dict[str, DrillFeed]:
    """Return the records of each job: Kinesis gets ten days (LocalStack slows down with volume), Kafka a month or all."""
    kinesis = records_from_nycflights.read_departures(days=2 if records == "few" else 10)
    kafka = (
        records_from_nycflights.read_departures(days=5)
        if records == "few"
        else records_from_nycflights.read_departures(month=1 if records == "month" else None)
    )
    return dict(zip(JOBS, (_feed_of_table(kinesis), _feed_of_table(kafka)), strict=True))


def _feed_of_table(table: pa.Table) -> DrillFeed:
    events = list(records_from_nycflights.flight_records(table, dirty_share=_DIRTY_SHARE, seed=_SEED))
    live = min(_LIVE_MOST, len(events) // 5)
    return DrillFeed(backlog=events[:-live], live=events[-live:], live_per_second=live / _LIVE_SECONDS)


def exit_status_after_demo(console: Console, *, environment: str, records: Records, keep: bool) -> int:
    """Run the demo; print its one JSON line last.

    Returns
    -------
    int
        0 only if nothing was lost or duplicated and every dead letter is byte-identical.
    """
    phases = PhaseTimer(console)
    with running_servers_as_phase(phases, keep=keep) as (stack, broker):
        # Only now: no other demo uses them any more.
        for leftover in (RUN / "jobs", EVENT_LOGS):
            shutil.rmtree(leftover, ignore_errors=True)
        with phases.time_phase(f"deploy environment {environment} to LocalStack"):
            sandbox = deploy_sandbox(environment, stack, broker)
        outcomes = []
        for job, feed in feed_by_job(records).items():
            engine = sandbox.environment.jobs[job].engine
            with phases.time_phase(f"job {job} ({engine}): send, run, kill -9, run again, check"):
                drill = FailureDrill(sandbox, job, feed, seed=_SEED, report=progress_printer(console))
                outcomes.append(drill.run())
            outcomes[-1].ledger.write(RUN / "ledgers" / f"{job}.parquet")
        for outcome in outcomes:
            _print_example_rows_and_dead_letter(console, sandbox, outcome)
        _print_phase_seconds(console, phases)
        if keep:
            _start_history_server_and_print_addresses(console, sandbox)
        summary = demo_summary(outcomes)
    console.print_json(json.dumps(summary), indent=None) if console.is_terminal else console.out(
        json.dumps(summary)
    )
    return 0 if all(outcome.account.exact for outcome in outcomes) else 1


@contextmanager
def running_servers_as_phase(phases: PhaseTimer, *, keep: bool) -> Iterator[Any]:
    """Start the servers as a timed phase; after a failure they are stopped, even with ``keep``."""
    with ExitStack() as stack:
        with phases.time_phase("start LocalStack and Kafka"):
            pair = stack.enter_context(running_localstack_and_kafka(keep=keep))
        yield pair


def demo_summary(outcomes: list[DrillResult]) -> dict[str, Any]:
    """Return the demo's closing JSON object: the sums of all jobs, with one entry per job below ``jobs``."""
    accounts = [outcome.account for outcome in outcomes]
    return {
        "produced": sum(a.produced for a in accounts),
        "landed": sum(a.landed for a in accounts),
        "dead_letters": sum(a.dead_letters for a in accounts),
        "lost": sum(a.lost + a.derived_lost for a in accounts),
        "duplicated": sum(a.duplicated + a.derived_duplicated for a in accounts),
        "dead_letters_altered": sum(a.altered + a.misjudged for a in accounts),
        "unknown": sum(a.unknown for a in accounts),
        "rows_per_second": round(sum(o.accounted for o in outcomes) / sum(o.land_seconds for o in outcomes)),
        "latency_p95_seconds": max(o.latency_p95_seconds for o in outcomes),
        "recovery_seconds": max(o.recovery_seconds for o in outcomes),
        "jobs": {
            o.job: {
                "produced": o.account.produced,
                "landed": o.account.landed,
                "derived": o.account.derived,
                "dead_letters": o.account.dead_letters,
                "rows_per_second": o.rows_per_second,
                "latency_p95_seconds": o.latency_p95_seconds,
                "latency_records": o.latency_records,
                "recovery_seconds": o.recovery_seconds,
            }
            for o in outcomes
        },
    }


def _print_example_rows_and_dead_letter(console: Console, sandbox: Sandbox, outcome: DrillResult) -> None:
    catalog = sandbox.spark.catalog(sandbox.names.warehouse_url)
    rows = catalog.load_table(outcome.derived_table).scan(limit=3).to_arrow()
    shown = [name for name in rows.column_names if not name.startswith("_")]
    picked = [name for name in _TELLING if name in shown] or shown[:8]
    table = Table(
        *(Column(name, overflow="fold") for name in picked),
        title=f"three rows of {outcome.derived_table}",
        title_justify="left",
        show_lines=False,
    )
    for row in rows.select(picked).to_pylist():
        table.add_row(*("" if row[name] is None else str(row[name]) for name in picked))
    console.print(table)
    letters = (
        catalog.load_table(outcome.landed_table)
        .scan(row_filter="_error is not null", selected_fields=("_id", "_stage", "_error", "_bytes"))
        .to_arrow()
    )
    dead = letters.filter(pc.greater(pc.binary_length(letters["_bytes"]), 0)).slice(0, 1).to_pylist()
    for letter in dead:
        console.print(f"an example of the dead letters in {outcome.landed_table}:")
        for name, value in (
            ("identity", letter["_id"]),
            ("reason", f"stage {letter['_stage']}: {letter['_error']}"),
            ("bytes", repr(letter["_bytes"][:60]) + (" …" if len(letter["_bytes"]) > 60 else "")),
            (
                "replay",
                f"millrace replay {outcome.job} --env {sandbox.environment.name} --id {letter['_id']}",
            ),
        ):
            console.print(f"  {name:<9}{value}", highlight=False, markup=False, soft_wrap=True)


def _print_phase_seconds(console: Console, phases: PhaseTimer) -> None:
    table = Table(
        "phase", Column("seconds", justify="right"), title="where the time went", title_justify="left"
    )
    for name, seconds in phases.seconds.items():
        table.add_row(name, f"{seconds:.1f}")
    console.print(table)


def _start_history_server_and_print_addresses(console: Console, sandbox: Sandbox) -> None:
    history = start_sandbox_history_server()
    keep_record(sandbox)
    console.print("these servers keep running (stop them with `millrace sandbox stop`):")
    for what, where in (
        ("history server", history),
        ("S3 and the other services", sandbox.stack.endpoint),
        ("Kafka", sandbox.kafka.bootstrap),
    ):
        console.print(f"  {what}: {where}", highlight=False)
