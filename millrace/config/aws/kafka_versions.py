"""Kafka versions as MSK names them, and the tiers that support them.

``X.kraft`` keeps its metadata in the brokers (KRaft), a bare ``X`` in ZooKeeper; from 4.0 on there is only KRaft. A cluster
never changes from one to the other ("Metadata management" of the MSK developer guide).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date

AS_OF = date(2026, 11, 23)
"""Date on which the table was last compared with AWS' documents."""

DEFAULT = "3.9.x.kraft"

STANDARD = (
    *("3.8.x", "3.8.x.kraft", "3.9.x", "3.9.x.kraft"),
    *("4.0.x.kraft", "4.1.x.kraft", "4.2.x.kraft"),
)
"""Versions for Standard brokers that Spark's Kafka source is tested with ("Supported Apache Kafka versions", the same guide)."""

EXPRESS: Mapping[str, bool] = {
    "3.8.x": True,
    "3.8.x.kraft": False,
    # "BadRequestException: Express instance types are not supported for Kafka version 3.9.x." (hashicorp/
    # terraform-provider-aws#48309, June 2026), while "What's new" of December 2025 has KRaft with 3.9.
    "3.9.x": False,
    "3.9.x.kraft": True,
}
"""Support of versions by Express brokers; for other versions no document says it."""


def supported_or_unconfirmed_versions(tier: str) -> tuple[str, ...]:
    """Return the versions that a tier supports, and those for which no document says that it does not."""
    return tuple(v for v in STANDARD if tier != "express" or EXPRESS.get(v, True))
