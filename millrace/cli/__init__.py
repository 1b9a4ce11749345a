"""The command ``millrace``: a folder for each group of its commands."""

from millrace.cli.app import app, main

__all__ = ["app", "main"]
