"""Alarms, their windows and stacks, and the metrics that they watch."""
