"""What each engine makes of a job: Spark settings, launch document, stack. A job's class names its own."""

from __future__ import annotations

from pkgutil import resolve_name

from millrace.config.engines import Job

from .base import Engine


def of(job: Job | type[Job]) -> Engine:
    """The engine of a job."""
    engine: Engine = resolve_name(job.deployed)()
    return engine
