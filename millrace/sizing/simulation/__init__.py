"""Simulator for plan, simulate and what-if: records arrive, micro-batches process them, workers start and end."""

from millrace.sizing.simulation.arrivals import Arrivals
from millrace.sizing.simulation.job import Outage, QueryLoad, Reshard, Scenario
from millrace.sizing.simulation.result import JobResult, QueryResult
from millrace.sizing.simulation.run import simulate
from millrace.sizing.simulation.scaling import DynamicAllocation, Fixed, GlueAutoScaling, Scaling

__all__ = [
    "Arrivals",
    "DynamicAllocation",
    "Fixed",
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
