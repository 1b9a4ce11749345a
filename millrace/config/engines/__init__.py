"""Engines that run jobs; one module for each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Union

from pydantic import Field

from millrace.config.base import load_kinds
from millrace.config.engines.base import JobBase

KINDS: dict[str, type[JobBase]] = load_kinds(
    "millrace.engines",
    {
        "glue": "millrace.config.engines.glue:GlueJob",
        "emr": "millrace.config.engines.emr:EmrJob",
    },
)
"""Class with the configuration of a job, by ``engine``."""

if TYPE_CHECKING:
    Job = JobBase
else:
    Job = Annotated[Union[tuple(KINDS.values())], Field(discriminator="engine")]  # noqa: UP007 - made at run time
