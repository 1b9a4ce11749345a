"""The streaming core for Glue, EMR Serverless and the sandbox; it needs PySpark only."""

__version__ = "0.1.0"
