"""The command ``millrace``: one file per command, in a folder for each group."""

from millrace.cli.app import app, main

__all__ = ["app", "main"]
