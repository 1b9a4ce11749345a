"""Advisor: event logs in, findings out."""
