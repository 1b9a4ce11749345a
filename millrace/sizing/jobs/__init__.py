"""Sizing of jobs: demand of queries, cores, memory, workers, triggers, scaling."""
