"""Real runs with one fault each, and clean ones, read by the advisor; ``python -m tests.advisor`` writes docs/advisor.md."""
