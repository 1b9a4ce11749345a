"""Sizing: capacity, shards, workers, limits and cost, as pure functions."""

from millrace.sizing.model import Plan
from millrace.sizing.planning import plan, total

__all__ = ["Plan", "plan", "total"]
