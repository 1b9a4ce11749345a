"""Clients of AWS and other services: calls, waits, secrets, checks at a start."""
