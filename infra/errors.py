"""Errors that stop a synthesis with a message instead of a traceback."""

from __future__ import annotations


class InfrastructureError(ValueError):
    """Something that the environment asks for cannot be built; the message says what to do."""
