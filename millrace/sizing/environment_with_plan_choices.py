"""An environment with other values: what its plan chose, for all that reads it by key, or a change that is tried."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import lru_cache
from typing import Any

from millrace.config.base import Model
from millrace.config.document.problems import Path
from millrace.config.model import Environment
from millrace.sizing.plan_model import Plan


@lru_cache(maxsize=4)
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


def environment_with_value(section: Any, path: Path, value: Any) -> Any:
    """Return an environment, or a section of one, with the value at a path; without its key if the value is None.

    The key then counts as not given, as if the file did not have it.
    """
    key, *below = path
    if isinstance(section, Mapping):
        return {**section, key: environment_with_value(section[key], tuple(below), value)}
    if below:
        value = environment_with_value(getattr(section, str(key)), tuple(below), value)
    if value is not None:
        return section.model_copy(update={key: value})
    removed = section.model_copy(update={key: type(section).model_fields[key].get_default()})
    removed.model_fields_set.discard(key)
    return removed
