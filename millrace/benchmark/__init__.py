"""Measured speed of a job's queries: schedule, measurements, and the fit of the model."""
