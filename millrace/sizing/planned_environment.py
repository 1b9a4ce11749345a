"""An environment with what its plan chose, for all that reads it by key."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, TypeVar

from millrace.config.base import Model
from millrace.config.model import Environment, KinesisStream, MskCluster
from millrace.sizing.model import ClusterPlan, Plan

M = TypeVar("M", bound=Model)


def as_planned(environment: Environment, plan: Plan) -> Environment:
    """Return an environment with the periods, modes and tiers that its plan chose; itself where the file gives all of them."""
    for name, job in plan.jobs.items():
        if job.run is not None and environment.jobs[name].run_every is None:
            environment = with_choice(
                environment, "jobs", name, "run_every", timedelta(seconds=job.run.every_seconds.value)
            )
    for name, stream in plan.streams.items():
        settings = environment.streams[name]
        if isinstance(settings, KinesisStream) and settings.mode != stream.mode:
            environment = with_choice(environment, "streams", name, "mode", stream.mode)
    return with_tiers(environment, plan.clusters)


def with_tiers(environment: Environment, clusters: Mapping[str, ClusterPlan]) -> Environment:
    """Return an environment with the tiers that the plan chose for its clusters."""
    for name, cluster in clusters.items():
        settings = environment.kafka[name]
        if isinstance(settings, MskCluster) and settings.tier != cluster.tier:
            environment = with_choice(environment, "kafka", name, "tier", cluster.tier)
    return environment


def with_choice(environment: Environment, section: str, name: str, key: str, value: Any) -> Environment:
    """Return an environment with a value for a member's key that its file leaves open: the key counts as not given."""
    members = getattr(environment, section)
    return environment.model_copy(
        update={section: {**members, name: _with_choice(members[name], key, value)}}
    )


def _with_choice(model: M, key: str, value: Any) -> M:
    changed = model.model_copy(update={key: value})
    changed.model_fields_set.discard(key)
    return changed
