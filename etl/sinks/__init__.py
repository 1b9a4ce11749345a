"""Sinks: each writes a batch idempotently and documents its guarantee. One module for each kind, imported when a job uses it."""
