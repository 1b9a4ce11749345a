"""Scaling policies: fixed, Glue's auto scaling, or Spark's dynamic allocation on EMR Serverless."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class FixedExecutors:
    """A constant number of executors."""

    most: int

    @property
    def initial(self) -> int:
        """Number of executors at a start."""
        return self.most

    @property
    def least(self) -> int:
        """Number of executors that always stay."""
        return self.most


@dataclass(frozen=True)
class GlueAutoScaling:
    """Glue's auto scaling across micro-batches.

    AWS documents (Glue developer guide, "AWS Glue streaming autoscaling"): for a few micro-batches their time is
    compared with the window; jobs that end sooner may shrink, those that take longer grow, exponentially, and
    only after a batch has ended. It gives no figures: the number of batches, the share of the window below which
    a job shrinks, and the start time of a worker are assumptions, in ``limits.yaml``.

    Attributes
    ----------
    least, most
        Executors; Glue lets one set no smallest number, and one always stays.
    initial
        Executors at a start.
    batches
        Number of batches that are averaged.
    shrink_below
        Share of the window.
    worker_start
        Seconds from the decision until a worker takes tasks.
    """

    least: int
    most: int
    initial: int
    batches: int
    shrink_below: float
    worker_start: float

    def desired_executors(self, executors: int, shares: Sequence[Sequence[float]]) -> int:
        """Return the desired number of executors after a batch.

        Parameters
        ----------
        executors
            Number of running and starting executors.
        shares
            For each query, the durations of its last batches divided by its trigger. The job grows if one query
            is slow; it shrinks if all are fast.
        """
        known = [sum(last) / len(last) for last in shares if len(last) == self.batches]
        if any(mean > 1 for mean in known):
            return min(self.most, executors * 2)
        if len(known) == len(shares) and all(mean < self.shrink_below for mean in known):
            return max(self.least, math.ceil(executors / 2))
        return executors


@dataclass(frozen=True)
class DynamicAllocation:
    """Spark's dynamic allocation (Spark configuration guide, "Dynamic Allocation").

    If tasks wait for ``backlog_timeout``, it requests one executor, then two, four and so on every
    ``sustained_timeout``, up to ``ceil(tasks · ratio / cores)``. An executor that is idle for ``idle_timeout`` ends; one
    with shuffled data ends after ``shuffle_timeout``.

    Attributes
    ----------
    least, most, initial
        Executors.
    ratio
        ``spark.dynamicAllocation.executorAllocationRatio``.
    backlog_timeout, sustained_timeout, idle_timeout, shuffle_timeout
        Seconds.
    worker_start
        Seconds from the request until an executor takes tasks; an assumption, in ``limits.yaml``.
    """

    least: int
    most: int
    initial: int
    ratio: float
    backlog_timeout: float
    sustained_timeout: float
    idle_timeout: float
    shuffle_timeout: float
    worker_start: float

    def needed_executors(self, tasks: int, executor_cores: int) -> int:
        """Return the executors that this number of running and waiting tasks allows."""
        wanted = math.ceil(tasks * self.ratio / executor_cores)
        return max(self.least, min(self.most, wanted))


Scaling = FixedExecutors | GlueAutoScaling | DynamicAllocation
