"""Sizing of jobs: cores of their queries together, memory, workers, scaling, cost."""
