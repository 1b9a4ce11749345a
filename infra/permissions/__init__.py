"""Statements of IAM: of a job, of its sources, of the people who run commands."""
