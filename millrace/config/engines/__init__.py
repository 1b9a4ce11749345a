"""What jobs run on. One module for each kind."""

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
"""By ``engine``, what may be asked for of a job on it."""

KINDS: dict[str, type[JobBase]] = {
    kind: EntryPoint(kind, loader, GROUP).load() for kind, loader in ENGINES.items()
}

SPARK = {version: spark for each in KINDS.values() for version, spark in each.spark_versions.items()}
"""Spark of each version of every engine."""

if TYPE_CHECKING:
    Job = JobBase
else:
    Job = Annotated[Union[tuple(KINDS.values())], Field(discriminator="engine")]  # noqa: UP007 - made at run time
