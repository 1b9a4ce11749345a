"""What a job that runs elsewhere is called, there and in an environment file."""

from __future__ import annotations


def stable_name(where: str) -> str:
    """What stays of where a job is from run to run: a run of EMR Serverless comes after a slash, a Glue job's name may have one.

    Examples
    --------
    >>> stable_name("emr:00f1/00run"), stable_name("glue:team/orders")
    ('emr:00f1', 'glue:team/orders')
    """
    return where.partition("/")[0] if where.startswith("emr:") else where


def slug(text: str) -> str:
    """Make a name of the environment file out of any."""
    kept = "".join(each if each.isascii() and each.isalnum() else "-" for each in text.lower()).strip("-")
    while "--" in kept:
        kept = kept.replace("--", "-")
    return (kept if kept[:1].isalpha() else f"s-{kept}")[:40].rstrip("-")
