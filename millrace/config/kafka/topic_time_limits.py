"""Settings of topics that keep records with impossible times out."""

from __future__ import annotations

from collections.abc import Mapping

_HOUR_MS, _CENTURY_MS = 3_600_000, 36_525 * 86_400_000

TIME_LIMITS: Mapping[str, str] = {
    "message.timestamp.after.max.ms": str(_HOUR_MS),
    "message.timestamp.before.max.ms": str(_CENTURY_MS),
}
"""Topic settings with which brokers refuse records whose time is surely wrong: more than an hour later than the broker's
clock, which is Kafka 4's own default (KIP-1030), or more than a century earlier. Kafka 3.6 and later have both settings
(KIP-937), and ``AWS::MSK::Topic`` supports no earlier version.
"""
