"""The streaming core for Glue, EMR Serverless and the sandbox; it needs PySpark only."""

if __name__ != "millrace.etl":
    raise ImportError(
        f"import millrace.etl: {__name__} would be a second copy of it, with other classes of the same names"
    )

__version__ = "0.1.0"
