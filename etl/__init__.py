"""The streaming core for Glue, EMR Serverless and the sandbox; it needs PySpark only."""

if __name__ != "millrace.etl":
    raise ImportError(
        f"import millrace.etl instead of {__name__}: this import would load a second copy of the "
        "package, whose classes differ from those of the first"
    )

__version__ = "0.1.0"
