"""The sizing model held against known answers and real runs; ``make validate`` writes docs/validation.md."""
