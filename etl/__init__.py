"""The streaming core: runs on Glue, EMR Serverless and the sandbox, with PySpark alone."""

__version__ = "0.1.0"
