"""Differences between Glue, EMR Serverless and the sandbox: one module for each kind, imported when a job runs on it."""
