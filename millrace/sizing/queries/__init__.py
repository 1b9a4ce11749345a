"""Sizing of queries: rates, shares of the SLA, triggers, demand for cores, limits of batches."""
