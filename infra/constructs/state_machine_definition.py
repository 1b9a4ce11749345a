"""What the state machine of a job does, in Amazon States Language with JSONata.

One skeleton for both engines: a wish is written down, the engine's runs are listed,
and one place decides what follows from both. An engine brings the four calls that
differ (list, start, look, stop). Nothing here knows CDK: the result is a plain
``dict`` that a test runs as it stands. Why it is built this way:
``docs/adr/0300-one-state-machine-per-job.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

VERBS = ("start", "stop", "drain", "status", "restart")

SHORTEST_GRACE_SECONDS, LONGEST_GRACE_SECONDS = 15, 1800
"""What ``CancelJobRun`` takes as ``shutdownGracePeriodInSeconds`` (EMR Serverless API reference)."""

_POLL_SECONDS = 15
_PATIENCE_SECONDS = 2700
"""How long an end or a start is waited for: the longest grace period and a quarter of an hour."""

_HOUR_MS = 3_600_000

_NO_PARAMETER = ("Ssm.ParameterNotFoundException", "SSM.ParameterNotFoundException")
"""As Step Functions and as LocalStack write it."""

State = dict[str, Any]


@dataclass(frozen=True)
class Engine:
    """What an engine brings.

    Attributes
    ----------
    list_runs, start_run, look_at_run, stop_run
        Task states, without their retries, catches and ``Next``. ``list_runs`` appends
        ``{id, state, at}`` of each run to ``$runs`` and sets ``$token`` to the next page's
        token or ``''``. ``start_run`` sets ``$run``. ``look_at_run`` sets ``$state`` and
        ``$detail`` of ``$run``. ``stop_run`` asks the runs in ``$going`` to end.
    ended, ending
        States of a run that has ended, and of one that was asked to. Every other one,
        known or not, counts as running: a second run on a checkpoint would destroy it.
    busy
        Errors of ``start_run`` which say that another run is in the way.
    gone
        Errors of ``stop_run`` which say that the run has ended in the meantime.
    permanent
        Errors that no retry mends.
    measure
        States that find the slowest recent batch, before ``StopRun``; they set ``$grace``.
    """

    list_runs: State
    start_run: State
    look_at_run: State
    stop_run: State
    ended: tuple[str, ...]
    ending: tuple[str, ...]
    busy: tuple[str, ...]
    gone: tuple[str, ...]
    permanent: tuple[str, ...]
    measure: dict[str, State]


def definition(
    engine: Engine, *, job: str, parameter: str, topic: str, starts_per_hour: int, default_grace_seconds: int
) -> dict[str, Any]:
    """Write a job's state machine.

    Its input is ``{"verb": ..., "reason": ..., "grace_seconds": ..., "patience_seconds": ...,
    "poll_seconds": ...}``, of which only ``verb`` (of :data:`VERBS`) is needed. It succeeds
    with ``{"job", "outcome", "message", "wish", "run", "state", "starts_last_hour"}``, or fails
    with an error named ``Millrace...`` or the service's own.

    Parameters
    ----------
    engine
        The calls of the job's engine.
    job
        The job's deployed name, for messages.
    parameter
        Name of the SSM parameter that holds what people want: ``running`` or ``stopped``.
    topic
        ARN of the topic that hears when a job cannot be started again.
    starts_per_hour
        After so many runs within an hour, whoever started them, ``restart`` gives up.
    default_grace_seconds
        Grace period of ``stop`` where no batch could be measured.
    """
    write = _Writer(engine, parameter)
    states: dict[str, State] = {
        "Begin": {
            "Comment": "Read the input, with a value for whatever was left out",
            "Type": "Pass",
            "Assign": {
                "verb": _given("verb", "''"),
                "reason": _given("reason", "'asked for'"),
                "poll": _given("poll_seconds", str(_POLL_SECONDS)),
                "deadline": _expr(
                    f"$millis() + 1000 * ({_bare('patience_seconds', str(_PATIENCE_SECONDS))})"
                ),
                # 0: not given, to be measured.
                "grace": _expr(
                    f"$exists($states.input.grace_seconds) ? $max([{SHORTEST_GRACE_SECONDS}, "
                    f"$min([{LONGEST_GRACE_SECONDS}, $states.input.grace_seconds])]) : "
                    f"($states.input.verb = 'drain' ? {LONGEST_GRACE_SECONDS} : 0)"
                ),
                "defaultGrace": default_grace_seconds,
                "run": "",
                "state": "",
                "detail": "",
                "wish": "stopped",
                "error": "",
                "cause": "",
            },
            "Next": "WhichVerb",
        },
        "WhichVerb": _choice(
            ("$verb = 'start'", "WantRunning"),
            ("$verb in ['stop', 'drain']", "WantStopped"),
            ("$verb = 'restart'", "Settle"),
            ("$verb = 'status'", "ReadWish"),
            default="UnknownVerb",
        ),
        "UnknownVerb": {
            "Type": "Fail",
            "Error": "Millrace.UnknownVerb",
            "Cause": _expr(f"'verb is ' & $verb & '; allowed: {', '.join(VERBS)}'"),
        },
        "WantRunning": write.wish("running"),
        "WantStopped": write.wish("stopped"),
        # An engine that starts a failed run again by itself is given the time to do so.
        "Settle": {"Type": "Wait", "Seconds": "{% $poll %}", "Next": "ReadWish"},
        "ReadWish": write.read_wish("Look"),
        "NeverAsked": {"Type": "Pass", "Assign": {"wish": "stopped"}, "Next": "Look"},
        "Look": {"Type": "Pass", "Assign": {"runs": [], "token": ""}, "Next": "ListRuns"},
        "ListRuns": write.task(engine.list_runs, "MorePages"),
        "MorePages": _choice(("$token != ''", "ListRuns"), default="Judge"),
        "Judge": {
            "Comment": "A state that nobody knows counts as running",
            "Type": "Pass",
            "Assign": {
                "live": _expr(f"[$runs[$not(state in {_list(engine.ended)})]]"),
                "going": _expr(f"[$runs[$not(state in {_list(engine.ended + engine.ending)})]]"),
                "recent": _expr(f"$count($runs[$toMillis(at) > $millis() - {_HOUR_MS}])"),
                # Two executions that see the same runs make the same token, and EMR Serverless
                # then starts one run for both.
                "newest": _expr(
                    f"$exists($runs[$toMillis(at) > $millis() - {_HOUR_MS}]) ? "
                    f"$runs[$toMillis(at) > $millis() - {_HOUR_MS}]^(>at)[0].id : "
                    f"'h' & $string($floor($millis() / {_HOUR_MS}))"
                ),
            },
            "Next": "Decide",
        },
        "Decide": _choice(
            ("$verb = 'status'", "Status"),
            ("$verb = 'restart' and $wish != 'running'", "NotWanted"),
            ("$verb in ['start', 'restart'] and $count($going) > 0", "AlreadyRunning"),
            ("$verb in ['stop', 'drain'] and $count($live) = 0", "Stopped"),
            ("$millis() > $deadline", "NoEnd"),
            ("$count($going) = 0 and $count($live) > 0", "WaitForEnd"),
            (f"$verb = 'restart' and $recent >= {starts_per_hour}", "TooOften"),
            ("$verb in ['start', 'restart']", "StartRun"),
            # A drain and a grace period that was given need no measuring.
            ("$grace = 0", "Measure" if engine.measure else "StopRun"),
            default="StopRun",
        ),
        "WaitForEnd": {"Type": "Wait", "Seconds": "{% $poll %}", "Next": "Look"},
        "StartRun": write.task(
            engine.start_run, "Confirm", catch=[{"ErrorEquals": list(engine.busy), "Next": "WaitForEnd"}]
        ),
        # Whoever stopped the job while it was being started saw no run: look again at what is wanted.
        "Confirm": write.read_wish("StillWanted"),
        "StillWanted": _choice(("$wish = 'running'", "WaitForStart"), default="Revoked"),
        "Revoked": {"Type": "Pass", "Assign": {"verb": "stop"}, "Next": "Look"},
        "WaitForStart": {"Type": "Wait", "Seconds": "{% $poll %}", "Next": "LookAtRun"},
        "LookAtRun": write.task(engine.look_at_run, "Started"),
        "Started": _choice(
            ("$state = 'RUNNING'", "Running"),
            (f"$state in {_list(engine.ended)}", "EndedAtOnce"),
            ("$millis() > $deadline", "NoStart"),
            default="WaitForStart",
        ),
        **engine.measure,
        "StopRun": write.task(
            engine.stop_run, "WaitForEnd", catch=[{"ErrorEquals": list(engine.gone), "Next": "WaitForEnd"}]
        ),
        **_successes(job),
        **_failures(job, topic, starts_per_hour),
    }
    for name in engine.measure:
        if states[name]["Type"] == "Task":
            # Not knowing the slowest batch is no reason not to stop, nor to wait for long.
            states[name]["Retry"] = [
                {"ErrorEquals": ["States.TaskFailed"], "IntervalSeconds": 1, "MaxAttempts": 1}
            ]
            states[name]["Catch"] = [{"ErrorEquals": ["States.ALL"], "Next": "NoMeasure"}]
    return {
        "Comment": f"Starts, stops and watches {job}",
        "QueryLanguage": "JSONata",
        "StartAt": "Begin",
        "TimeoutSeconds": 2 * _PATIENCE_SECONDS,
        "States": states,
    }


@dataclass(frozen=True)
class _Writer:
    """Writes the states that call a service: each retries what may pass, and reports what does not."""

    engine: Engine
    parameter: str

    @property
    def retry(self) -> list[dict[str, Any]]:
        return [
            {"ErrorEquals": [*_NO_PARAMETER, *self.engine.permanent], "MaxAttempts": 0},
            {
                "ErrorEquals": ["States.TaskFailed"],
                "IntervalSeconds": 2,
                "BackoffRate": 2,
                "MaxAttempts": 6,
                "MaxDelaySeconds": 30,
                "JitterStrategy": "FULL",
            },
        ]

    def task(self, state: State, following: str, catch: Sequence[dict[str, Any]] = ()) -> State:
        broken = {
            "ErrorEquals": ["States.ALL"],
            "Assign": {
                # A name that begins with `States.` is not for a machine's own errors.
                "error": _expr("$replace($states.errorOutput.Error, /^States[.]/, 'Millrace.')"),
                "cause": _expr("$states.errorOutput.Cause"),
            },
            "Next": "Report",
        }
        return {**state, "Retry": self.retry, "Catch": [*catch, broken], "Next": following}

    def wish(self, value: str) -> State:
        return self.task(
            {
                "Type": "Task",
                "Resource": "arn:aws:states:::aws-sdk:ssm:putParameter",
                "Arguments": {"Name": self.parameter, "Type": "String", "Overwrite": True, "Value": value},
                "Assign": {"wish": value},
            },
            "Look",
        )

    def read_wish(self, following: str) -> State:
        return self.task(
            {
                "Type": "Task",
                "Resource": "arn:aws:states:::aws-sdk:ssm:getParameter",
                "Arguments": {"Name": self.parameter},
                "Assign": {"wish": _expr("$states.result.Parameter.Value")},
            },
            following,
            catch=[{"ErrorEquals": list(_NO_PARAMETER), "Next": "NeverAsked"}],
        )


def _successes(job: str) -> dict[str, State]:
    going = "$count($going) > 0 ? $going[0].id : ''"
    going_state = "$count($live) > 0 ? $live[0].state : 'NONE'"

    def success(outcome: str, message: str, *, run: str = "$run", state: str = "$state") -> State:
        return {
            "Type": "Succeed",
            "Output": {
                "job": job,
                "outcome": outcome,
                "message": _expr(message),
                "wish": "{% $wish %}",
                "run": _expr(run),
                "state": _expr(state),
                "starts_last_hour": "{% $recent %}",
                "reason": "{% $reason %}",
            },
        }

    return {
        "Status": success(
            "status",
            "'wanted: ' & $wish & '; ' & ($count($live) > 0 ? "
            "'run ' & $live[0].id & ' is ' & $live[0].state : 'no run')",
            run="$count($live) > 0 ? $live[0].id : ''",
            state=going_state,
        ),
        "NotWanted": success("not-wanted", "'nobody wants it to run'", state="'NONE'"),
        "AlreadyRunning": success(
            "already-running",
            "'run ' & $going[0].id & ' is ' & $going[0].state & ' already'",
            run=going,
            state=going_state,
        ),
        "Running": success("running", "'run ' & $run & ' is RUNNING'"),
        "Stopped": success("stopped", "'no run is left'", state="'NONE'"),
    }


def _failures(job: str, topic: str, starts_per_hour: int) -> dict[str, State]:
    def problem(error: str, cause: str) -> State:
        return {
            "Type": "Pass",
            "Assign": {"error": f"Millrace.{error}", "cause": _expr(cause)},
            "Next": "Report",
        }

    return {
        "NoEnd": problem(
            "NoEnd", "'run ' & $live[0].id & ' is still ' & $live[0].state & ', longer than was to be waited'"
        ),
        "TooOften": problem(
            "TooOften",
            f"$string($recent) & ' runs began within the hour, {starts_per_hour} are allowed: "
            "nothing starts it again before one of them is an hour old'",
        ),
        "EndedAtOnce": problem(
            "EndedAtOnce", "'run ' & $run & ' ended as ' & $state & ($detail = '' ? '' : ': ' & $detail)"
        ),
        "NoStart": problem(
            "NoStart", "'run ' & $run & ' is still ' & $state & ', longer than was to be waited'"
        ),
        "Report": _choice(("$verb = 'restart'", "Alert"), default="Failed"),
        "Alert": {
            "Comment": "Nobody waits for a restart: tell the topic",
            "Type": "Task",
            "Resource": "arn:aws:states:::sns:publish",
            "Arguments": {
                "TopicArn": topic,
                "Subject": f"{job[:60]} could not be started again",
                "Message": _expr(
                    f"'{job} is wanted but does not run. ' & $error & ': ' & $cause & "
                    "'. Began with: ' & $reason & '. Execution: ' & $states.context.Execution.Id"
                ),
            },
            "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 3, "BackoffRate": 2}],
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Failed"}],
            "Next": "Failed",
        },
        "Failed": {"Type": "Fail", "Error": "{% $error %}", "Cause": "{% $cause %}"},
    }


def _choice(*rules: tuple[str, str], default: str) -> State:
    return {
        "Type": "Choice",
        "Choices": [{"Condition": _expr(condition), "Next": following} for condition, following in rules],
        "Default": default,
    }


def _expr(text: str) -> str:
    return "{% " + text + " %}"


def _bare(key: str, default: str) -> str:
    return f"$exists($states.input.{key}) ? $states.input.{key} : {default}"


def _given(key: str, default: str) -> str:
    return _expr(_bare(key, default))


def _list(values: Sequence[str]) -> str:
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"
