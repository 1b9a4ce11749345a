"""Errors that stop a synthesis with a message instead of a traceback."""

from __future__ import annotations


class InfrastructureError(ValueError):
    """A request of the environment that cannot be built; the message says what to do."""
