"""Deployed jobs: how to find one and how to start it."""
