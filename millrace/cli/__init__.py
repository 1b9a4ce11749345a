"""The command ``millrace``: one file per group of verbs."""

from millrace.cli.app import app, main

__all__ = ["app", "main"]
