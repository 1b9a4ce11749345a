"""Validation of the sizing model against known answers and real runs; ``make validate`` writes docs/validation.md."""
