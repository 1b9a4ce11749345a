"""Errors of the launch document and of a job that it cannot start."""

from __future__ import annotations


class StartError(Exception):
    """Error of a job that must not start: its configuration, code or tables do not fit. Exit status 2."""


class SettingsError(ValueError):
    """Launch document that this version of the core does not understand."""
