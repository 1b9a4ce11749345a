"""``millrace bench`` in the sandbox: the measured queries, and the runs with their progress."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from pyarrow import csv, parquet

from millrace.benchmark.measurements import Measurements
from millrace.config import Environment, Names
from millrace.config.queries import OneStreamQueryBase
from millrace.config.sinks import KINDS
from millrace.etl.launch.erase_request_and_benchmark_schedule import BenchmarkRun
from millrace.lifecycle.changes.compare_with_deployed import launch_document_in_assembly
from millrace.sandbox import benchmark
from millrace.sandbox import payloads as making
from millrace.sandbox.benchmark import BenchmarkJob
from millrace.sandbox.payloads import records_from_nycflights
from millrace.sandbox.programs import cdk, kafka_broker
from millrace.sandbox.programs.child_processes import RUN, locked_sandbox_without_left_programs
from millrace.sandbox.programs.localstack import ACCOUNT
from millrace.sandbox.records.traffic import TrafficShape, generated_feed

_PAYLOADS = 20_000
"""Number of different records; the topic repeats them."""


def benchmark_job_and_payloads(
    environment: Environment,
    job: str,
    reading: str,
    query: OneStreamQueryBase,
    sample: Path | None,
    reference: Sequence[str],
    seed: int,
) -> tuple[BenchmarkJob, list[bytes]]:
    """Return the queries to measure in the sandbox, and the records that they read."""
    payloads = making.payload_writers_of_query(query, environment.value_locations.root)
    feed = generated_feed(payloads, TrafficShape(per_second=1), seed, sample)
    made = [event.payload for event in feed.events(most=_PAYLOADS)]
    assembly = RUN / "benchmark-cdk.out"
    cdk.synthesise_assembly(environment.name, assembly, ACCOUNT)
    document = launch_document_in_assembly(Names(environment, environment.account or ""), assembly, job)
    files = _parse_reference_files(reference)
    queries: list[str] = [reading]
    tables: dict[str, Any] = {}
    landed = next(q.get("table") for q in document["settings"]["queries"] if q["name"] == reading)
    for each in document["settings"]["queries"]:
        if each["kind"] != "derive" or each["source_table"] != landed:
            continue
        needed = [item["table"] for item in each["enrich"]]
        missing = [table for table in needed if _reference_rows_or_none(table, files) is None]
        if missing:
            short = ", ".join(table.rpartition(".")[2] for table in missing)
            typer.echo(
                f"query {each['name']} is not measured, because it joins {short}; give the table's rows "
                "with --reference TABLE=FILE",
                err=True,
            )
            continue
        if each["state"] is not None or not KINDS[each["sink"]["kind"]].in_catalog:
            why = "it keeps state" if each["state"] is not None else f"its sink is {each['sink']['kind']}"
            typer.echo(f"query {each['name']} is not measured, because {why}", err=True)
            continue
        queries.append(each["name"])
        tables |= {table: _reference_rows_or_none(table, files) for table in needed}
    return BenchmarkJob(document, tuple(queries), tables), made


def _parse_reference_files(options: Sequence[str]) -> dict[str, Path]:
    tables = {}
    for each in options:
        name, separator, path = each.partition("=")
        if not separator or not Path(path).is_file():
            raise typer.BadParameter(
                f"--reference {each}: must be TABLE=FILE, with an existing CSV or Parquet file"
            )
        tables[name] = Path(path)
    return tables


def _reference_rows_or_none(table: str, files: Mapping[str, Path]) -> Any:
    """Return the rows of a reference table, from a file or from the example; None if there are none."""
    name = table.rpartition(".")[2]
    if name in files:
        path = files[name]
        return parquet.read_table(path) if path.suffix == ".parquet" else csv.read_csv(path)
    return (
        records_from_nycflights.read_reference_table(name)
        if name in records_from_nycflights.REFERENCE_TABLES
        else None
    )


def measure_at_core_counts(
    subject: BenchmarkJob, payloads: Sequence[bytes], runs: Sequence[BenchmarkRun], cores: Sequence[int]
) -> list[Measurements]:
    """Run the schedule for each number of cores, and return all measurements."""
    with locked_sandbox_without_left_programs(), kafka_broker.running_broker() as broker:
        levels = benchmark.records_needed_by_partition(runs)
        broker.create_topic(benchmark.TOPIC, len(levels))
        benchmark.fill_topic_and_return_records_sent(broker.bootstrap, payloads, levels)
        moved = _progress_printer(len(runs) * len(cores))
        return [
            benchmark.run_benchmark_schedule(
                subject, runs, broker.bootstrap, cores=level, done=lambda _n, _of: moved()
            )
            for level in cores
        ]


def _progress_printer(total: int) -> Callable[[], None]:
    """Return a function that writes a line for each run, with the remaining time, on standard error."""
    done, started = 0, time.monotonic()

    def print_run_and_remaining_time() -> None:
        nonlocal done
        done += 1
        left = (time.monotonic() - started) / done * (total - done)
        typer.echo(f"run {done} of {total}, about {left:.0f} s left", err=True)

    return print_run_and_remaining_time
