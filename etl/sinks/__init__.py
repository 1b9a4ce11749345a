"""Sinks: each writes a batch idempotently and says what it guarantees."""
