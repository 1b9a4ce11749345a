"""Engines as they are deployed: Spark settings, launch document and stack of a job. A job's class names its engine."""

from __future__ import annotations

from pkgutil import resolve_name

from millrace.config.engines import Job

from .base import Engine


def of(job: Job | type[Job]) -> Engine:
    """Return the engine of a job."""
    engine: Engine = resolve_name(job.deployed)()
    return engine
