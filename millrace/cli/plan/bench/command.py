"""``millrace bench``: measures the speed of a job's queries with the job's own settings."""

from __future__ import annotations

import json
import platform
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from millrace.benchmark.measurements import Measurements
from millrace.benchmark.run_schedule import log_spaced_limits, schedule_document, schedule_runs
from millrace.cli.extras import require_sandbox_extra
from millrace.cli.plan.bench.report import benchmark_page, summary_tables
from millrace.cli.shared.console import confirm_or_exit, print_rich
from millrace.cli.shared.html_pages import check_page_is_writable, write_page
from millrace.cli.shared.options import (
    AsJson,
    EnvironmentName,
    HtmlPage,
    JobName,
    choose_query_name,
    load_environment_with_job,
)
from millrace.config import Environment, Finding
from millrace.config.document.problems import wrong_option_error
from millrace.config.engines.versions import DEFAULT
from millrace.config.model import KafkaTopic
from millrace.config.queries import OneStreamQueryBase
from millrace.etl.launch.erase_request_and_benchmark_schedule import BenchmarkRun
from millrace.etl.launch.lease_record import FOLDER
from millrace.lifecycle.account.deployed_environment import connect_to_account, split_s3_url
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors
from millrace.lifecycle.jobs.state_machine import run_job_once
from millrace.sizing import plan

if TYPE_CHECKING:
    from millrace.benchmark.result import BenchmarkOutcome

On = Literal["sandbox", "glue", "emr"]


def bench(
    env: EnvironmentName,
    job: JobName,
    query: Annotated[
        str | None, typer.Option(help="The query that reads the topic; needed where the job has several.")
    ] = None,
    smallest: Annotated[int, typer.Option(min=1, help="Smallest limit: records in a batch.")] = 1_000,
    largest: Annotated[int, typer.Option(min=2, help="Largest limit: records in a batch.")] = 32_000,
    levels: Annotated[
        int,
        typer.Option(
            min=3,
            max=12,
            help="Number of limits from the smallest to the largest, evenly spaced on a log scale.",
        ),
    ] = 5,
    partitions: Annotated[
        str,
        typer.Option(metavar="N,N", help="Numbers of partitions to measure, such as 1,4."),
    ] = "1,2",
    cores: Annotated[
        str,
        typer.Option(
            metavar="N,N", help="Sandbox only: numbers of tasks that run at once; each is measured."
        ),
    ] = "1,2",
    repetitions: Annotated[int, typer.Option(min=2, max=20, help="Runs of each limit.")] = 3,
    batches: Annotated[
        int, typer.Option(min=12, max=200, help="Batches of each run, warm-up included.")
    ] = 16,
    sample: Annotated[
        Path | None,
        typer.Option(
            exists=True, dir_okay=False, help="File of example records (JSON lines or CSV) to draw from."
        ),
    ] = None,
    reference: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TABLE=FILE",
            help="CSV or Parquet file with the rows of a table that a query joins. Repeatable.",
        ),
    ] = None,
    on: Annotated[
        On, typer.Option(help="Where to measure: the sandbox, or the engine of the deployed job.")
    ] = "sandbox",
    out: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="Result file. Default: benchmarks/JOB.json, or benchmarks/JOB-spark4.1.json for Spark 4.1.",
        ),
    ] = None,
    html: HtmlPage = None,
    seed: Annotated[
        int,
        typer.Option(
            help="Seed of everything random: order of the runs, records, and the bootstrap of the intervals."
        ),
    ] = 0,
    yes: Annotated[
        bool, typer.Option("--yes", "-y", help="With --on glue or emr: do not ask for confirmation.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Measure the speed of a job's queries and write the result file for `rate: {result: FILE}`.

    Fills a topic of a real broker with records like the job's. The job's queries read it as fast as they can, at rising
    limits, in random order, each time from a new checkpoint. Computes the fixed cost of a batch (a), of a wave of tasks (κ)
    and of a record (b), each with its interval, and compares the prediction of the smaller limits with the largest one. Refuses
    the result if repetitions of a setting disagree.

    With --on glue or --on emr, stops the deployed job, reads its own topic from the beginning into tables that are dropped
    afterwards, and starts the job again.

    [bold]Examples[/bold]

      millrace bench flights --env local

      millrace bench flights --env local --largest 64000 --levels 6 --html bench.html
    """
    if on == "sandbox":
        require_sandbox_extra()
    from millrace.benchmark.result import fit_all_queries

    counts, levels_of_cores = _parse_counts("--partitions", partitions), _parse_counts("--cores", cores)
    if largest <= smallest:
        raise typer.BadParameter(f"--largest {largest} must be more than --smallest {smallest}")
    check_page_is_writable(html)
    environment = load_environment_with_job(env, job)
    known = {n: q for n, q in environment.jobs[job].queries.items() if isinstance(q, OneStreamQueryBase)}
    reading = choose_query_name(environment, job, query, list(known), "a job with a land or direct query")
    reader = known[reading]
    runs = schedule_runs(
        log_spaced_limits(smallest, largest, levels),
        counts,
        repetitions=repetitions,
        batches=batches,
        seed=seed,
    )
    if on == "sandbox":
        from millrace.cli.plan.bench import sandbox as bench_sandbox

        subject, payloads = bench_sandbox.benchmark_job_and_payloads(
            environment, job, reading, reader, sample, reference or [], seed
        )
        measured = bench_sandbox.measure_at_core_counts(subject, payloads, runs, levels_of_cores)
        queries, size = subject.queries, sum(map(len, payloads)) / len(payloads)
    else:
        if sample or reference:
            raise typer.BadParameter(
                "--sample and --reference work with --on sandbox only: a deployed job reads its own records and tables"
            )
        queries, size = (reading,), float(environment.streams[reader.source].traffic.record_size)
        measured = [_measure_on_deployed_job(environment, job, reading, reader, runs, on, yes=yes)]
    worker, architecture = _worker_type_and_processor(environment, job, on)
    result = fit_all_queries(
        measured,
        queries,
        record_bytes=size,
        where=on,
        worker=worker,
        architecture=architecture,
        seed=seed,
    )
    _print_and_write_outcome_or_refuse(environment, job, result, out, html, as_json=as_json)


def _parse_counts(option: str, text: str) -> tuple[int, ...]:
    try:
        counts = tuple(sorted({int(each) for each in text.split(",")}))
    except ValueError:
        counts = ()
    if not counts or counts[0] < 1:
        raise typer.BadParameter(
            f"{option} {text}: must be whole numbers, 1 or more, separated by commas, such as 1,2,4"
        )
    return counts


def _worker_type_and_processor(
    environment: Environment, job: str, on: On
) -> tuple[str, Literal["x86_64", "arm64"]]:
    if on == "sandbox":
        arm = platform.machine() in ("arm64", "aarch64")
        return "a core of this machine", "arm64" if arm else "x86_64"
    return plan(environment).jobs[job].worker, environment.jobs[job].processor_architecture


def _measure_on_deployed_job(
    environment: Environment,
    job: str,
    reading: str,
    query: OneStreamQueryBase,
    runs: Sequence[BenchmarkRun],
    on: On,
    *,
    yes: bool,
) -> Measurements:
    """Run the deployed job once with the schedule, and return its measurements."""
    engine = environment.jobs[job].engine
    if engine != on:
        raise wrong_option_error("--on", on, f"{engine}, which is jobs.{job}.engine, or sandbox")
    if not isinstance(environment.streams[query.source], KafkaTopic):
        raise environment.value_locations.error_of_findings(
            [
                Finding(
                    (*("jobs", job, "queries", reading), "source"),
                    query.source,
                    "a Kafka topic, because the benchmark on an engine cannot read a Kinesis stream",
                )
            ]
        )
    has = plan(environment).streams[query.source].expected_partitions.value
    partitions = max(run.partitions for run in runs)
    if partitions > has:
        raise typer.BadParameter(
            f"--partitions {partitions} is too large: topic {query.source} has only {has} partitions"
        )
    aws = connect_to_account(environment)
    names = aws.names  # with the account that AWS reported, if the file names none
    base = f"{names.checkpoints_url(job)}/{FOLDER}/benchmarks/{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}"
    confirm_or_exit(
        f"Stop {job}, measure {len(runs)} runs on {on} (billed by AWS), and start it again?", yes=yes
    )
    bucket, prefix = split_s3_url(base)
    store = aws.client("s3")
    with translating_aws_errors(f"cannot write the schedule to {base}"):
        store.put_object(
            Bucket=bucket,
            Key=f"{prefix}/schedule.json",
            Body=json.dumps(schedule_document(runs, [reading], has, f"{base}/measured.json")).encode(),
        )
    ended = run_job_once(
        aws,
        job,
        [("--benchmark", f"{base}/schedule.json")],
        progress=lambda line: typer.echo(line, err=True),
    )
    if not ended.succeeded:
        raise AwsError(
            f"run {ended.run} of the benchmark ended as {ended.state}: {ended.detail or 'see its log'}"
        )
    with translating_aws_errors(f"cannot read {base}/measured.json"):
        body = store.get_object(Bucket=bucket, Key=f"{prefix}/measured.json")["Body"].read()
    return Measurements.model_validate_json(body)


def _print_and_write_outcome_or_refuse(
    environment: Environment,
    job: str,
    outcome: BenchmarkOutcome,
    out: Path | None,
    html: Path | None,
    *,
    as_json: bool,
) -> None:
    """Print and write the result; if there were disturbances, write the page, report them and refuse the result."""
    if html is not None:
        write_page(html, benchmark_page(environment, job, outcome))
    if outcome.disturbances:
        for each in outcome.disturbances:
            typer.echo(f"disturbed: {each}", err=True)
        typer.echo(
            "millrace bench: no result was written, because other work on the machine disturbed the "
            "measurement; repeat it on an idle machine",
            err=True,
        )
        raise typer.Exit(1)
    # Each Spark line except the default has its own file, as a job may change between lines.
    line = outcome.result.spark_line
    suffix = "" if line in (None, DEFAULT) else f"-spark{line}"
    target = out or environment.value_locations.root / "benchmarks" / f"{job}{suffix}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    text = outcome.result.model_dump_json(indent=1)
    target.write_text(text + "\n", encoding="utf-8")
    if as_json:
        typer.echo(text)
        return
    print_rich(*summary_tables(outcome))
    typer.echo(
        f"{target} is written; to size the job by it, write `rate: {{result: "
        f"{environment.value_locations.relative_file_name(target.resolve())}}}` into the environment file"
    )
