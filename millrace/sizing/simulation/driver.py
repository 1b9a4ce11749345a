"""The driver of a job: the fixed costs of batches that begin together share its cores."""

from __future__ import annotations

import math
from functools import partial

import simpy

from millrace.sizing.simulation.executor_pool import Clock

_ENDED = 1e-6
"""Seconds of fixed cost below which the rest is a rounding error: a clock has whole microseconds."""


class Driver:
    """Serves the fixed costs of batches.

    Parameters
    ----------
    at_once
        Batches that it serves at full speed; more share it in equal parts.
    """

    def __init__(self, env: Clock, at_once: float) -> None:
        self._env, self._at_once = env, at_once
        self._left: dict[simpy.Event, float] = {}
        self._since = env.now
        self._generation = 0

    def run(self, seconds: float) -> simpy.Event:
        """Return an event for the end of a fixed cost that takes so many seconds alone."""
        if self._at_once == math.inf:
            return self._env.wait(seconds)
        self._advance()
        done = self._env.event()
        self._left[done] = seconds
        self._wait()
        return done

    def lose_all(self) -> None:
        """End all that it does."""
        self._left.clear()
        self._generation += 1

    @property
    def _slower(self) -> float:
        return max(1.0, len(self._left) / self._at_once)

    def _advance(self) -> None:
        # Time that is skipped does not count: all that runs goes on as before.
        spent = self._env.elapsed(self._since) / self._slower if self._left else 0.0
        self._since = self._env.now
        for each in self._left:
            self._left[each] -= spent

    def _wait(self) -> None:
        self._generation += 1
        if self._left:
            end = self._env.wait(max(0.0, min(self._left.values())) * self._slower)
            assert end.callbacks is not None
            end.callbacks.append(partial(self._end, self._generation))

    def _end(self, generation: int, _: simpy.Event) -> None:
        if generation != self._generation:
            return
        self._advance()
        for each in [each for each, left in self._left.items() if left < _ENDED]:
            del self._left[each]
            each.succeed()
        self._wait()
