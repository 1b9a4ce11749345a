"""Errors that a person can do something about."""

from __future__ import annotations


class StartError(Exception):
    """A job that must not start: its configuration, code or tables do not fit. Exit status 2."""


class AccountsError(Exception):
    """The accounts of a batch did not arrive or do not balance; its data are committed or not, as a whole."""
