"""Constructs that the stacks are built from."""
