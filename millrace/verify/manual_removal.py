"""How what a verification left goes, where no stack is there any more by which ``--clean`` would find it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from millrace.verify.removal_scope import BUCKET, LOG_GROUP, PARAMETER, STACK, STREAM

TOPIC = "topic "
UNKNOWN = "all that begins with "
"""Begins a line about what nobody has looked for, among which may be stacks."""

_COMMANDS = {
    BUCKET: "aws s3 rb --force s3://{}",
    STREAM: "aws kinesis delete-stream --stream-name {}",
    LOG_GROUP: "aws logs delete-log-group --log-group-name {}",
    PARAMETER: "aws ssm delete-parameter --name {}",
}


def can_clean(remains: Iterable[str]) -> bool:
    """Whether ``--clean`` can find what is left: it goes by stacks."""
    return any(each.startswith((STACK, UNKNOWN)) for each in remains)


def removal_steps(remains: Iterable[str]) -> list[str]:
    """Say how each thing goes: its command, or its name where that depends on what it is.

    Parameters
    ----------
    remains
        As a removal tells of them.

    Examples
    --------
    >>> removal_steps(["log group /shop/jobs/a/error"])
    ['aws logs delete-log-group --log-group-name /shop/jobs/a/error']
    """
    return [_way(each) for each in remains]


def _way(line: str) -> str:
    for kind, command in _COMMANDS.items():
        if line.startswith(kind):
            return command.format(shlex.quote(line.removeprefix(kind)))
    if line.startswith(TOPIC):
        name = line.removeprefix(TOPIC).partition(" ")[0]
        return f"{line}: kafka-topics.sh --bootstrap-server BROKERS --delete --topic {shlex.quote(name)}"
    return line
