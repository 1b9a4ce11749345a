"""Sizing: capacity, shards, workers, limits and cost, as pure functions."""

from millrace.sizing.plan_model import Plan
from millrace.sizing.planning import plan, total_cost

__all__ = ["Plan", "plan", "total_cost"]
