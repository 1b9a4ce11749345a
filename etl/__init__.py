"""The streaming core: runs on Glue, EMR Serverless and the sandbox, with PySpark alone."""
