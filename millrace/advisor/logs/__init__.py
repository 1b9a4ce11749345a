"""Event logs of Spark: found, decompressed, parsed into the history of an application."""
