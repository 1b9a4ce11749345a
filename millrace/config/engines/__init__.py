"""Engines that run jobs; one module for each kind."""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from millrace.config.engines.base import JobBase

GROUP = "millrace.engines"
"""Entry points by which an installed distribution adds kinds."""

ENGINES = {
    "glue": "millrace.config.engines.glue:GlueJob",
    "emr": "millrace.config.engines.emr:EmrJob",
} | {each.name: each.value for each in entry_points(group=GROUP)}
"""Class with the configuration of a job, by ``engine``."""

KINDS: dict[str, type[JobBase]] = {
    kind: EntryPoint(kind, loader, GROUP).load() for kind, loader in ENGINES.items()
}

SPARK = {version: spark for each in KINDS.values() for version, spark in each.spark_versions.items()}
"""Spark version, by version of an engine."""

if TYPE_CHECKING:
    Job = JobBase
else:
    Job = Annotated[Union[tuple(KINDS.values())], Field(discriminator="engine")]  # noqa: UP007 - made at run time
