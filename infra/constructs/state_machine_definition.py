"""State machine of a job, in Amazon States Language with JSONata.

One skeleton for both engines: it writes down the desired state (``desired_state``), lists the engine's
runs, and decides in one place what to do. An engine provides the four calls that
differ (list, start, look, stop). Nothing here uses CDK: the result is a plain
``dict`` that a test can run. The reasons for this design:
``docs/design/run.md#state-machine``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from .state_machine_building_blocks import (
    State,
    choice_state,
    fail_state,
    failure_states,
    input_key_expression,
    input_key_field,
    jsonata_array,
    jsonata_field,
    success_states,
)

VERBS = ("start", "stop", "drain", "status", "restart", "once")

ONCE = (
    "--replay",
    "--id",
    "--corrected",
    "--backfill",
    "--since",
    "--until",
    "--replace",
    "--from",
    "--benchmark",
)
"""Arguments of the entry script that a run of its own may have (``docs/launch-document.md``): none names code or settings."""

_OWN_FILES = ("--corrected", "--benchmark")
"""Arguments among them that name a file, which a command has put beside the job's checkpoints."""

SHORTEST_GRACE_SECONDS, LONGEST_GRACE_SECONDS = 15, 1800
"""Limits of ``shutdownGracePeriodInSeconds`` in ``CancelJobRun`` (EMR Serverless API reference)."""

_FIRST_POLL_SECONDS, _POLL_SECONDS = 2, 15
"""Time between two looks: it starts with the first value and doubles up to the second."""

_SETTLE_SECONDS = 15
_PATIENCE_SECONDS = 2700
"""Longest wait for an end or a start: the longest grace period and a quarter of an hour."""

_HOUR_MS = 3_600_000

_NO_PARAMETER = ("Ssm.ParameterNotFoundException", "SSM.ParameterNotFoundException")
"""The error's name in Step Functions and in LocalStack."""


@dataclass(frozen=True)
class EngineCalls:
    """Calls, run states and errors of one engine.

    Attributes
    ----------
    list_runs, start_run, look_at_run, stop_run
        Task states, without their retries, catches and ``Next``. ``list_runs`` appends
        ``{id, state, at}`` of each run to ``$runs`` and sets ``$token`` to the next page's
        token or ``''``; it may keep the newest run of all pages in the list ``$newest``, which
        is empty before the first page. ``start_run`` sets ``$run``. ``look_at_run`` sets ``$state`` and
        ``$detail`` of ``$run``. ``stop_run`` asks the runs in ``$going`` to end.
    succeeded
        State of a run that ended by itself with status 0.
    ended, ending
        States of a run that has ended, and of a run that was asked to end. Every other state,
        known or not, counts as running: a second run on a checkpoint would destroy it.
    busy
        Errors of ``start_run`` that mean that another run is active.
    gone
        Errors of ``stop_run`` that mean that the run has already ended.
    permanent
        Errors that no retry fixes.
    measure
        States that find the slowest recent batch, from ``Measure`` to ``StopRun`` or, where a batch is too long for a
        drain, to ``KeepDesiredState``; they set ``$grace``. Empty where an engine has no grace period.
    """

    list_runs: State
    start_run: State
    look_at_run: State
    stop_run: State
    succeeded: str
    ended: tuple[str, ...]
    ending: tuple[str, ...]
    busy: tuple[str, ...]
    gone: tuple[str, ...]
    permanent: tuple[str, ...]
    measure: dict[str, State]


def job_machine_definition(
    engine: EngineCalls,
    *,
    job: str,
    parameter: str,
    topic: str,
    starts_per_hour: int,
    default_grace_seconds: int,
    silenced: Sequence[str],
    own_files: str,
    every_seconds: int | None = None,
) -> dict[str, Any]:
    """Write a job's state machine.

    Its input is ``{"verb": ..., "reason": ..., "ended": ..., "grace_seconds": ..., "patience_seconds": ...,
    "poll_seconds": ..., "arguments": ...}``, of which only ``verb`` (of :data:`VERBS`) is needed; ``ended`` is the state
    of a bounded run whose end is the reason of a ``restart``; ``once`` starts one run of
    a stopped job with ``arguments``, a list of ``{"name": ..., "value": ...}`` with names of :data:`ONCE`. It succeeds
    with ``{"job", "outcome", "message", "desired_state", "run", "state", "starts_last_hour", "alarms",
    "grace_seconds", "reason"}``, or fails with an error named ``Millrace...`` or the service's own.

    Parameters
    ----------
    engine
        The calls of the job's engine.
    job
        The job's deployed name, for messages.
    parameter
        Name of the SSM parameter that holds the desired state: ``running`` or ``stopped``.
    topic
        ARN of the topic that is notified when a job cannot be restarted.
    starts_per_hour
        After so many starts within an hour, by anybody, ``restart`` gives up.
    default_grace_seconds
        Grace period of ``stop`` where no batch could be measured, and the shortest otherwise.
    silenced
        Names of the alarms that missing data sets off, 1 to 100 (``DisableAlarmActions``): their
        actions are off while the job is stopped, and on while it should run and runs.
    own_files
        Beginning of the URLs of files for a run with arguments of its own.
    every_seconds
        Time from the start of one bounded run to the next; None for a job that runs all the time.
    """
    newest, due, started = _variables_choices_and_start_condition_of_run(engine, every_seconds)
    write = _ServiceCallStates(engine, parameter)
    states: dict[str, State] = {
        "Begin": {
            "Comment": "Read the input, with a value for whatever was left out",
            "Type": "Pass",
            "Assign": {
                "verb": input_key_field("verb", "''"),
                "reason": input_key_field("reason", "'asked for'"),
                **({} if every_seconds is None else {"ended": input_key_field("ended", "''")}),
                "poll": input_key_field("poll_seconds", str(_FIRST_POLL_SECONDS)),
                "longestPoll": input_key_field("poll_seconds", str(_POLL_SECONDS)),
                "settle": input_key_field("poll_seconds", str(_SETTLE_SECONDS)),
                "patience": input_key_field("patience_seconds", str(_PATIENCE_SECONDS)),
                "deadline": jsonata_field(
                    f"$millis() + 1000 * ({input_key_expression('patience_seconds', str(_PATIENCE_SECONDS))})"
                ),
                # 0: not given, must be measured.
                "grace": jsonata_field(
                    f"$exists($states.input.grace_seconds) ? $max([{SHORTEST_GRACE_SECONDS}, "
                    f"$min([{LONGEST_GRACE_SECONDS}, $states.input.grace_seconds])]) : 0"
                ),
                "defaultGrace": default_grace_seconds,
                "once": "{% $exists($states.input.arguments) ? [$states.input.arguments] : [] %}",
                "slowest": 0,
                "alarms": "unchanged",
                "run": "",
                "state": "",
                "detail": "",
                "desired_state": "stopped",
                "error": "",
                "cause": "",
            },
            "Next": "WhichVerb",
        },
        "WhichVerb": choice_state(
            ("$verb = 'start'", "WantRunning"),
            ("$verb in ['stop', 'drain']", "WantStopped"),
            ("$verb = 'restart'", "Settle"),
            ("$verb = 'status'", "ReadWish"),
            ("$verb = 'once'", "CheckArguments"),
            default="UnknownVerb",
        ),
        "UnknownVerb": {
            "Type": "Fail",
            "Error": "Millrace.UnknownVerb",
            "Cause": jsonata_field(f"'verb is ' & $verb & '; allowed: {', '.join(VERBS)}'"),
        },
        "CheckArguments": choice_state(
            (_allowed_arguments_condition(own_files), "ReadWish"), default="WrongArguments"
        ),
        "WrongArguments": {
            "Type": "Fail",
            "Error": "Millrace.WrongArguments",
            "Cause": (
                f"arguments is a list of objects with name and value. Allowed names: {', '.join(ONCE)}. A value is a text that "
                f"does not begin with a dash; a URL of {' or '.join(_OWN_FILES)} begins with {own_files}"
            ),
        },
        "WantRunning": write.state_that_writes_desired_state("running", "Look"),
        "WantStopped": write.state_that_writes_desired_state("stopped", "SwitchOffAlarms"),
        "SwitchOffAlarms": switch_alarm_actions_state("off", silenced, "Look"),
        # Some engines restart a failed run by themselves: they get the time to do so.
        "Settle": {"Type": "Wait", "Seconds": "{% $settle %}", "Next": "ReadWish"},
        "ReadWish": write.state_that_reads_desired_state("Look"),
        "NeverAsked": {"Type": "Pass", "Assign": {"desired_state": "stopped"}, "Next": "Look"},
        "Look": {"Type": "Pass", "Assign": {"runs": [], "newest": [], "token": ""}, "Next": "ListRuns"},
        "ListRuns": write.service_call_state(engine.list_runs, "MorePages"),
        "MorePages": choice_state(("$token != ''", "ListRuns"), default="Judge"),
        "Judge": {
            "Comment": "A state that nobody knows counts as running",
            "Type": "Pass",
            "Assign": {
                "live": jsonata_field(f"[$runs[$not(state in {jsonata_array(engine.ended)})]]"),
                "going": jsonata_field(
                    f"[$runs[$not(state in {jsonata_array(engine.ended + engine.ending)})]]"
                ),
                "recent": jsonata_field(f"$count($runs[$toMillis(at) > $millis() - {_HOUR_MS}])"),
                **newest,
            },
            "Next": "Decide",
        },
        "Decide": choice_state(
            ("$verb = 'status'", "Status"),
            ("$verb = 'once' and ($desired_state = 'running' or $count($going) > 0)", "NotStopped"),
            ("$verb = 'restart' and $desired_state != 'running'", "KeepAlarmsOff"),
            ("$verb in ['start', 'restart'] and $count($going) > 0", "KeepAlarmsOn"),
            *due,
            ("$verb in ['stop', 'drain'] and $count($live) = 0", "Stopped"),
            ("$millis() > $deadline", "NoEnd"),
            ("$count($going) = 0 and $count($live) > 0", "WaitForEnd"),
            (f"$verb = 'restart' and $recent >= {starts_per_hour}", "TooOften"),
            ("$verb in ['start', 'restart', 'once']", "StartRun"),
            # A given grace period needs no measurement.
            ("$grace = 0", "Measure" if engine.measure else "StopRun"),
            default="StopRun",
        ),
        # A deployment that changes an alarm switches its actions on: every look corrects that.
        "KeepAlarmsOff": switch_alarm_actions_state("off", silenced, "NotWanted"),
        "KeepAlarmsOn": switch_alarm_actions_state("on", silenced, "AlreadyRunning"),
        "WaitForEnd": _wait_state("Look"),
        "StartRun": write.service_call_state(
            engine.start_run, "Begun", catch=[{"ErrorEquals": list(engine.busy), "Next": "WaitForEnd"}]
        ),
        "Begun": choice_state(("$verb = 'once'", "Once"), default="Confirm"),
        # Somebody who stopped the job during its start saw no run: read the desired state again.
        "Confirm": write.state_that_reads_desired_state("StillWanted"),
        "StillWanted": choice_state(("$desired_state = 'running'", "WaitForStart"), default="Revoked"),
        "Revoked": {"Type": "Pass", "Assign": {"verb": "stop"}, "Next": "Look"},
        "WaitForStart": _wait_state("LookAtRun"),
        "LookAtRun": write.service_call_state(engine.look_at_run, "Started"),
        "Started": choice_state(
            (started, "SwitchOnAlarms"),
            (f"$state in {jsonata_array(engine.ended)}", "EndedAtOnce"),
            ("$millis() > $deadline", "NoStart"),
            default="WaitForStart",
        ),
        "SwitchOnAlarms": switch_alarm_actions_state("on", silenced, "Running"),
        **_states_that_measure_batches(engine, write, silenced),
        "StopRun": write.service_call_state(
            engine.stop_run, "WaitForEnd", catch=[{"ErrorEquals": list(engine.gone), "Next": "WaitForEnd"}]
        ),
        **success_states(job, every_seconds),
        **failure_states(job, topic, starts_per_hour),
    }
    return {
        "Comment": f"Starts, stops and watches {job}",
        "QueryLanguage": "JSONata",
        "StartAt": "Begin",
        "TimeoutSeconds": 2 * _PATIENCE_SECONDS,
        "States": states,
    }


def _variables_choices_and_start_condition_of_run(
    engine: EngineCalls, every_seconds: int | None
) -> tuple[State, list[tuple[str, str]], str]:
    """Return what a job of bounded runs differs in.

    Returns
    -------
    dict
        Variables: the start of the newest run in milliseconds, 0 for none.
    list of tuple
        Choices after an expected end. The schedule found a run that took longer than its period at work, so its end starts the
        next one.
    str
        Condition of a start that needs no further look; a short run may have ended before.
    """
    if every_seconds is None:
        return {}, [], "$state = 'RUNNING'"
    began = "($all := $append($runs, $newest); $count($all) > 0 ? $max([$all.$toMillis(at)]) : 0)"
    recent = f"$millis() - $began < {1000 * (every_seconds - _SETTLE_SECONDS)}"
    due = f"$verb = 'restart' and $ended = '{engine.succeeded}' and {recent}"
    started = f"$state in {jsonata_array(('RUNNING', engine.succeeded))}"
    return {"began": jsonata_field(began)}, [(due, "NotDue")], started


def switch_alarm_actions_state(switch: Literal["on", "off"], names: Sequence[str], following: str) -> State:
    """Write a state that switches the actions of alarms; a failure is reported and does not stop the execution.

    Parameters
    ----------
    switch
        ``on`` or ``off``.
    names
        The alarms, 1 to 100.
    following
        The next state, in any case.
    """
    return {
        "Type": "Task",
        "Resource": f"arn:aws:states:::aws-sdk:cloudwatch:{'enable' if switch == 'on' else 'disable'}AlarmActions",
        "Arguments": {"AlarmNames": list(names)},
        "Assign": {"alarms": switch},
        "Retry": [
            {"ErrorEquals": ["States.TaskFailed"], "IntervalSeconds": 1, "BackoffRate": 2, "MaxAttempts": 3}
        ],
        "Catch": [{"ErrorEquals": ["States.ALL"], "Assign": {"alarms": "unknown"}, "Next": following}],
        "Next": following,
    }


def _wait_state(following: str) -> State:
    return {
        "Type": "Wait",
        "Seconds": "{% $poll %}",
        "Assign": {"poll": "{% $min([$longestPoll, $poll * 2]) %}"},
        "Next": following,
    }


def _states_that_measure_batches(
    engine: EngineCalls, write: _ServiceCallStates, silenced: Sequence[str]
) -> dict[str, State]:
    if not engine.measure:
        return {}
    return {
        **engine.measure,
        # Nothing was stopped: the desired state and the alarms return to their values before the drain.
        "KeepDesiredState": write.state_that_writes_desired_state("running", "KeepAlarmsAfterAll"),
        "KeepAlarmsAfterAll": switch_alarm_actions_state("on", silenced, "CannotDrain"),
        "CannotDrain": fail_state(
            "CannotDrain",
            "'the slowest batch of the last hours took ' & $string($slowest) & ' s, but EMR Serverless waits at "
            f"most {LONGEST_GRACE_SECONDS} s for a batch to end, so nothing was stopped; `millrace stop` cuts the "
            "batch off, and the next start runs it again'",
        ),
    }


def _allowed_arguments_condition(own_files: str) -> str:
    """Write the condition that all arguments of a run of its own are allowed: nothing else reaches the entry script."""
    own, length = json.dumps(own_files), len(own_files)
    wrong = (
        f"$not(name in {jsonata_array(ONCE)}) or $type(value) != 'string' or $substring(value, 0, 1) = '-' "
        f"or (name in {jsonata_array(_OWN_FILES)} and $substring(value, 0, {length}) != {own})"
    )
    return f"$count($once) > 0 and $count($once[{wrong}]) = 0"


@dataclass(frozen=True)
class _ServiceCallStates:
    """Writer of the states that call a service: each retries temporary errors and reports the others."""

    engine: EngineCalls
    parameter: str

    @property
    def retry_rules(self) -> list[dict[str, Any]]:
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

    def service_call_state(self, state: State, following: str, catch: Sequence[dict[str, Any]] = ()) -> State:
        broken = {
            "ErrorEquals": ["States.ALL"],
            "Assign": {
                # A machine's own errors may not have names that begin with `States.`.
                "error": jsonata_field("$replace($states.errorOutput.Error, /^States[.]/, 'Millrace.')"),
                "cause": jsonata_field("$states.errorOutput.Cause"),
            },
            "Next": "Report",
        }
        return {**state, "Retry": self.retry_rules, "Catch": [*catch, broken], "Next": following}

    def state_that_writes_desired_state(self, value: str, following: str) -> State:
        return self.service_call_state(
            {
                "Type": "Task",
                "Resource": "arn:aws:states:::aws-sdk:ssm:putParameter",
                "Arguments": {"Name": self.parameter, "Type": "String", "Overwrite": True, "Value": value},
                "Assign": {"desired_state": value},
            },
            following,
        )

    def state_that_reads_desired_state(self, following: str) -> State:
        return self.service_call_state(
            {
                "Type": "Task",
                "Resource": "arn:aws:states:::aws-sdk:ssm:getParameter",
                "Arguments": {"Name": self.parameter},
                "Assign": {"desired_state": jsonata_field("$states.result.Parameter.Value")},
            },
            following,
            catch=[{"ErrorEquals": list(_NO_PARAMETER), "Next": "NeverAsked"}],
        )
