"""Simulator for plan, simulate and what-if: records arrive, micro-batches process them, workers start and end."""

from millrace.sizing.simulation.cumulative_arrivals import Arrivals
from millrace.sizing.simulation.result import JobResult, QueryResult
from millrace.sizing.simulation.scaling_policies import (
    DynamicAllocation,
    FixedExecutors,
    GlueAutoScaling,
    Scaling,
)
from millrace.sizing.simulation.scenario_model import Outage, QueryLoad, Reshard, Scenario
from millrace.sizing.simulation.simulation_run import simulate

__all__ = [
    "Arrivals",
    "DynamicAllocation",
    "FixedExecutors",
    "GlueAutoScaling",
    "JobResult",
    "Outage",
    "QueryLoad",
    "QueryResult",
    "Reshard",
    "Scaling",
    "Scenario",
    "simulate",
]
