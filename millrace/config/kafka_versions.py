"""Kafka versions as MSK names them, and which tier takes which.

``X.kraft`` keeps its metadata in the brokers (KRaft), a bare ``X`` in ZooKeeper; from 4.0 on there is KRaft alone. A cluster never
goes from one to the other ("Metadata management" of the MSK developer guide).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

AS_OF = date(2026, 11, 23)
"""When the table was last held against what is published."""

DEFAULT = "3.9.x.kraft"

STANDARD = (
    *("3.8.x", "3.8.x.kraft", "3.9.x", "3.9.x.kraft"),
    *("4.0.x.kraft", "4.1.x.kraft", "4.2.x.kraft"),
)
"""What Standard brokers take, of those that Spark's Kafka source is tried with ("Supported Apache Kafka versions", the same guide)."""

EXPRESS: Mapping[str, bool] = {
    "3.8.x": True,
    "3.8.x.kraft": False,
    # "BadRequestException: Express instance types are not supported for Kafka version 3.9.x." (hashicorp/
    # terraform-provider-aws#48309, June 2026), while "What's new" of December 2025 has KRaft with 3.9.
    "3.9.x": False,
    "3.9.x.kraft": True,
}
"""Whether Express brokers take a version; of those that are not here nobody has said."""


def of_tier(tier: str) -> tuple[str, ...]:
    """Versions that a tier takes, or of which nobody knows that it does not."""
    return tuple(v for v in STANDARD if tier != "express" or EXPRESS.get(v, True))


def unconfirmed(tier: str, version: str) -> bool:
    """Whether nobody has said that a tier takes a version."""
    return tier == "express" and version not in EXPRESS
