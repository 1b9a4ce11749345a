"""Statements of IAM policies as data, each with the reason for its wildcards."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

TAGGED = "Its id is made by CloudFormation; the tags of the environment hold it to its own"
FILES = "Files below one prefix: their names are made at run time"
NO_NARROWER = "IAM knows no narrower resource for these actions"
INTERFACES = "Glue makes network interfaces at run time; their tag holds it to its own"
REMADE = "The random end of a cluster's ARN changes when the cluster is made again under its name"

FINDS_BROKERS = ["kafka:GetBootstrapBrokers", "kafka:ListClustersV2"]
"""Actions without a resource type ("Actions, resources, and condition keys for Amazon MSK", service authorization reference,
read 2026-11-23): granted on a cluster's ARN, the first allows nothing.
"""


@dataclass(frozen=True)
class Grant:
    """One statement of a role's policy.

    Attributes
    ----------
    sid
        Its name.
    actions, resources
        Allowed actions, and the resources that they are allowed on.
    why
        Reason for wildcards in the resources; without a reason, a wildcard is a finding.
    conditions
        IAM conditions.
    effect
        ``Deny`` for what no other policy of the role may allow either.
    """

    sid: str
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    why: str | None = None
    conditions: Mapping[str, Any] = field(default_factory=dict)
    effect: Literal["Allow", "Deny"] = "Allow"

    @property
    def resources_with_wildcard(self) -> tuple[str, ...]:
        """Resources with a wildcard."""
        return tuple(resource for resource in self.resources if "*" in resource)


def allow(
    sid: str,
    actions: Sequence[str],
    resources: Sequence[str],
    conditions: Mapping[str, Any] | None = None,
    *,
    why: str | None = None,
) -> Grant:
    """Return a grant; ``why`` is the reason for its wildcards."""
    return Grant(sid, tuple(actions), tuple(resources), why, conditions or {})


def deny(sid: str, actions: Sequence[str], resources: Sequence[str], *, why: str | None = None) -> Grant:
    """Return a statement that takes actions away, whatever else allows them."""
    return Grant(sid, tuple(actions), tuple(resources), why, effect="Deny")


def allow_listing_prefixes(sid: str, bucket: str, prefixes: list[str]) -> Grant:
    """Allow listing a bucket (its ARN) below some prefixes.

    Without permission to list, S3 answers 403 instead of 404 for a missing object; this would end a job that looks for its
    checkpoint. S3 compares the object's key with the condition as if it were the prefix (ceph/ceph#68577 says so and does the
    same; no document of AWS does: claim ``missing-keys``), so below these prefixes the answer is 404.
    """
    patterns = [pattern for prefix in prefixes for pattern in (prefix, f"{prefix}/*")]
    return allow(sid, ["s3:ListBucket"], [bucket], {"StringLike": {"s3:prefix": patterns}})


def merge_grants(grants: Iterable[Grant]) -> list[Grant]:
    """Merge statements with the same name: their resources, and the values of their conditions."""
    result: dict[str, Grant] = {}
    for grant in grants:
        first = result.setdefault(grant.sid, grant)
        conditions = {
            operator: {
                key: _union_of_lists(first.conditions[operator][key], value) for key, value in keys.items()
            }
            for operator, keys in grant.conditions.items()
        }
        resources = _union_of_lists(first.resources, grant.resources)
        result[grant.sid] = replace(first, resources=tuple(resources), conditions=conditions)
    return list(result.values())


def _union_of_lists(first: Sequence[str], then: Sequence[str]) -> list[str]:
    return list(dict.fromkeys((*first, *then)))
