"""Split of statements into policies: IAM limits the characters of each policy.

Source: IAM user guide, "IAM and AWS STS quotas". Blanks are not counted.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from millrace.config.aws.iam_statements import Grant

INLINE = 10_240
"""Characters of all inline policies of a role."""

MANAGED = 6_144
"""Characters of one managed policy."""

ATTACHED = 10
"""Managed policies of a role, unless a company had that quota raised."""

_UNKNOWN = 128
"""Assumed length of a value that CloudFormation fills in; the longest, the ARN of a Prometheus workspace, has fewer than 100."""

_FRAME = len('{"Version":"2012-10-17","Statement":[]}')

Size = Callable[[Grant], int]


def split_into_policies(grants: Sequence[Grant], size: Size) -> list[list[Grant]]:
    """Split statements into managed policies of a role, none above its limit.

    Parameters
    ----------
    grants
        In their order; a statement that is too long becomes several, each with a part of its resources.
    size
        Characters of a statement.

    Returns
    -------
    list
        The statements of each policy.
    """
    policies: list[list[Grant]] = []
    for grant in grants:
        for piece in _split_grant(grant, size):
            fitting = (policy for policy in policies if policy_length([*policy, piece], size) <= MANAGED)
            policy = next(fitting, None)
            if policy is None:
                policies.append([piece])
            else:
                policy.append(piece)
    return policies


def policy_length(grants: Sequence[Grant], size: Size) -> int:
    """Return the characters of a policy with these statements."""
    return _FRAME + sum(size(grant) for grant in grants) + max(len(grants) - 1, 0)


def statement_length(resolved: Any) -> int:
    """Return the length of a statement's JSON, with room for what CloudFormation fills in.

    Examples
    --------
    >>> statement_length({"Effect": "Allow"})
    18
    >>> statement_length({"Ref": "Key"}) == len('""') + _UNKNOWN
    True
    """
    return len(json.dumps(_with_placeholder_values(resolved), separators=(",", ":")))


def _with_placeholder_values(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_placeholder_values(each) for each in value]
    if not isinstance(value, dict):
        return value
    if len(value) == 1:
        ((name, inner),) = value.items()
        if name == "Fn::Join":
            return inner[0].join(str(_with_placeholder_values(part)) for part in inner[1])
        if name == "Ref" or name.startswith("Fn::"):
            return "x" * _UNKNOWN
    return {key: _with_placeholder_values(each) for key, each in value.items()}


def _split_grant(grant: Grant, size: Size) -> list[Grant]:
    grants: list[Grant] = []
    rest = _divisible_values(grant)
    while rest:
        # At least one: a statement with one value is always short enough.
        most = (
            bisect_right(
                range(2, len(rest) + 1), MANAGED, key=partial(_length_with_first_values, grant, rest, size)
            )
            + 1
        )
        grants.append(_grant_limited_to_values(grant, rest[:most]))
        rest = rest[most:]
    if len(grants) == 1:
        return [grant]
    return [replace(piece, sid=f"{grant.sid}{number}") for number, piece in enumerate(grants, start=1)]


def _length_with_first_values(grant: Grant, values: Sequence[str], size: Size, count: int) -> int:
    return policy_length([_grant_limited_to_values(grant, values[:count])], size)


def _divisible_values(grant: Grant) -> Sequence[str]:
    """Return the values at which a statement may be split: resources, or the listed prefixes of one bucket."""
    if len(grant.resources) == 1 and "s3:prefix" in grant.conditions.get("StringLike", {}):
        prefixes: list[str] = grant.conditions["StringLike"]["s3:prefix"]
        return prefixes
    return grant.resources


def _grant_limited_to_values(grant: Grant, values: Sequence[str]) -> Grant:
    if values and values[0] in grant.resources:
        return replace(grant, resources=tuple(values))
    like = {**grant.conditions["StringLike"], "s3:prefix": list(values)}
    return replace(grant, conditions={**grant.conditions, "StringLike": like})
