"""Millrace sizes, deploys, runs and tunes Spark Structured Streaming on AWS."""
