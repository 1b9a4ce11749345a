"""Wrappers of a format (routes, decompression, redaction, tombstones) and code that several formats share."""
