"""Responses of Glue and EMR Serverless in each case."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

GLUE, EMR = "departures", "flights"
JOBS = (GLUE, EMR)

Answer = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One execution.

    Attributes
    ----------
    answers
        By state: the answer to the first try, to the first retry and so on. LocalStack
        gives the same ones again whenever a state is entered again.
    desired_state
        The parameter before the execution; ``None``: there is none.
    by_hand
        Not among those that are executed together: its test does something meanwhile.
    """

    name: str
    job: str
    input: dict[str, Any]
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    desired_state: str | None = None
    by_hand: bool = False

    @property
    def group(self) -> str:
        """Cases of one group want and write the same, so that they may share a parameter."""
        verb = str(self.input["verb"])
        if self.by_hand:
            return self.name
        return verb if verb in ("start", "stop", "drain") else f"asked-{self.desired_state}"


def gives(**content: Any) -> Answer:
    return {"Return": content}


def throws(error: str, cause: str = "no") -> Answer:
    return {"Throw": {"Error": error, "Cause": cause}}


def ago(minutes: float) -> str:
    return (datetime.now(UTC) - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"


def runs(job: str, *found: tuple[str, str, float]) -> Answer:
    """Answer of ListRuns: id, state, minutes since the start."""
    keys = ("Id", "JobRunState", "StartedOn") if job in (GLUE, "on-glue") else ("Id", "State", "CreatedAt")
    return gives(JobRuns=[dict(zip(keys, (run, state, ago(age)), strict=True)) for run, state, age in found])


def look(job: str, state: str, detail: str | None = None) -> Answer:
    key, why = ("JobRunState", "ErrorMessage") if job in (GLUE, "on-glue") else ("State", "StateDetails")
    return gives(JobRun={key: state} | ({why: detail} if detail else {}))


def verb(name: str, **more: Any) -> dict[str, Any]:
    return {"verb": name, "poll_seconds": 1, "patience_seconds": 20, **more}


LONG_AGO = 60 * 24 * 9
BEGUN = gives(JobRunId="new")
ENDED = {GLUE: "FAILED", EMR: "FAILED"}
BUSY = {GLUE: "Glue.ConcurrentRunsExceededException", EMR: "EmrServerless.ConflictException"}
ENDING = {GLUE: "STOPPING", EMR: "CANCELLING"}
SLOWEST_SECONDS = 200
"""Of the batches that the metrics tell of, within the last hours."""


def _both(job: str) -> list[Case]:
    none = [runs(job)]
    old = [runs(job, ("old", ENDED[job], LONG_AGO))]
    running = [runs(job, ("run", "RUNNING", LONG_AGO), ("old", ENDED[job], LONG_AGO + 1))]
    ending = [runs(job, ("run", ENDING[job], LONG_AGO))]
    odd = [runs(job, ("run", "HIBERNATING", LONG_AGO))]
    crashed = [runs(job, *((f"run{n}", ENDED[job], 10.0 * n + 1) for n in range(5)))]
    four = [runs(job, *((f"run{n}", ENDED[job], 10.0 * n + 1) for n in range(4)), ("old", ENDED[job], 61.0))]
    return [
        Case("status-never-asked", job, verb("status"), {"ListRuns": none}),
        Case("status-running", job, verb("status"), {"ListRuns": running}, "running"),
        Case("unknown-verb", job, verb("pause")),
        Case(
            "start",
            job,
            verb("start"),
            {"ListRuns": old, "StartRun": [BEGUN], "LookAtRun": [look(job, "RUNNING")]},
        ),
        Case("start-when-running", job, verb("start"), {"ListRuns": running}),
        Case("start-when-unknown", job, verb("start"), {"ListRuns": odd}),
        Case("start-while-ending", job, verb("start", patience_seconds=10), {"ListRuns": ending}),
        Case(
            "start-beside-another",
            job,
            verb("start", patience_seconds=10),
            {"ListRuns": old, "StartRun": [throws(BUSY[job])]},
        ),
        Case(
            "start-throttled",
            job,
            verb("start", patience_seconds=90),
            {
                "ListRuns": [throws("Any.ThrottlingException", "Rate exceeded"), *none],
                "StartRun": [throws("Any.ThrottlingException", "Rate exceeded")] * 2 + [BEGUN],
                "LookAtRun": [throws("Any.InternalServerException"), look(job, "RUNNING")],
            },
        ),
        Case(
            "start-ends-at-once",
            job,
            verb("start"),
            {"ListRuns": none, "StartRun": [BEGUN], "LookAtRun": [look(job, "FAILED", "no such bucket")]},
        ),
        Case(
            "start-never-runs",
            job,
            verb("start", patience_seconds=10),
            {"ListRuns": none, "StartRun": [BEGUN], "LookAtRun": [look(job, "SCHEDULED")]},
        ),
        Case(
            "start-denied",
            job,
            verb("start"),
            {
                "ListRuns": none,
                "StartRun": [
                    throws(
                        "Glue.AccessDeniedException" if job == GLUE else "EmrServerless.ValidationException"
                    )
                ],
            },
        ),
        Case("stop-when-stopped", job, verb("stop"), {"ListRuns": old}, "running"),
        Case(
            "stop",
            job,
            verb("stop", patience_seconds=10),
            {"ListRuns": running, "StopRun": [gives()]},
            "running",
        ),
        Case("stop-while-ending", job, verb("stop", patience_seconds=10), {"ListRuns": ending}, "running"),
        Case(
            "drain",
            job,
            verb("drain", patience_seconds=10),
            {"ListRuns": running, "StopRun": [gives()]},
            "running",
        ),
        Case("restart-not-wanted", job, verb("restart"), {"ListRuns": old}, "stopped"),
        Case("restart-never-asked", job, verb("restart"), {"ListRuns": old}),
        Case("restart-when-running", job, verb("restart"), {"ListRuns": running}, "running"),
        Case(
            "restart",
            job,
            verb("restart", reason="run old ended as FAILED"),
            {"ListRuns": four, "StartRun": [BEGUN], "LookAtRun": [look(job, "RUNNING")]},
            "running",
        ),
        Case(
            "restart-too-often", job, verb("restart", reason="run0 ended"), {"ListRuns": crashed}, "running"
        ),
        Case(
            "start-too-often-by-hand",
            job,
            verb("start"),
            {"ListRuns": crashed, "StartRun": [BEGUN], "LookAtRun": [look(job, "RUNNING")]},
        ),
        Case(
            "restart-denied",
            job,
            verb("restart"),
            {
                "ListRuns": none,
                "StartRun": [
                    throws(
                        "Glue.InvalidInputException" if job == GLUE else "EmrServerless.ValidationException",
                        "bad",
                    )
                ],
            },
            "running",
        ),
        Case(
            "restart-overtaken-by-stop",
            job,
            verb("restart"),
            {"ListRuns": none, "StartRun": [throws("Any.ThrottlingException")] * 3 + [BEGUN]},
            "running",
            by_hand=True,
        ),
        Case(
            "stop-without-alarms",
            job,
            verb("stop", poll_seconds=4, patience_seconds=15),
            {
                "ListRuns": running,
                "SwitchOffAlarms": [throws("CloudWatch.InternalServiceException")] * 4,
                "StopRun": [gives()],
            },
            "running",
        ),
    ]


CASES = [
    *_both(GLUE),
    *_both(EMR),
    Case(
        "stop-with-grace",
        EMR,
        verb("stop", grace_seconds=7200, patience_seconds=10),
        {"ListRuns": [runs(EMR, ("run", "RUNNING", 5))], "StopRun": [gives()]},
        "running",
    ),
    Case(
        "stop-unmeasured",
        EMR,
        verb("stop", patience_seconds=10),
        {
            "ListRuns": [runs(EMR, ("run", "RUNNING", 5))],
            "Measure": [throws("CloudWatch.InternalServiceException")] * 4,
            "StopRun": [gives()],
        },
        "running",
    ),
    Case(
        "stop-ended-meanwhile",
        EMR,
        verb("stop", grace_seconds=60, patience_seconds=10),
        {
            "ListRuns": [runs(EMR, ("run", "RUNNING", 5))],
            "StopRun": [throws("EmrServerless.ValidationException")],
        },
        "running",
    ),
    Case(
        "drain-too-slow",
        EMR,
        verb("drain"),
        {
            "ListRuns": [runs(EMR, ("run", "RUNNING", 5))],
            "Measure": [
                gives(MetricDataResults=[{"Id": "q0", "Values": [12, 1900.5]}, {"Id": "q1", "Values": []}])
            ],
        },
        "running",
        by_hand=True,
    ),
    Case(
        "many-pages",
        EMR,
        verb("status"),
        {"ListRuns": [{"Return": {**runs(EMR, ("run", "RUNNING", 5))["Return"], "NextToken": "page2"}}]},
        by_hand=True,
    ),
]


BOUNDED = """\
project: turns
account: "111122223333"
streams:
  clicks: {kind: kinesis, traffic: {records_per_second: 50, record_size: 500B}}
jobs:
""" + "".join(
    f"  on-{engine}:\n    engine: {engine}\n    latency: 15m\n    run_every: 10m\n    queries:\n"
    f"      land: {{kind: land, source: clicks, table: {engine}_landed, schema: pipelines/flights/schemas/flight.ddl}}\n"
    for engine in ("glue", "emr")
)
BOUNDED_JOBS = ("on-glue", "on-emr")
ENDED_WELL = {"on-glue": "SUCCEEDED", "on-emr": "SUCCESS"}
EARLY, LATE = 4.0, 12.0
"""Minutes since the start of the newest run, of a period of ten."""


def _bounded(job: str) -> list[Case]:
    well = ENDED_WELL[job]

    def case(name: str, age: float, state: str, ended: str | None, seen: str = "RUNNING") -> Case:
        asked = verb("restart") if ended is None else verb("restart", reason="run old ended", ended=ended)
        answers = {
            "ListRuns": [runs(job, ("old", state, age))],
            "StartRun": [BEGUN],
            "LookAtRun": [look(job, seen)],
        }
        return Case(name, job, asked, answers, "running")

    return [
        case("ended", EARLY, well, well),
        case("ended-after-its-period", LATE, well, well),
        case("ended-badly", EARLY, "FAILED", "FAILED"),
        case("due", LATE, well, None),
        case("due-beside-a-run", LATE, "RUNNING", None),
        case("shorter-than-a-look", LATE, well, None, seen=well),
        Case("status", job, verb("status"), {"ListRuns": [runs(job, ("old", well, EARLY))]}, "running"),
        Case("status-before-any", job, verb("status"), {"ListRuns": [runs(job)]}, "running"),
    ]


BOUNDED_CASES = [case for job in BOUNDED_JOBS for case in _bounded(job)]
