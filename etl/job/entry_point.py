"""Entry script: runs a job, or the one command that its arguments ask for (``docs/launch-document.md``)."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from ..launch import entry_script_arguments as launch
from ..launch.entry_script_arguments import BackfillRequest, ReplayRequest, ScriptArguments
from ..launch.lease_record import FOLDER
from ..main import DIGEST, matches_digest_in_name
from ..metrics.metric_destinations import NonBlockingConsole, start_metrics_monitor
from ..metrics.publish_to_spark_metrics import SparkGauges
from ..record import hadoop_files
from ..record.batch_accounts import EventReporter
from ..record.errors import AccountsError, ConflictError, NoAnswerError, SinkError, StartError
from ..record.job_run_context import JobRun
from ..repair import backfill_landing, one_off_commands
from ..sources.base import reader_of
from . import benchmark, kill_when_lease_lost, lease, maintenance_schedule, spark_redaction_settings
from .build_queries import build_queries, open_query_for_measurement
from .lease import Lease
from .maintenance_schedule import MaintenanceThread
from .supervise import RetryLimits, Supervisor

_EXCHANGED = (
    "not what was deployed, by the digest in its name; deploy the job again, and find out who wrote there"
)


def main(arguments: Sequence[str]) -> int:
    """Run a job until it is stopped or fails, or run one command instead: replay, backfill, benchmark.

    Parameters
    ----------
    arguments
        Arguments of the script, without its name.

    Returns
    -------
    int
        0 after a requested stop, a bounded run or a completed command; 1 after a failure, also of the start, or a replay of letters
        that do not exist; 2 for a job that must not start.
    """
    options = launch.parse_arguments(arguments)
    spark = spark_redaction_settings.redacting_session()
    with ExitStack() as ending:
        try:
            document = _read_launch_document(spark, options.document)
            job = launch.read_settings_of_document(document, options)
            content = json.loads(document)
            _check_renamed_archive_digest(spark, content)
            # None in tests of the sandbox.
            region = content.get("region")
            if region is not None:
                # AWS clients read these variables; no engine documents that it sets them.
                os.environ.setdefault("AWS_REGION", region)
                os.environ.setdefault("AWS_DEFAULT_REGION", region)
            status = _run_requested_command(
                JobRun(spark, job, options.binds, EventReporter(job.job)), options
            )
            if status is not None:
                return status
            console = NonBlockingConsole(sys.stdout)
            report = EventReporter(job.job, console)
            run = JobRun(spark, job, options.binds, report)
            others = {"spark": SparkGauges(spark).write}
            followers = {
                query.name: follower
                for query in job.queries
                for source in query.sources
                if (follower := reader_of((source,)).commit_listener(run, query.name)) is not None
            }
            monitor = start_metrics_monitor(
                content.get("name") or job.job, run, console, region, others, followers
            )
            ending.callback(monitor.close)
            hold = _open_lease(run)
            unsupervised = ending.enter_context(ExitStack())
            if hold is not None:
                hold.acquire()
                unsupervised.callback(hold.release)
            try:
                queries = build_queries(run)
            except (OSError, CapturedException, Py4JJavaError) as error:
                # Not an error of the settings: such as a full disk or a service that does not answer.
                report.report_failure(error)
                spark.stop()
                return 1
            housekeeping = MaintenanceThread(spark, maintenance_schedule.maintenance_tasks(run), report)
            finish = None
            if job.run_every_seconds is not None:
                done = f"{job.checkpoints}/{FOLDER}/maintenance.json"
                finish = partial(housekeeping.run_due_chores, done, timedelta(seconds=job.run_every_seconds))
            else:
                ending.callback(housekeeping.stop)
                housekeeping.start()
        except StartError as error:
            sys.stderr.write(f"error: {error}\n")
            sys.stderr.flush()
            spark.stop()
            return 2
        supervisor = Supervisor(
            spark,
            report,
            monitor,
            RetryLimits(job.batch_retries),
            lease=hold,
            bounded=finish is not None,
            finish=finish,
        )
        signal.signal(signal.SIGTERM, lambda _number, _frame: supervisor.request_stop())
        signal.signal(signal.SIGINT, lambda _number, _frame: supervisor.request_stop())
        # From here on the supervisor releases the lease, after all queries have stopped writing.
        unsupervised.pop_all()
        status = supervisor.run_to_exit_status(queries)
        spark.stop()
        return status


def _run_requested_command(run: JobRun, arguments: ScriptArguments) -> int | None:
    """Run the requested command instead of the job; return None if there is none."""
    work: Callable[[], int]
    if arguments.replay is not None:
        query, work = arguments.replay.query, partial(_run_replay, run, arguments.replay)
    elif arguments.backfill is not None:
        query, work = arguments.backfill.query, partial(_run_backfill, run, arguments.backfill)
    elif arguments.benchmark is not None:
        schedule = benchmark.read_schedule(run.spark, arguments.benchmark)
        query = ", ".join(schedule.queries)
        work = partial(benchmark.BenchmarkRunner(run, open_query_for_measurement), schedule)
    else:
        return None
    try:
        status = work()
    except (
        AccountsError,
        CapturedException,
        ConflictError,
        OSError,
        Py4JJavaError,
        SinkError,
        NoAnswerError,
    ) as error:
        run.report.report_failure(error, query=query)
        status = 1
    run.spark.stop()
    return status


def _run_replay(run: JobRun, request: ReplayRequest) -> int:
    return one_off_commands.make_replayer(run, request.query)(run.spark, request)


def _run_backfill(run: JobRun, request: BackfillRequest) -> int:
    if request.origin is None:
        return one_off_commands.make_backfiller(run, request.query)(run.spark, request)
    return backfill_landing.make_landing_backfiller(run, request)(run.spark, request)


def _open_lease(run: JobRun) -> Lease | None:
    return lease.lease_of_checkpoints(
        run.job.checkpoints,
        run.spark.sparkContext.applicationId,
        (os.getpid(), kill_when_lease_lost.jvm_process_id(run.spark)),
        lambda holder: run.report.emit("waiting_for_lease", **holder),
    )


def _read_launch_document(spark: SparkSession, url: str) -> str:
    try:
        text = hadoop_files.read_text(spark, url)
    except OSError as error:
        raise StartError(f"launch document: {error}") from error
    if not matches_digest_in_name(url, text.encode()):
        raise StartError(f"launch document: {url}: {_EXCHANGED}")
    return text


def _check_renamed_archive_digest(spark: SparkSession, document: Mapping[str, Any]) -> None:
    """Check the archive of the document where the engine gave its own copy another name, which the entry script cannot check."""
    url = str(document.get("archive", ""))
    if Path(url).name in {Path(entry).name for entry in sys.path} or not DIGEST.search(url):
        return
    try:
        content = hadoop_files.read_bytes(spark, url)
    except OSError as error:
        raise StartError(f"archive: {error}") from error
    if not matches_digest_in_name(url, content):
        raise StartError(f"archive: {url}: {_EXCHANGED}")
