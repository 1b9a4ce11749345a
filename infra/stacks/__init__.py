"""Stacks of an environment, one module per stack."""
