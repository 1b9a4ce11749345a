"""Deployed jobs: start, watch, logs, checkpoints, erasure."""
