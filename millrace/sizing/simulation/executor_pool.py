"""Executors that start and end according to a scaling policy, with their lifetimes."""

from __future__ import annotations

import math
import random
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import simpy

from millrace.sizing.simulation.job import Scenario
from millrace.sizing.simulation.scaling import DynamicAllocation, GlueAutoScaling

_FOREVER = math.inf


@dataclass
class Executor:
    """A running executor."""

    born: float
    idle_since: float
    batches: int = 0
    """Number of batches with tasks on it; while there is one, it is not idle."""


class Pool:
    """The executors of a job.

    Parameters
    ----------
    scenario
        Policy and cores.
    """

    def __init__(self, env: simpy.Environment, scenario: Scenario) -> None:
        self._env, self._scenario, self._policy = env, scenario, scenario.scaling
        self._random = random.Random(scenario.seed)  # randomness in a model, no secret
        self._running: list[Executor] = []
        self._starting = 0
        self._generation = 0
        self.changed = 0.0
        """Seconds at which an executor joined or ended for the last time."""
        self._last: dict[str, deque[float]] = {}
        self.lives: list[tuple[float, float]] = []
        """Start and end in seconds of each executor that has ended."""
        self.grown = env.event()
        """Event for new executors."""
        policy = self._policy
        self._least = policy.least
        shuffles = any(query.repartition is not None for query in scenario.queries)
        self._idle = _FOREVER
        if isinstance(policy, DynamicAllocation):
            self._idle = policy.shuffle_timeout if shuffles else policy.idle_timeout
        if isinstance(policy, GlueAutoScaling):
            self._last = {query.name: deque(maxlen=policy.batches) for query in scenario.queries}
        self._add(policy.initial)
        # Spark runs the first batch at once; here nothing waits yet, so the first batch comes one trigger later.
        for each in self._running:
            each.idle_since = min((query.trigger for query in scenario.queries), default=0.0)

    @property
    def executors(self) -> int:
        """Number of running executors."""
        return len(self._running)

    @property
    def scales_during_batch(self) -> bool:
        """True if executors may start while a batch runs."""
        return self._starting > 0 or isinstance(self._policy, DynamicAllocation)

    @property
    def cores(self) -> int:
        """Cores of the running executors, which all queries share; at least one."""
        return max(1, self.executors * self._scenario.executor_cores)

    def assign_tasks(self, tasks: int, since: float = 0.0) -> list[Executor]:
        """Assign tasks to random executors, as Spark does, and return the executors with tasks.

        Parameters
        ----------
        tasks
            Number of tasks that wait.
        since
            Only executors that joined since this time in seconds take them.
        """
        self.expire(self._env.now)
        if self._idle == _FOREVER:
            return []
        used = [each for each in self._running if each.born >= since]
        if tasks < len(used):
            used = self._random.sample(used, tasks)
        for each in used:
            each.batches += 1
        return used

    def mark_idle(self, used: list[Executor]) -> None:
        """Mark executors as idle after the tasks of a batch, unless another query's batch has tasks on them."""
        for each in used:
            each.batches -= 1
            each.idle_since = self._env.now

    def expire(self, now: float) -> None:
        """Remove executors that were idle for too long, at the time when the limit was reached."""
        if self._idle == _FOREVER:
            return
        gone = sorted(
            (each for each in self._running if not each.batches and each.idle_since + self._idle <= now),
            key=lambda each: each.idle_since,
        )[: max(0, self.executors - self._least)]
        for each in gone:
            self._running.remove(each)
            self.lives.append((each.born, each.idle_since + self._idle))
            self.changed = now

    def missing_executors(self, tasks: int) -> int:
        """Return how many more executors the running and waiting tasks of all queries allow."""
        if not isinstance(self._policy, DynamicAllocation):
            return 0
        return self._policy.needed(tasks, self._scenario.executor_cores) - self.executors - self._starting

    @property
    def backlog_timeouts(self) -> tuple[float, float]:
        """Seconds that tasks wait before the first executors are requested, and between two requests."""
        policy = self._policy
        return (
            (policy.backlog_timeout, policy.sustained_timeout)
            if isinstance(policy, DynamicAllocation)
            else (0.0, 1.0)
        )

    def request(self, executors: int) -> None:
        """Request executors; they join the pool after their start-up time."""
        self._starting += executors
        self._env.process(self._start(executors))

    def report_batch(self, query: str, seconds: float, trigger: float) -> None:
        """Report the duration of a batch to the policy."""
        policy = self._policy
        if not isinstance(policy, GlueAutoScaling) or trigger <= 0:
            return
        self._last[query].append(seconds / trigger)
        expected = self.executors + self._starting
        wanted = policy.wanted(expected, list(self._last.values()))
        if wanted == expected:
            return
        for last in self._last.values():  # the next decision is about the new size
            last.clear()
        if wanted > expected:
            self.request(wanted - expected)
        else:
            for each in self._running[wanted:]:
                self.lives.append((each.born, self._env.now))
            del self._running[wanted:]
            self.changed = self._env.now

    @property
    def remembered_batches(self) -> int:
        """Number of batches of a query on which the next decision depends."""
        return self._policy.batches if isinstance(self._policy, GlueAutoScaling) else 1

    def is_steady(self, queries: Sequence[tuple[int, float]]) -> bool:
        """Return whether no executor will join or end as long as all batches are like the last ones.

        Parameters
        ----------
        queries
            Number of tasks, and seconds without tasks between two batches, of each query.
        """
        policy = self._policy
        if self._starting:
            return False
        if isinstance(policy, GlueAutoScaling):
            last = list(self._last.values())
            full = all(not each or len(each) == policy.batches for each in last)
            return full and policy.wanted(self.executors, last) == self.executors
        together = sum(tasks for tasks, _ in queries)
        grows = together > self.cores and self.missing_executors(together) > 0
        all_used = any(tasks >= self.executors and pause < self._idle for tasks, pause in queries)
        return not grows and (all_used or self.executors <= self._least)

    def lose_all(self) -> None:
        """End every executor, including those that are still starting."""
        self.expire(self._env.now)
        self._generation += 1
        self._starting = 0
        self.lives += [(each.born, self._env.now) for each in self._running]
        self._running.clear()
        for last in self._last.values():
            last.clear()

    def restart(self) -> None:
        """Start as at the first start."""
        self._add(self._policy.initial)

    def close(self, now: float, *, steady: bool) -> list[tuple[float, float]]:
        """Return all lifetimes; those of running executors end now, and in a steady state none ended before."""
        if not steady:
            self.expire(now)
        return [*self.lives, *((each.born, now) for each in self._running)]

    def _start(self, executors: int) -> Generator[simpy.Event, None, None]:
        generation = self._generation
        assert isinstance(self._policy, DynamicAllocation | GlueAutoScaling)
        yield self._env.timeout(self._policy.worker_start)
        if generation != self._generation:
            return
        self._starting -= executors
        self._add(min(executors, self._policy.most - self.executors))
        grown, self.grown = self.grown, self._env.event()
        grown.succeed()

    def _add(self, executors: int) -> None:
        self.changed = now = self._env.now
        self._running += [Executor(now, now) for _ in range(executors)]
