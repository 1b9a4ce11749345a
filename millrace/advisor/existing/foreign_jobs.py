"""Jobs of Glue and EMR Serverless that Millrace did not deploy: their logs, their settings, their cost.

Calls for reading only: ``glue:GetJob``, ``glue:GetJobRuns`` or ``glue:GetJobRun``, ``emr-serverless:GetApplication``,
``ListJobRuns`` and ``GetJobRun``.
"""

from __future__ import annotations

import argparse
import itertools
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from millrace.advisor.findings.advised_job_keys_and_cost import AdvisedJob
from millrace.advisor.logs import event_parser
from millrace.advisor.logs.event_logs import EventLog, LogLines, aws_errors_as_wrong_option
from millrace.config.aws.pagination import list_all
from millrace.config.document.problems import wrong_option_error
from millrace.config.engines.glue import glue_hourly_bill_items, glue_workers
from millrace.sizing.cost import HOURS, price_name
from millrace.sizing.prices_and_limits import PriceTable, price_regions, price_table_of_region

GIB = 1024**3
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt])?(?:i?b)?", re.IGNORECASE)
_UNITS = {"": 1024**2, "k": 1024, "m": 1024**2, "g": GIB, "t": 1024 * GIB}
"""Spark takes a bare number as MiB."""

COUNT = re.compile(r"[0-9]{1,6}")
"""A number of cores or executors."""

_EMR_CORES, _EMR_MEMORY = "4", "14g"
"""Default size of an EMR Serverless executor (user guide, "Spark job properties")."""

OVERHEAD = 1.10
"""Memory of a Spark worker over its heap: a tenth, ``spark.executor.memoryOverheadFactor``'s default."""


LOOKED = 20
"""Logs that are searched for a run's id, with a request each; older ones are found by their names only."""

_FIRST = 50
"""First events that contain the settings: Spark writes them before any job's."""


@dataclass(frozen=True)
class ForeignJob:
    """A job that Millrace did not deploy.

    Attributes
    ----------
    subject
        Names of its settings, and its cost.
    logs
        Place of its event logs, ``s3://…``.
    run
        Id of the run whose log is wanted; empty for the latest.
    """

    subject: AdvisedJob
    logs: str
    run: str


def look_up_glue_job(client: Any, name: str, region: str, run: str | None = None) -> ForeignJob:
    """Look up a Glue job and one of its runs: the latest, unless one is named.

    Raises
    ------
    ConfigurationError
        There is no job of this name or no such run of it, it may not be read, or it writes no event logs.
    """
    with aws_errors_as_wrong_option(
        "--glue-job", name, "a Glue job of this account and region that you have permission to read"
    ):
        job = client.get_job(JobName=name)["Job"]
        runs = [] if run else client.get_job_runs(JobName=name, MaxResults=1).get("JobRuns", [])
    if run:
        with aws_errors_as_wrong_option("--run", run, f"the id of a run of Glue job {name}"):
            runs = [client.get_job_run(JobName=name, RunId=run)["JobRun"]]
    ran = runs[0] if runs else {}
    # A run may have been started with other arguments than the job's own.
    arguments = {
        **job.get("DefaultArguments", {}),
        **ran.get("Arguments", {}),
        **job.get("NonOverridableArguments", {}),
    }
    logs = arguments.get("--spark-event-logs-path", "")
    if not logs or arguments.get("--enable-spark-ui", "true") != "true":
        raise wrong_option_error(
            "--glue-job",
            name,
            "a job with the arguments --enable-spark-ui true and --spark-event-logs-path "
            "s3://BUCKET/PREFIX, so that it has event logs",
        )
    workers = ran.get("NumberOfWorkers") or job.get("NumberOfWorkers")
    kind = ran.get("WorkerType") or job.get("WorkerType")
    settings = {**arguments, **parse_spark_conf(arguments.get("--conf", ""), first=True)}
    if workers is not None:
        settings["--number-of-workers"] = str(workers)
    priced = {"GlueVersion": job.get("GlueVersion", ""), "WorkerType": kind, "NumberOfWorkers": workers}
    month = glue_run_cost(priced, HOURS * 3600, price_table_or_none(region))
    subject = AdvisedJob(f"Glue job {name}", None if month is None else month.usd, settings, "glue")
    return ForeignJob(subject, logs, run or str(ran.get("Id", "")))


def price_table_or_none(region: str) -> PriceTable | None:
    """Return the prices of a region; ``None`` where none are known."""
    return price_table_of_region(region) if region in price_regions() else None


class RunCost(NamedTuple):
    """Cost of a run.

    Attributes
    ----------
    usd
        In USD.
    at_most
        Whether all its workers were counted, although auto scaling may have removed some.
    """

    usd: float
    at_most: bool


def glue_run_cost(run: Mapping[str, Any], seconds: float, table: PriceTable | None) -> RunCost | None:
    """Return the cost of a run of Glue; ``None`` without prices, and for workers or a version without one.

    Parameters
    ----------
    run
        As Glue describes the job, and the run over it. ``DPUSeconds`` is its use, which Glue tells of runs with auto scaling that
        have ended; without it all workers count for its time.
    seconds
        Of its time.
    """
    workers, kind, version = (
        run.get("NumberOfWorkers"),
        run.get("WorkerType"),
        str(run.get("GlueVersion", "")),
    )
    try:
        (bill,) = glue_hourly_bill_items(version, glue_workers(version)[kind or "G.1X"])
    except (KeyError, ValueError):
        return None  # a version or worker that the tables do not know has no price
    # Jobs without a worker type count in DPUs.
    units = (workers * bill.units if kind and workers else run.get("MaxCapacity")) or 0.0
    if table is None or not (units or run.get("DPUSeconds")):
        return None
    usd = table.usd(price_name(bill)) / 3600
    if run.get("DPUSeconds"):
        return RunCost(run["DPUSeconds"] * usd, at_most=False)
    arguments = {**(run.get("DefaultArguments") or {}), **(run.get("Arguments") or {})}
    scales = arguments.get("--enable-auto-scaling", "false") == "true"
    return RunCost(units * max(seconds, _LEAST_BILLED) * usd, at_most=scales)


_LEAST_BILLED = 60.0
"""Seconds that Glue bills of each run (price page of Glue, 2026-11-16)."""


def look_up_emr_application(client: Any, application: str, region: str, run: str | None = None) -> ForeignJob:
    """Look up an EMR Serverless application and its latest streaming run.

    Raises
    ------
    ConfigurationError
        There is none, it has had no run, it may not be read, or it writes no logs to S3.
    """
    with aws_errors_as_wrong_option(
        "--emr-app", application, "an EMR Serverless application that you have permission to read"
    ):
        app = client.get_application(applicationId=application)["application"]
        if run is None:
            # All pages: 50 runs of mode BATCH may be newer.
            runs = list(list_all(client, "list_job_runs", "jobRuns", applicationId=application))
            streaming = [each for each in runs if each.get("mode") == "STREAMING"] or runs
            if not streaming:
                raise wrong_option_error("--emr-app", application, "an application with at least one job run")
            run = max(streaming, key=lambda each: each["createdAt"])["id"]
        job = client.get_job_run(applicationId=application, jobRunId=run)["jobRun"]
    overrides = job.get("configurationOverrides", {})
    target = _log_uri(overrides) or _log_uri(app)
    if not target:
        raise wrong_option_error(
            "--emr-app",
            application,
            "a run whose monitoringConfiguration has s3MonitoringConfiguration.logUri, because logs in "
            "EMR's own storage cannot be read",
        )
    settings = emr_spark_settings(app, job)
    arm = app.get("architecture") == "ARM64"
    name = job.get("name") or app.get("name") or application
    subject = AdvisedJob(f"EMR job {name}", _emr_monthly_usd(job, settings, region, arm=arm), settings, "emr")
    logs = f"{target.rstrip('/')}/applications/{application}/jobs/{run}"
    return ForeignJob(subject, logs, "")


def find_log_of_run(logs: Sequence[EventLog], run: str) -> EventLog | None:
    """Return the log of a run: by its name, else by its first settings; ``None`` without any.

    Parameters
    ----------
    logs
        The newest first; the settings of the first :data:`LOOKED` are read, too.
    run
        Its id. Glue names a log by the run or by Spark's application, and sets ``spark.glue.JOB_RUN_ID``.
    """
    # The id of another attempt begins with that of the first.
    whole = re.compile(rf"(?<![0-9a-z]){re.escape(run)}(?![0-9a-z_])")
    named = (each for each in logs if whole.search(each.name))
    return next(named, None) or next(
        (each for each in logs[:LOOKED] if run in _spark_settings_of_log(each).values()), None
    )


def _spark_settings_of_log(log: EventLog) -> Mapping[str, str]:
    """Return Spark's settings, which are among a log's first events."""
    for line in itertools.islice(LogLines(log), _FIRST):
        with suppress(ValueError, TypeError):  # a damaged line costs only itself
            event = event_parser.parse_event(line, (event_parser.ENVIRONMENT,))
            if event is not None:
                return dict(event.get("Spark Properties") or {})
    return {}


def _log_uri(holder: Mapping[str, Any]) -> str:
    monitoring = holder.get("monitoringConfiguration") or {}
    return str((monitoring.get("s3MonitoringConfiguration") or {}).get("logUri", ""))


def _emr_monthly_usd(
    job: Mapping[str, Any], settings: Mapping[str, str], region: str, *, arm: bool
) -> float | None:
    """Return the cost of a month at the billed use; before a bill, at the most that its settings allow."""
    if (table := price_table_or_none(region)) is None:
        return None
    used, seconds = job.get("billedResourceUtilization") or {}, job.get("totalExecutionDurationSeconds") or 0
    if used.get("vCPUHour") and seconds:
        return emr_usage_usd(used, table, arm=arm) * HOURS * 3600 / seconds
    executors = settings.get("spark.dynamicAllocation.maxExecutors") or settings.get(
        "spark.executor.instances"
    )
    cores_of = {of: settings.get(f"spark.{of}.cores", _EMR_CORES) for of in ("executor", "driver")}
    if executors is None or not all(COUNT.fullmatch(each) for each in (executors, *cores_of.values())):
        return None
    month = 0.0
    for of, count in (("executor", int(executors)), ("driver", 1)):
        memory = parse_spark_size(settings.get(f"spark.{of}.memory", _EMR_MEMORY)) * OVERHEAD / GIB
        worker = {"vCPUHour": int(cores_of[of]), "memoryGBHour": memory}
        month += count * HOURS * emr_usage_usd(worker, table, arm=arm)
    return month


def emr_usage_usd(used: Mapping[str, float], table: PriceTable, *, arm: bool) -> float:
    """Return the cost in USD of a use of EMR Serverless: ``vCPUHour``, ``memoryGBHour``, ``storageGBHour``."""
    base = f"emr.{'arm64' if arm else 'x86_64'}."
    return (
        used["vCPUHour"] * table.usd(f"{base}vcpu_hour")
        + used.get("memoryGBHour", 0.0) * table.usd(f"{base}gib_hour")
        + used.get("storageGBHour", 0.0) * table.usd("emr.disk_gib_hour")
    )


def emr_spark_settings(app: Mapping[str, Any], job: Mapping[str, Any]) -> dict[str, str]:
    """Return the Spark settings of a run of EMR Serverless: the application's, the run's, and those of its command line."""
    overrides, settings = job.get("configurationOverrides", {}), dict[str, str]()
    for each in (*app.get("runtimeConfiguration", ()), *overrides.get("applicationConfiguration", ())):
        if each.get("classification") == "spark-defaults":
            settings |= each.get("properties", {})
    submit = job.get("jobDriver", {}).get("sparkSubmit", {})
    return settings | parse_spark_conf(submit.get("sparkSubmitParameters", ""))


def parse_spark_size(text: str) -> float:
    """Return the bytes of a size as Spark writes it, such as ``14g``; 0 for an invalid one."""
    match = _SIZE.fullmatch(text.strip())
    return float(match[1]) * _UNITS[(match[2] or "").lower()] if match else 0.0


def parse_spark_conf(text: str, *, first: bool = False) -> dict[str, str]:
    """Return the Spark settings of ``--conf a=b --conf c=d``.

    Parameters
    ----------
    text
        The arguments; Glue's one ``--conf`` argument begins after its first name.
    first
        Whether ``text`` is that argument.
    """
    try:
        words = shlex.split(("--conf " if first else "") + text)
    except ValueError:
        words = text.split()
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--conf", action="append", nargs="?", default=[], const="")
    pairs = [each.partition("=") for each in parser.parse_known_args(words)[0].conf]
    return {key: value for key, equals, value in pairs if equals}
