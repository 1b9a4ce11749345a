"""Simulated time in whole microseconds, of which a part can be skipped."""

from __future__ import annotations

import simpy

_TICKS = 1_000_000
_NEVER = 1e12


class Clock(simpy.Environment):
    """Events in order of time; ticks are whole numbers, so that what happens at the same time does so exactly."""

    _skipped = 0

    @property
    def seconds(self) -> float:
        """Seconds since the beginning, including those that were skipped."""
        return (int(self.now) + self._skipped) / _TICKS

    def wait(self, seconds: float) -> simpy.Timeout:
        """Return an event after so many seconds."""
        return self.timeout(round(min(seconds, _NEVER) * _TICKS))

    def skip(self, seconds: float) -> None:
        """Skip time: all that waits goes on waiting for as long as before."""
        self._skipped += round(seconds * _TICKS)

    def run_until(self, seconds: float) -> None:
        """Run all events before a time."""
        until = round(seconds * _TICKS) - self._skipped
        if until > self.now:
            self.run(until=until)
