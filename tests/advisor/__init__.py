"""Tests of the advisor on real runs, each with at most one known fault; ``python -m tests.advisor`` writes docs/advisor.md."""
