"""Base of all sections of an environment file: the frozen model and the kinds of text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, ConfigDict, StringConstraints

K = TypeVar("K")
V = TypeVar("V")

_PARTITION = r"^arn:aws[a-z-]*"

SLUG = r"^[a-z][a-z0-9-]{0,38}[a-z0-9]$"
SLUG_SAID = "2 to 40 lower-case letters, digits and hyphens, a letter first"
Slug = Annotated[str, StringConstraints(pattern=SLUG)]
"""A logical name: lower case, digits and hyphens, so that every AWS name derived from it is legal."""

TableName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,126}$")]
"""A table's name inside the environment's database."""

DatabaseName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,127}$")]
BucketName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$")]
KeyArn = Annotated[
    str, StringConstraints(pattern=_PARTITION + r":kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$")
]
RoleArn = Annotated[
    str, StringConstraints(pattern=_PARTITION + r":iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]+$")
]
PolicyArn = Annotated[
    str, StringConstraints(pattern=_PARTITION + r":iam::([0-9]{12}|aws):policy/[A-Za-z0-9_+=,.@/-]+$")
]
ClusterArn = Annotated[
    str,
    StringConstraints(
        pattern=_PARTITION + r":kafka:[a-z0-9-]+:[0-9]{12}:cluster/[A-Za-z0-9-]+/[A-Za-z0-9-]+$"
    ),
]
CertificateArn = Annotated[
    str, StringConstraints(pattern=_PARTITION + r":acm:[a-z0-9-]+:[0-9]{12}:certificate/[A-Za-z0-9-]+$")
]
SecretArn = Annotated[
    str,
    StringConstraints(
        pattern=_PARTITION + r":secretsmanager:[a-z0-9-]+:[0-9]{12}:secret:[A-Za-z0-9/_+=.@-]+$"
    ),
]
VpcId = Annotated[str, StringConstraints(pattern=r"^vpc-[0-9a-f]{8,17}$")]
SubnetId = Annotated[str, StringConstraints(pattern=r"^subnet-[0-9a-f]{8,17}$")]


def remove_schema_default(schema: dict[str, Any]) -> None:
    """Remove a key's default from the JSON Schema, because the plan chooses the value if the key is left out."""
    del schema["default"]


class Model(BaseModel):
    """Base of every section: frozen, unknown keys refused."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, defer_build=True
    )


def load_kinds(group: str, built_in: Mapping[str, str]) -> dict[str, Any]:
    """Return the classes of a concept's kinds: our own, and those that an installed distribution adds.

    Parameters
    ----------
    group
        Entry points by which a distribution adds kinds.
    built_in
        Loader of each class, as ``module:class``, by kind.
    """
    kinds = dict.fromkeys((*built_in, *_all_entry_points().select(group=group).names))
    return {kind: load_kind(group, built_in, kind) for kind in kinds}


def load_kind(group: str, built_in: Mapping[str, str], kind: str) -> Any:
    """Return what one kind has in a registry as of :func:`load_kinds`; None if it has nothing there."""
    loaders = {**built_in, **{each.name: each.value for each in _all_entry_points().select(group=group)}}
    return EntryPoint(kind, loaders[kind], group).load() if kind in loaders else None


@cache
def _all_entry_points() -> Any:
    # Looking through all distributions takes a hundredth of a second, and a start asks for each kind of each concept.
    return entry_points()


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Return the values of pairs by their keys, both in the order of the pairs."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def arn_region_account_resource(arn: str) -> tuple[str, str, str]:
    """Return region, account and resource of an ARN.

    Examples
    --------
    >>> arn_region_account_resource("arn:aws:kinesis:us-east-1:111122223333:stream/clicks")
    ('us-east-1', '111122223333', 'stream/clicks')
    """
    _, _, _, region, account, resource = arn.split(":", 5)
    return region, account, resource


def kind_as_mapping(value: Any) -> Any:
    """Turn a name alone into a mapping with that kind, before a union of kinds is read."""
    return {"kind": value} if isinstance(value, str) else value
