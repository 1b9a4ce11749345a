"""Names of a job that runs elsewhere: there, and in an environment file."""

from __future__ import annotations

import re


def name_without_run_id(where: str) -> str:
    """Return the part of a job's place that is the same for all runs: EMR Serverless' run id follows a slash.

    Examples
    --------
    >>> name_without_run_id("emr:00f1/00run"), name_without_run_id("glue:team/orders")
    ('emr:00f1', 'glue:team/orders')
    """
    return where.partition("/")[0] if where.startswith("emr:") else where


def slug(text: str) -> str:
    """Return a valid name of the environment file for any text."""
    words = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    return (words if words[:1].isalpha() else f"s-{words}")[:40].rstrip("-")
