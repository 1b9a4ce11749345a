"""Executors that start and end according to a scaling policy, with their lifetimes; and the clock by which they do."""

from __future__ import annotations

import math
import random
from collections import defaultdict, deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import simpy

from millrace.sizing.simulation.scaling_policies import DynamicAllocation, GlueAutoScaling
from millrace.sizing.simulation.scenario_model import Scenario

_FOREVER = math.inf

_REMEMBERED = 1000
"""Begins and ends of batches in the memory of a pool."""

_TICKS = 1_000_000
_NEVER = 1e12


class Clock(simpy.Environment):
    """Events in order of time, in whole microseconds: what happens at the same time does so exactly. Time can be skipped."""

    _skipped = 0

    @property
    def seconds(self) -> float:
        """Seconds since the beginning, including those that were skipped."""
        return (self._now + self._skipped) / _TICKS

    def time_just_before_ended_period(self, period: float) -> float:
        """Return a time just before the microsecond in which a period began that ends now."""
        return self.seconds - period - 0.5 / _TICKS

    def event_after(self, seconds: float) -> simpy.Timeout:
        """Return an event after so many seconds."""
        return simpy.Timeout(self, round(min(seconds, _NEVER) * _TICKS))

    def skip(self, seconds: float) -> None:
        """Skip time: all that waits goes on waiting for as long as before."""
        self._skipped += round(seconds * _TICKS)

    def run_until(self, seconds: float) -> None:
        """Run all events before a time."""
        until = round(seconds * _TICKS) - self._skipped
        if until > self.now:
            self.run(until=until)


@dataclass
class Executor:
    """A running executor."""

    born: float
    idle_since: float
    batches: int = 0
    """Number of batches with tasks on it; while there is one, it is not idle."""


class ExecutorPool:
    """The executors of a job.

    Parameters
    ----------
    scenario
        Policy and cores.
    """

    def __init__(self, env: Clock, scenario: Scenario) -> None:
        self._env, self._scenario, self._policy = env, scenario, scenario.scaling
        self._random = random.Random(scenario.seed)  # randomness in a model, no secret
        self._running: list[Executor] = []
        self._starting = 0
        self._generation = 0
        self.changed = 0.0
        """Seconds at which an executor joined or ended for the last time."""
        self._chosen = 0.0
        self._uses: deque[tuple[float, int, int]] = deque(maxlen=_REMEMBERED)
        self._used: defaultdict[int, list[Executor]] = defaultdict(list)
        """Executors with tasks of each query's batch."""
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
        self._add_executors(policy.initial)
        # Spark runs the first batch at once; here nothing waits yet, so the first batch comes one trigger later.
        for each in self._running:
            each.idle_since = min((query.trigger for query in scenario.queries), default=0.0)

    @property
    def executor_count(self) -> int:
        """Number of running executors."""
        return len(self._running)

    @property
    def scales_during_batch(self) -> bool:
        """True if executors may start while a batch runs."""
        return self._starting > 0 or isinstance(self._policy, DynamicAllocation)

    @property
    def cores(self) -> int:
        """Cores of the running executors, which all queries share; at least one."""
        return len(self._running) * self._scenario.executor_cores or 1

    def assign_tasks(self, query: int, tasks: int, since: float = 0.0) -> None:
        """Assign tasks of a query's batch to random executors, as Spark does.

        Parameters
        ----------
        tasks
            Number of tasks that wait.
        since
            Only executors that joined since this time in seconds take them.
        """
        self.remove_idle_executors(self._env.seconds)
        if self._idle < _FOREVER:
            self._uses.append((self._env.seconds, query, tasks))
            self._used[query] += self._occupy_random_executors(
                tasks, [each for each in self._running if each.born >= since]
            )

    def _occupy_random_executors(self, tasks: int, among: list[Executor]) -> list[Executor]:
        if tasks < len(among):
            # One by choice is the same one, sooner.
            among = [self._random.choice(among)] if tasks == 1 else self._random.sample(among, tasks)
            self._chosen = self._env.seconds
        for each in among:
            each.batches += 1
        return among

    def mark_idle(self, query: int) -> None:
        """Mark executors as idle after the tasks of a query's batch, unless another query's batch has tasks on them."""
        if self._idle < _FOREVER:
            self._uses.append((self._env.seconds, query, 0))
            self._release_executors(query, self._env.seconds)

    def _release_executors(self, query: int, at: float) -> None:
        for each in self._used.pop(query):
            each.batches -= 1
            each.idle_since = at

    def remove_idle_executors(self, now: float) -> None:
        """Remove executors that were idle for too long, at the time when the limit was reached."""
        if self._idle == _FOREVER:
            return
        for each in self._executors_idle_too_long(now):
            self._running.remove(each)
            self.lives.append((each.born, each.idle_since + self._idle))
            self.changed = now

    def _executors_idle_too_long(self, now: float) -> list[Executor]:
        if self.executor_count <= self._least:
            return []
        idle = [each for each in self._running if not each.batches and each.idle_since + self._idle <= now]
        idle.sort(key=lambda each: each.idle_since)
        return idle[: self.executor_count - self._least]

    def missing_executors(self, tasks: int) -> int:
        """Return how many more executors the running and waiting tasks of all queries allow."""
        if not isinstance(self._policy, DynamicAllocation):
            return 0
        return (
            self._policy.needed_executors(tasks, self._scenario.executor_cores)
            - self.executor_count
            - self._starting
        )

    @property
    def backlog_timeouts_or_none(self) -> tuple[float, float] | None:
        """Seconds that tasks wait before the first executors are requested, and between two requests; None if none ever are."""
        policy = self._policy
        return (
            (policy.backlog_timeout, policy.sustained_timeout)
            if isinstance(policy, DynamicAllocation)
            else None
        )

    def request_executors(self, executors: int) -> None:
        """Request executors; they join the pool after their start-up time."""
        self._starting += executors
        self._env.process(self._start_executors(executors))

    def report_batch(self, query: str, seconds: float, trigger: float) -> None:
        """Report the duration of a batch to the policy."""
        policy = self._policy
        if not isinstance(policy, GlueAutoScaling) or trigger <= 0:
            return
        self._last[query].append(seconds / trigger)
        expected = self.executor_count + self._starting
        wanted = policy.desired_executors(expected, list(self._last.values()))
        if wanted == expected:
            return
        for last in self._last.values():  # the next decision is about the new size
            last.clear()
        if wanted > expected:
            self.request_executors(wanted - expected)
        else:
            self.lives += [(each.born, self._env.seconds) for each in self._running[wanted:]]
            del self._running[wanted:]
            self.changed = self._env.seconds

    @property
    def remembered_batches(self) -> int:
        """Number of batches of a query on which the next decision depends."""
        return self._policy.batches if isinstance(self._policy, GlueAutoScaling) else 1

    def possible_repetitions(
        self, number: int, period: float, queries: Sequence[tuple[int, float]], *, ends: bool
    ) -> int:
        """Return how often a period can repeat, up to a number, before an executor joins or ends; they are used as if it did.

        Parameters
        ----------
        period
            Seconds after which batches are like those before.
        queries
            Number of tasks, and seconds without tasks between two batches, of each query.
        ends
            Whether the simulation ends then, so that it does not matter which executors are idle.
        """
        policy = self._policy
        if self._starting:
            return 0
        if isinstance(policy, GlueAutoScaling):
            last = list(self._last.values())
            full = all(not each or len(each) == policy.batches for each in last)
            return (
                number
                if full and policy.desired_executors(self.executor_count, last) == self.executor_count
                else 0
            )
        together = sum(tasks for tasks, _ in queries)
        if together > self.cores and self.missing_executors(together) > 0:
            return 0
        since = self._env.time_just_before_ended_period(period)
        all_used = any(tasks >= self.executor_count and pause < self._idle for tasks, pause in queries)
        if (all_used or self.executor_count <= self._least) and (ends or self._chosen < since):
            for executor in self._running:
                if executor.idle_since >= since:
                    executor.idle_since += number * period
            return number
        return self._repetitions_until_idle_executor(number, period)

    def _repetitions_until_idle_executor(self, number: int, period: float) -> int:
        """Assign the tasks of the last period again and again, and return how often until an executor is idle for too long."""
        since = self._env.time_just_before_ended_period(period)
        if self._uses[0][0] >= since:
            return 0
        uses = [each for each in self._uses if each[0] >= since]
        soonest = 0.0
        chance, used = self._random.getstate(), self._used.copy()
        before = [(each.idle_since, each.batches) for each in self._running]
        for done in range(number):
            for time, query, tasks in uses:
                at = time + (done + 1) * period
                if not tasks:
                    self._release_executors(query, at)
                    continue
                # None is idle for too long before the one that ended its tasks first may be.
                if at >= soonest:
                    if self._executors_idle_too_long(at):
                        self._random.setstate(chance)
                        self._used = used
                        for executor, (idle, batches) in zip(self._running, before, strict=True):
                            executor.idle_since, executor.batches = idle, batches
                        return self._repetitions_until_idle_executor(done, period)
                    soonest = min(each.idle_since for each in self._running) + self._idle
                self._used[query] = self._occupy_random_executors(tasks, self._running)
        return number

    def lose_all_executors(self) -> None:
        """End every executor, including those that are still starting."""
        self.remove_idle_executors(self._env.seconds)
        self._generation += 1
        self._starting = 0
        self._used.clear()
        self.lives += [(each.born, self._env.seconds) for each in self._running]
        self._running.clear()
        for last in self._last.values():
            last.clear()

    def restart_with_initial_executors(self) -> None:
        """Start as at the first start."""
        self._add_executors(self._policy.initial)

    def end_and_list_lifetimes(self, now: float) -> list[tuple[float, float]]:
        """Return all lifetimes; those of running executors end now."""
        self.remove_idle_executors(now)
        return [*self.lives, *((each.born, now) for each in self._running)]

    def _start_executors(self, executors: int) -> Generator[simpy.Event, None, None]:
        generation = self._generation
        assert isinstance(self._policy, DynamicAllocation | GlueAutoScaling)
        yield self._env.event_after(self._policy.worker_start)
        if generation != self._generation:
            return
        self._starting -= executors
        self._add_executors(min(executors, self._policy.most - self.executor_count))
        grown, self.grown = self.grown, self._env.event()
        grown.succeed()

    def _add_executors(self, executors: int) -> None:
        self.changed = now = self._env.seconds
        self._running += [Executor(now, now) for _ in range(executors)]
