"""Final states of a job's state machine, and writers of conditions and expressions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

State = dict[str, Any]


def success_states(job: str, every_seconds: int | None) -> dict[str, State]:
    """Write the states that end with success, each with an output for people and scripts.

    Parameters
    ----------
    every_seconds
        Time from the start of one bounded run to the next; None for a job that runs all the time.
    """
    going = "$count($going) > 0 ? $going[0].id : ''"
    going_state = "$count($live) > 0 ? $live[0].state : 'NONE'"

    def success_state(outcome: str, message: str, *, run: str = "$run", state: str = "$state") -> State:
        return {
            "Type": "Succeed",
            "Output": {
                "job": job,
                "outcome": outcome,
                "message": jsonata_field(message),
                "desired_state": "{% $desired_state %}",
                "run": jsonata_field(run),
                "state": jsonata_field(state),
                "starts_last_hour": "{% $recent %}",
                "alarms": "{% $alarms %}",
                "grace_seconds": "{% $grace %}",
                "reason": "{% $reason %}",
            },
        }

    turns, last = {}, ""
    if every_seconds is not None:
        ended = "'a run ended as it should; the schedule starts the next'"
        turns["NotDue"] = success_state("not-due", ended, state="'NONE'")
        last = (
            " & ($began > 0 ? '; the last run began ' & $fromMillis($began) & ', the next is due ' "
            f"& $fromMillis($began + {1000 * every_seconds}) : '')"
        )
    return {
        **turns,
        "Status": success_state(
            "status",
            "'desired state: ' & $desired_state & '; ' & ($count($live) > 0 ? "
            "'run ' & $live[0].id & ' is ' & $live[0].state : 'no run')" + last,
            run="$count($live) > 0 ? $live[0].id : ''",
            state=going_state,
        ),
        "NotWanted": success_state("not-wanted", "'its desired state is stopped'", state="'NONE'"),
        "AlreadyRunning": success_state(
            "already-running",
            "'run ' & $going[0].id & ' is ' & $going[0].state & ' already'",
            run=going,
            state=going_state,
        ),
        "Running": success_state("running", "'run ' & $run & ' is RUNNING'"),
        "Once": success_state("once", "'run ' & $run & ' started'", state="'STARTING'"),
        "Stopped": success_state("stopped", "'no run is active'", state="'NONE'"),
    }


def fail_state(error: str, cause: str) -> State:
    """Write a state that names a failure, for ``Report``; ``cause`` is a JSONata expression."""
    return {
        "Type": "Pass",
        "Assign": {"error": f"Millrace.{error}", "cause": jsonata_field(cause)},
        "Next": "Report",
    }


def failure_states(job: str, topic: str, starts_per_hour: int) -> dict[str, State]:
    """Write the states that end with failure, from the error to the notification.

    Parameters
    ----------
    topic
        ARN of the topic that reports a failed restart; nobody waits for a restart.
    starts_per_hour
        Limit, for the message about a job that keeps ending.
    """
    return {
        "NoEnd": fail_state(
            "NoEnd",
            "($count($live) > 0 ? 'run ' & $live[0].id & ' is still ' & $live[0].state "
            ": 'no run is listed, and yet no other can be started') & ' after ' & $patience & ' s; gave up'",
        ),
        "NotStopped": fail_state(
            "NotStopped",
            "'a run with arguments replaces the job: stop the job first; desired state: ' & $desired_state",
        ),
        "TooOften": fail_state(
            "TooOften",
            f"'started ' & $recent & ' times within an hour (limit {starts_per_hour}); "
            "restarts resume when the oldest start is an hour old'",
        ),
        "EndedAtOnce": fail_state(
            "EndedAtOnce", "'run ' & $run & ' ended as ' & $state & ($detail = '' ? '' : ': ' & $detail)"
        ),
        "NoStart": fail_state(
            "NoStart", "'run ' & $run & ' is still ' & $state & ' after ' & $patience & ' s; gave up'"
        ),
        "Report": choice_state(("$verb = 'restart'", "Alert"), default="Failed"),
        "Alert": {
            "Comment": "Nobody waits for a restart: tell the topic",
            "Type": "Task",
            "Resource": "arn:aws:states:::sns:publish",
            "Arguments": {
                "TopicArn": topic,
                "Subject": f"{job[:60]} could not be started again",
                "Message": jsonata_field(
                    f"'{job} should run but does not. ' & $error & ': ' & $cause & "
                    "'. Reason of the start: ' & $reason & '. Execution: ' & $states.context.Execution.Id"
                ),
            },
            "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 3, "BackoffRate": 2}],
            "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Failed"}],
            "Next": "Failed",
        },
        "Failed": {"Type": "Fail", "Error": "{% $error %}", "Cause": "{% $cause %}"},
    }


def choice_state(*rules: tuple[str, str], default: str) -> State:
    """Write a choice: conditions in JSONata, in order, each with the state that follows."""
    return {
        "Type": "Choice",
        "Choices": [
            {"Condition": jsonata_field(condition), "Next": following} for condition, following in rules
        ],
        "Default": default,
    }


def jsonata_field(text: str) -> str:
    """Write a JSONata expression as a field's value."""
    return "{% " + text + " %}"


def input_key_expression(key: str, default: str) -> str:
    """Write the part of an expression that reads a key of the input, or a default value."""
    return f"$exists($states.input.{key}) ? $states.input.{key} : {default}"


def input_key_field(key: str, default: str) -> str:
    """Write a field's value that is a key of the input, or a default value."""
    return jsonata_field(input_key_expression(key, default))


def jsonata_array(values: Sequence[str]) -> str:
    """Write strings as a JSONata array."""
    return "[" + ", ".join(f"'{value}'" for value in values) + "]"
