"""Manual removal of a verification's remains, after its stacks, by which ``--clean`` would find them, are deleted."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from millrace.verify.removals.removal_scope import BUCKET, LOG_GROUP, PARAMETER, STACK, STREAM

TOPIC = "topic "
UNKNOWN = "all that begins with "
"""Prefix of a line about remains that nobody searched for; there may be stacks among them."""

_COMMANDS = {
    BUCKET: "aws s3 rb --force s3://{}",
    STREAM: "aws kinesis delete-stream --stream-name {}",
    LOG_GROUP: "aws logs delete-log-group --log-group-name {}",
    PARAMETER: "aws ssm delete-parameter --name {}",
}


def can_clean_command_find(remains: Iterable[str]) -> bool:
    """Return whether ``--clean`` can find what is left: it needs stacks."""
    return any(each.startswith((STACK, UNKNOWN)) for each in remains)


def removal_steps(remains: Iterable[str]) -> list[str]:
    """Return how to remove each thing: its command, or its name where the command depends on its type.

    Parameters
    ----------
    remains
        Lines by a removal.

    Examples
    --------
    >>> removal_steps(["log group /shop/jobs/a/error"])
    ['aws logs delete-log-group --log-group-name /shop/jobs/a/error']
    """
    return [_removal_step(each) for each in remains]


def _removal_step(line: str) -> str:
    for kind, command in _COMMANDS.items():
        if line.startswith(kind):
            return command.format(shlex.quote(line.removeprefix(kind)))
    if line.startswith(TOPIC):
        name = line.removeprefix(TOPIC).partition(" ")[0]
        return f"{line}: kafka-topics.sh --bootstrap-server BROKERS --delete --topic {shlex.quote(name)}"
    return line
