"""Simulated Glue and EMR Serverless that start and stop runs in seconds and publish metrics.

They answer over HTTP as the services do; botocore reads them. A run is running when it is
looked at, and one that was asked to end is seen ending before it has ended.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.http_servers import Handler, served

LOOKS_WHILE_ENDING = 1
"""How often a run that was asked to end is seen ending."""

Answer = tuple[int, dict[str, Any]]


@dataclass
class Run:
    """One run of a job, whatever the engine."""

    id: str
    job: str
    token: str
    begun: float
    driver: dict[str, Any] = field(default_factory=dict)
    looks_left: int | None = None
    """Of a run that was asked to end."""

    crashed: bool = False
    once: int | None = None
    """Looks until a run ends by itself: one that has something else to do than to run on."""

    @property
    def phase(self) -> str:
        if self.crashed:
            return "crashed"
        if self.once is not None and self.once <= 0:
            return "done"
        if self.looks_left is None:
            return "running"
        return "ending" if self.looks_left > 0 else "ended"


OVER = ("ended", "crashed", "done")
GLUE_STATES = {
    "running": "RUNNING", "ending": "STOPPING", "ended": "STOPPED", "crashed": "FAILED", "done": "SUCCEEDED",
}  # fmt: skip
EMR_STATES = {
    "running": "RUNNING", "ending": "CANCELLING", "ended": "CANCELLED", "crashed": "FAILED", "done": "SUCCESS",
}  # fmt: skip


class RefusedError(Exception):
    """What a service says instead of an answer."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code, self.status = code, status


@dataclass
class Engines:
    """All runs, and what was asked.

    Attributes
    ----------
    plays
        Called with a job's name when one of its runs begins to run: writes what the job would.
    asked
        Action and parameters of every call that changes something, in order.
    seen
        The states in which a run was shown, by its id, without repetition.
    """

    plays: Callable[[str], None] = lambda _: None
    measures: Callable[[str], None] = lambda _: None
    """Called with the URL of a benchmark's schedule when a run begins that is to measure."""

    replays: Callable[[str], None] = lambda _: None
    """Called with the job's name when a run begins that is to replay dead letters."""

    runs: dict[str, Run] = field(default_factory=dict)
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    seen: dict[str, list[str]] = field(default_factory=dict)
    stopped_applications: set[str] = field(default_factory=set)
    tables: dict[str, str] = field(default_factory=dict)
    """Of the Glue Data Catalog: URL of the metadata file, by table."""

    url: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _played: set[str] = field(default_factory=set)

    def calls(self, action: str) -> list[dict[str, Any]]:
        return [given for name, given in self.asked if name == action]

    def crash(self, job: str) -> str:
        """End the run of a job in a way that nobody asked for; return its id."""
        with self._lock:
            (run,) = self._live(job)
            run.crashed = True
            return run.id

    def live(self, job: str) -> list[str]:
        """Ids of the runs of a job that have not ended."""
        with self._lock:
            return [run.id for run in self._live(job)]

    def _of(self, job: str) -> list[Run]:
        return sorted((run for run in self.runs.values() if run.job == job), key=lambda r: -r.begun)

    def _show(self, run: Run, states: dict[str, str]) -> str:
        phase = run.phase
        if run.looks_left:
            run.looks_left -= 1
        if run.once:
            run.once -= 1
        states_seen = self.seen.setdefault(run.id, [])
        if not states_seen or states_seen[-1] != states[phase]:
            states_seen.append(states[phase])
        if phase == "running" and run.id not in self._played:
            self._played.add(run.id)
            self.plays(run.job)
        return states[phase]

    def _begin(self, job: str, token: str, name: str) -> Run:
        run = Run(f"{len(self.runs):04d}{name}", job, token, time.time())
        self.runs[run.id] = run
        return run

    def _once(self, run: Run, arguments: list[str]) -> None:
        """Let a run end by itself that was given something to do."""
        if "--backfill" in arguments:
            run.once = LOOKS_WHILE_ENDING
        if "--replay" in arguments:
            run.once = 0
            self.replays(run.job)
        if "--benchmark" in arguments:
            run.once = 0
            self.measures(arguments[arguments.index("--benchmark") + 1])

    def _live(self, job: str) -> list[Run]:
        return [run for run in self._of(job) if run.phase not in OVER]

    # ---- Glue: one address, the action in a header ----

    def glue(self, action: str, given: dict[str, Any]) -> dict[str, Any]:
        if action == "GetTable":
            name = f"{given['DatabaseName']}.{given['Name']}"
            if name not in self.tables:
                raise RefusedError("EntityNotFoundException", f"Table {name} not found.")
            parameters = {"table_type": "ICEBERG", "metadata_location": self.tables[name]}
            return {"Table": {"Name": given["Name"], "Parameters": parameters}}
        job = str(given["JobName"])
        if action == "GetJobRuns":
            return {"JobRuns": [self._glue_run(run) for run in self._of(job)[: given["MaxResults"]]]}
        if action == "GetJobRun":
            return {"JobRun": self._glue_run(self.runs[given["RunId"]])}
        self.asked.append((action, given))
        if action == "StartJobRun":
            if self._live(job):
                raise RefusedError("ConcurrentRunsExceededException", f"Concurrent runs exceeded for {job}")
            run = self._begin(job, "", "jr")
            arguments = given.get("Arguments", {})
            self._once(run, [part for pair in arguments.items() for part in pair])
            return {"JobRunId": run.id}
        if action == "BatchStopJobRun":
            for run in given["JobRunIds"]:
                self.runs[run].looks_left = LOOKS_WHILE_ENDING
            return {
                "SuccessfulSubmissions": [{"JobName": job, "JobRunId": run} for run in given["JobRunIds"]],
                "Errors": [],
            }
        raise RefusedError("InvalidInputException", f"no such action: {action}")

    def _glue_run(self, run: Run) -> dict[str, Any]:
        return {
            "Id": run.id,
            "JobName": run.job,
            "JobRunState": self._show(run, GLUE_STATES),
            "StartedOn": run.begun,
        }

    # ---- EMR Serverless: the action in method and path ----

    def emr(self, method: str, path: str, query: dict[str, str], given: dict[str, Any]) -> dict[str, Any]:
        match = re.fullmatch(r"/applications/([^/]+)(?:/(jobruns|stop)(?:/([^/]+))?)?", path)
        assert match, f"{method} {path}"
        application, part, run = match.groups()
        if (method, part) == ("GET", None):
            state = "STOPPED" if application in self.stopped_applications else "STARTED"
            return {"application": {"applicationId": application, "state": state}}
        if (method, part) == ("POST", "stop"):
            self.asked.append(("StopApplication", {"applicationId": application}))
            if [each for each in self.runs.values() if each.phase not in OVER and each.token]:
                raise RefusedError("ValidationException", "application has job runs")
            self.stopped_applications.add(application)
            return {}
        if method == "GET" and run is None:
            runs = [each for each in sorted(self.runs.values(), key=lambda r: -r.begun) if each.token]
            return {"jobRuns": [self._emr_run(each, application) for each in runs]}
        if method == "GET":
            return {"jobRun": self._emr_run(self.runs[run], application)}
        if method == "POST":
            return self._emr_start(application, given)
        assert method == "DELETE", method
        self.asked.append(("CancelJobRun", {"jobRunId": run, **query}))
        if run not in self.runs or self.runs[run].phase in ("ending", *OVER):
            raise RefusedError("ValidationException", f"job run {run} is not running")
        self.runs[run].looks_left = LOOKS_WHILE_ENDING
        return {"applicationId": application, "jobRunId": run}

    def _emr_start(self, application: str, given: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(("StartJobRun", given))
        self.stopped_applications.discard(application)
        same = [run for run in self.runs.values() if run.token == given["clientToken"]]
        run = same[0] if same else self._begin(given["name"], given["clientToken"], "emr")
        run.driver = given["jobDriver"]
        self._once(run, run.driver["sparkSubmit"]["entryPointArguments"])
        return {"applicationId": application, "jobRunId": run.id, "arn": f"arn:aws:emr-serverless:::{run.id}"}

    def _emr_run(self, run: Run, application: str) -> dict[str, Any]:
        return {
            "applicationId": application,
            "id": run.id,
            "jobRunId": run.id,
            "name": run.job,
            "arn": f"arn:aws:emr-serverless:::{run.id}",
            "createdBy": "test",
            "createdAt": run.begun,
            "updatedAt": run.begun,
            "executionRole": "test",
            "state": self._show(run, EMR_STATES),
            "stateDetails": "",
            "releaseLabel": "emr-7.13.0",
            "jobDriver": run.driver,
        }

    def answer(self, method: str, url: str, target: str, body: bytes) -> Answer:
        given = json.loads(body) if body else {}
        parts = urlsplit(url)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        with self._lock:
            try:
                if target:
                    return 200, self.glue(target.rpartition(".")[2], given)
                return 200, self.emr(method, parts.path, query, given)
            except RefusedError as refusal:
                return refusal.status, {"__type": refusal.code, "message": str(refusal)}


@contextmanager
def serving(engines: Engines) -> Iterator[Engines]:
    """Serve the two on a port of their own."""

    class Api(Handler):
        def _answer(self) -> None:
            action = self.headers.get("X-Amz-Target", "")
            status, content = engines.answer(self.command, self.path, action, self.body())
            errors = {} if status == 200 else {"x_amzn_ErrorType": content["__type"]}
            told = json.dumps(content).encode()
            self.reply(status, told, Content_Type="application/x-amz-json-1.1", **errors)

        do_GET = do_POST = do_DELETE = _answer

    with served(Api) as engines.url:
        yield engines
