"""The streaming jobs of an account on Glue and EMR Serverless: size, use of the last days, last batch, largest finding.

Calls for reading only, beside those of :mod:`millrace.advisor.existing.foreign_jobs`: ``glue:GetJobs``, ``ListJobs`` and ``GetJobRuns``,
``emr-serverless:ListApplications`` and ``ListJobRuns``, and S3's list and get for event logs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from millrace.advisor.advise import advise
from millrace.advisor.existing.foreign_jobs import (
    ForeignJob,
    emr_spark_settings,
    emr_usage_usd,
    find_log_of_run,
    glue_run_cost,
    look_up_emr_application,
    look_up_glue_job,
    price_table_or_none,
)
from millrace.advisor.existing.read_job_to_import import Client
from millrace.advisor.findings.model import Finding
from millrace.advisor.logs.application_history_model import History
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.config.aws.pagination import list_all
from millrace.config.base import grouped
from millrace.config.document.problems import ConfigurationError
from millrace.config.engines import ended_run_states
from millrace.sizing.prices_and_limits import PriceTable

STREAMING = "gluestreaming"
"""``Command.Name`` of Glue's streaming jobs; a query that a job of another type runs cannot be told from a batch job."""

UNREAD = (ClientError, HTTPClientError)
"""Errors that cost what was asked alone: a refusal, and a connection that was lost."""


class UsageWindow(NamedTuple):
    """Time whose use is counted."""

    begins: datetime
    ends: datetime

    def share_inside(self, begun: datetime, ended: datetime | None) -> float:
        """Return the share of a run that is inside; a run without an end goes on to the window's."""
        until = ended or self.ends
        whole = (until - begun).total_seconds()
        if whole <= 0:
            return float(self.begins <= begun <= self.ends)
        inside = (min(until, self.ends) - max(begun, self.begins)).total_seconds()
        return max(0.0, inside) / whole


@dataclass(frozen=True)
class ScannedJob:
    """A streaming job of an account.

    Attributes
    ----------
    engine, name
        ``glue`` or ``emr``, and its name there; on EMR Serverless runs of one name are one job.
    source
        As ``millrace import`` takes it.
    version, workers
        Engine version, and the most workers, in words; empty where unknown.
    state
        State of the latest run; empty without one.
    run
        Its id.
    usd
        Cost of its use within the window in USD; ``None`` where the use or a price is unknown.
    at_most
        Whether ``usd`` counts workers that auto scaling may have removed: Glue tells the use of a run at its end only.
    last_batch
        Epoch seconds at which its last batch ended, by its event log; ``None`` without a log.
    finding
        The largest finding of its log.
    history
        Its log, for a plan.
    plan_usd
        Cost of its own plan in USD a month; ``None`` without a plan.
    notes
        What is not known, and why.
    """

    engine: str
    name: str
    source: str
    version: str = ""
    workers: str = ""
    state: str = ""
    run: str = ""
    usd: float | None = None
    at_most: bool = False
    last_batch: float | None = None
    finding: Finding | None = None
    history: History | None = None
    plan_usd: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def is_running(self) -> bool:
        """Return whether its latest run goes on."""
        return bool(self.state) and self.state not in ended_run_states.ALL


def scan_glue_jobs(
    client: Client, region: str, window: UsageWindow, tags: Mapping[str, str]
) -> Iterator[ScannedJob]:
    """Yield the streaming jobs on Glue.

    Raises
    ------
    ClientError
        Jobs may not be listed.
    """
    glue, table = client("glue"), price_table_or_none(region)
    named = set(list_all(glue, "list_jobs", "JobNames", Tags=dict(tags))) if tags else None
    for job in list_all(glue, "get_jobs", "Jobs"):
        if job.get("Command", {}).get("Name") == STREAMING and (named is None or job["Name"] in named):
            yield _scanned_glue_job(glue, job, window, table)


def _scanned_glue_job(
    glue: Any, job: Mapping[str, Any], window: UsageWindow, table: PriceTable | None
) -> ScannedJob:
    name, version = str(job["Name"]), str(job.get("GlueVersion", ""))
    workers = f"{job['NumberOfWorkers']} {job.get('WorkerType', '')}" if job.get("NumberOfWorkers") else ""
    scanned = ScannedJob("glue", name, f"glue:{name}", version, workers.strip())
    usd: float | None = 0.0
    latest: Mapping[str, Any] = {}
    at_most = False
    try:
        for run in list_all(glue, "get_job_runs", "JobRuns", JobName=name):
            latest = latest or run
            begun, ended = run.get("StartedOn"), run.get("CompletedOn")
            share = window.share_inside(begun, ended) if begun else 0.0  # one that waits has not begun
            if not share:
                continue
            whole = ((ended or window.ends) - begun).total_seconds()
            cost = glue_run_cost({**job, **run}, whole, table)
            usd = None if usd is None or cost is None else usd + share * cost.usd
            at_most |= cost is not None and cost.at_most
    except UNREAD as error:
        return replace(scanned, notes=(f"its runs cannot be listed ({error})",))
    return replace(
        scanned,
        state=str(latest.get("JobRunState", "")),
        run=str(latest.get("Id", "")),
        usd=usd,
        at_most=at_most and bool(usd),
    )


def scan_emr_jobs(
    client: Client, region: str, window: UsageWindow, tags: Mapping[str, str]
) -> Iterator[ScannedJob]:
    """Yield the streaming jobs on EMR Serverless: the runs of one name in one application.

    Raises
    ------
    ClientError
        Applications may not be listed.
    """
    emr, table = client("emr-serverless"), price_table_or_none(region)
    for listed in list_all(emr, "list_applications", "applications"):
        if str(listed.get("type", "")).lower() != "spark":
            continue
        try:
            app = emr.get_application(applicationId=listed["id"])["application"]
            if not tags.items() <= app.get("tags", {}).items():
                continue
            runs = list_all(emr, "list_job_runs", "jobRuns", applicationId=listed["id"], mode="STREAMING")
            by_name = grouped(
                (str(each.get("name") or app.get("name") or listed["id"]), each) for each in runs
            )
        except UNREAD as error:
            name = str(listed.get("name") or listed["id"])
            yield ScannedJob(
                "emr", name, f"emr:{listed['id']}/", notes=(f"its runs cannot be listed ({error})",)
            )
            continue
        for name, of in by_name.items():
            yield _scanned_emr_job(emr, app, name, of, window, table)


def _scanned_emr_job(
    emr: Any,
    app: Mapping[str, Any],
    name: str,
    runs: Sequence[Mapping[str, Any]],
    window: UsageWindow,
    table: PriceTable | None,
) -> ScannedJob:
    latest = max(runs, key=lambda each: each["createdAt"])
    job = ScannedJob(
        "emr",
        name,
        f"emr:{latest['applicationId']}/{latest['id']}",
        str(app.get("releaseLabel", "")),
        state=str(latest["state"]),
        run=str(latest["id"]),
    )
    usd: float | None = 0.0
    settings: Mapping[str, str] = {}
    try:
        for each in runs:
            ended = each["updatedAt"] if each["state"] in ended_run_states.ALL else None
            share = window.share_inside(each["createdAt"], ended)
            if not share and each is not latest:
                continue
            run = emr.get_job_run(applicationId=each["applicationId"], jobRunId=each["id"])["jobRun"]
            if each is latest:
                settings = emr_spark_settings(app, run)
            used = run.get("billedResourceUtilization") or run.get("totalResourceUtilization") or {}
            arm = app.get("architecture") == "ARM64"
            cost = emr_usage_usd(used, table, arm=arm) if table is not None and used.get("vCPUHour") else None
            if share:
                usd = None if usd is None or cost is None else usd + share * cost
    except UNREAD as error:
        return replace(job, notes=(f"its usage cannot be read ({error})",))
    most = settings.get("spark.dynamicAllocation.maxExecutors") or settings.get("spark.executor.instances")
    workers = f"{most} executors of {settings.get('spark.executor.cores', '4')} vCPU" if most else ""
    return replace(job, usd=usd, workers=workers)


def with_event_log_figures(job: ScannedJob, client: Client, region: str) -> ScannedJob:
    """Read the event log of a job's latest run, and add what it tells."""
    if not job.run:
        return job if job.notes else replace(job, notes=("it never ran",))
    try:
        subject = look_up_foreign_job(job, client, region)
        logs = find_event_logs(subject.logs, client("s3"))
        # EMR has a prefix for each run; Glue's jobs share one.
        log = find_log_of_run(logs, job.run) if job.engine == "glue" else logs[0]
        history = None if log is None else read_history(log)
    except (ConfigurationError, ClientError, BotoCoreError) as error:
        said = (
            "; ".join(each.allowed for each in error.problems)
            if isinstance(error, ConfigurationError)
            else str(error)
        )
        return replace(job, notes=(*job.notes, f"no event log: needs {said}"))
    if history is None or not history.queries:
        return replace(
            job, notes=(*job.notes, f"no event log of run {job.run} with a streaming query at {subject.logs}")
        )
    advice = advise(history, subject.subject)
    ends = [each.batches[-1].ended_at for each in history.queries if each.batches]
    return replace(
        job,
        last_batch=max(ends, default=None),
        finding=next(iter(advice.findings), None),
        history=history,
        notes=(*job.notes, *((f"times are not judged: {advice.disturbed}",) if advice.disturbed else ())),
    )


def look_up_foreign_job(job: ScannedJob, client: Client, region: str) -> ForeignJob:
    """Look up the settings and the logs of a job's latest run.

    Raises
    ------
    ConfigurationError
        It may not be read, or writes no event logs.
    """
    if job.engine == "glue":
        return look_up_glue_job(client("glue"), job.name, region, job.run)
    application, _, run = job.source.removeprefix("emr:").partition("/")
    return look_up_emr_application(client("emr-serverless"), application, region, run)
