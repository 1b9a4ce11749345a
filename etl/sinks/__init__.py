"""Sinks: each writes a batch idempotently and says what it guarantees. One module for each kind, imported when a job has it."""
