"""An environment with what its plan chose, for all that reads it by key."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from millrace.config.base import Model
from millrace.config.model import Environment
from millrace.sizing.cache_by_identity import cached_for_same_objects
from millrace.sizing.plan_model import Plan


@cached_for_same_objects
def environment_as_planned(environment: Environment, plan: Plan) -> Environment:
    """Return an environment with the periods, modes and tiers of its plan; itself where they are those of the file."""
    runs = {name: job.run.every_seconds.value for name, job in plan.jobs.items() if job.run is not None}
    periods = {name: timedelta(seconds=every) for name, every in runs.items()}
    environment = environment_with_choices(environment, "jobs", "run_every", periods)
    modes = {name: stream.mode for name, stream in plan.streams.items()}
    environment = environment_with_choices(environment, "streams", "mode", modes)
    return environment_with_choices(
        environment, "kafka", "tier", {name: cluster.tier for name, cluster in plan.clusters.items()}
    )


def environment_with_choices(
    environment: Environment, section: str, key: str, values: Mapping[str, Any]
) -> Environment:
    """Return an environment with values for a key that members of a section leave open: it still counts as not given."""
    members: Mapping[str, Model] = getattr(environment, section)
    changed = {}
    for name, value in values.items():
        if getattr(members[name], key, value) != value:
            changed[name] = members[name].model_copy(update={key: value})
            changed[name].model_fields_set.discard(key)
    return environment.model_copy(update={section: {**members, **changed}}) if changed else environment
