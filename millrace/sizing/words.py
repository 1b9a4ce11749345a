"""Numbers with their nouns."""

from __future__ import annotations


def count(number: int, noun: str) -> str:
    """Write ``1 shard``, ``2 shards``, ``12,000 records``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
