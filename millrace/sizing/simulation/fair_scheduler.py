"""Cores that the queries of a job share, with a pool of Spark's FAIR scheduler for each query."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial

import simpy

from millrace.sizing.queries.partition_tasks import EqualTasks
from millrace.sizing.simulation.executor_pool import Clock, ExecutorPool


class _TaskPool:
    """Tasks of a query's batch.

    Attributes
    ----------
    waiting
        Those that have not begun, longest first.
    running
        Number of those that run.
    done
        Event for the end of the last one.
    """

    def __init__(self) -> None:
        self.waiting: list[EqualTasks] = []
        self.running = 0
        self.done: simpy.Event | None = None

    @property
    def waiting_count(self) -> int:
        """Tasks that wait."""
        return sum(each.count for each in self.waiting)


class FairScheduler:
    """Assigns tasks of all queries to cores: a free core takes one of the pool with the fewest running tasks, and none is ended.

    Parameters
    ----------
    pool
        Executors.
    """

    def __init__(self, env: Clock, pool: ExecutorPool) -> None:
        self._env, self.pool = env, pool
        self._pools: list[_TaskPool] = []
        self._running = 0
        self._requesting = False
        self._generation = 0
        env.process(self._use_new_executors())

    def add_query_pool(self) -> int:
        """Return the number of a further query."""
        self._pools.append(_TaskPool())
        return len(self._pools) - 1

    def run(self, query: int, tasks: list[EqualTasks]) -> simpy.Event:
        """Run the tasks of a batch.

        Parameters
        ----------
        tasks
            Longest first.

        Returns
        -------
        Event
            For the end of all of them.
        """
        own = self._pools[query]
        own.waiting, own.done = list(tasks), simpy.Event(self._env)
        self.pool.assign_tasks(query, own.waiting_count)
        self._assign_tasks()
        if own.waiting and not self._requesting and self.pool.backlog_timeouts_or_none:
            self._env.process(self._request_executors())
        return own.done

    def lose_all_executors(self) -> None:
        """End every executor and every task."""
        self.pool.lose_all_executors()
        self._generation += 1
        for each in self._pools:
            each.waiting, each.running = [], 0
        self._running = 0

    def _assign_tasks(self) -> None:
        waiting = [each for each in self._pools if each.waiting]
        free = self.pool.cores - self._running if waiting else 0
        while free > 0 and len(waiting) > 1:
            least = min(each.running for each in waiting)
            first = [each for each in waiting if each.running == least]
            above = min((each.running - least for each in waiting if each.running > least), default=free)
            # All pools with the fewest take as many as bring them to the next one.
            step = max(1, min(above, free // len(first)))
            for each in first[:free]:
                free -= self._begin_tasks(each, step)
            waiting = [each for each in waiting if each.waiting]
        while free > 0 and waiting and waiting[0].waiting:
            free -= self._begin_tasks(waiting[0], free)

    def _begin_tasks(self, own: _TaskPool, most: int) -> int:
        first = own.waiting[0]
        number = min(most, first.count)
        own.waiting[:1] = [EqualTasks(first.seconds, first.count - number)] if number < first.count else []
        own.running += number
        self._running += number
        end = self._env.event_after(first.seconds)
        assert end.callbacks is not None
        end.callbacks.append(partial(self._end_tasks_and_assign_more, own, number, self._generation))
        return number

    def _end_tasks_and_assign_more(
        self, own: _TaskPool, number: int, generation: int, _: simpy.Event
    ) -> None:
        if generation != self._generation:
            return
        own.running -= number
        self._running -= number
        if not own.running and not own.waiting and own.done is not None:
            own.done.succeed()
        self._assign_tasks()

    @property
    def _waiting_and_running_count(self) -> int:
        return sum(each.waiting_count + each.running for each in self._pools)

    def _request_executors(self) -> Generator[simpy.Event, object, None]:
        """Request executors as long as tasks wait: one, two, four, ..."""
        self._requesting = True
        assert self.pool.backlog_timeouts_or_none is not None
        pause, again = self.pool.backlog_timeouts_or_none
        step, generation = 1, self._generation
        while True:
            yield self._env.event_after(pause)
            if not any(each.waiting for each in self._pools) or generation != self._generation:
                break
            asked = min(step, self.pool.missing_executors(self._waiting_and_running_count))
            if asked > 0:
                self.pool.request_executors(asked)
            step *= 2
            pause = again
        self._requesting = False

    def _use_new_executors(self) -> Generator[simpy.Event, object, None]:
        while True:
            yield self.pool.grown
            for query, each in enumerate(self._pools):
                if each.waiting:
                    self.pool.assign_tasks(query, each.waiting_count, since=self._env.seconds)
            self._assign_tasks()
