"""Engines as they are deployed: Spark settings, launch document and stack of a job."""

from __future__ import annotations

from millrace.config.base import load_kind

from .base import DeployedEngine

ENGINES = {
    "glue": "millrace.infra.engines.glue:DeployedGlue",
    "emr": "millrace.infra.engines.emr:DeployedEmr",
}
"""Class of each engine, by its kind; a distribution adds its own as ``millrace.deployed_engines``, or has the base class."""


def deployed_engine(kind: str) -> DeployedEngine:
    """Return the engine of a kind."""
    engine: DeployedEngine = (load_kind("millrace.deployed_engines", ENGINES, kind) or DeployedEngine)()
    return engine
