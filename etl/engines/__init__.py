"""Kinesis connectors of Glue, EMR Serverless and the sandbox: one module for each engine, imported when a job runs on it."""
