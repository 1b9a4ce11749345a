"""Spark settings that each engine starts a job with, before the launch document's own.

The table is ``engine_settings.yaml``, with its date and sources.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from functools import cache
from importlib import resources
from typing import Any, Literal

from pydantic import Field
from ruamel.yaml import YAML

from millrace.config.base import Model
from millrace.config.engines import KINDS
from millrace.config.engines.glue import glue_tasks_per_worker


class EngineDefault(Model):
    """A value that an engine sets instead of Spark's default."""

    value: str
    source: str
    confirmed: bool = True


class SparkSetting(Model):
    """One Spark setting.

    Attributes
    ----------
    effect
        Effect on a streaming job.
    default
        Spark's own, by line: ``4`` means all of 4, ``4.1`` only that one; none where the line does not have the setting.
    engines
        Values by engine, for all its versions.
    """

    effect: str
    default: dict[str, str]
    engines: dict[Literal["glue", "emr"], EngineDefault] = Field(default_factory=dict)

    def value_on_engine(self, engine: str, spark: str) -> str | None:
        """Return its value on an engine with a version of Spark; None where it is not set."""
        result = next((value for name, value in self.engines.items() if name == engine), None)
        lines = [line for line in self.default if f"{spark}.".startswith(f"{line}.")]
        return result.value if result else self.default[max(lines, key=len)] if lines else None


class EngineSettingsTable(Model):
    """All settings, with the date on which they were read."""

    read: date
    source: str
    settings: dict[str, SparkSetting]


@cache
def read_settings_table() -> EngineSettingsTable:
    """Return the table of ``engine_settings.yaml``."""
    text = (resources.files("millrace.sandbox") / "engine_settings.yaml").read_text(encoding="utf-8")
    return EngineSettingsTable.model_validate(YAML(typ="safe", pure=True).load(text))


def engine_default_settings(document: Mapping[str, Any]) -> dict[str, str]:
    """Return the Spark settings with which a job starts on its engine.

    Parameters
    ----------
    document
        The job's launch document: its ``engine``, ``engine_version`` and ``workers`` are read.

    Returns
    -------
    dict
        Setting to value, without the document's own.
    """
    engine, version, workers = document["engine"], document["engine_version"], document["workers"]
    tasks = workers["vcpu"] if engine == "emr" else glue_tasks_per_worker(version, workers["type"])
    slots = (workers["max"] - 1) * int(tasks)  # one worker is the driver
    values = {
        name: row.value_on_engine(engine, KINDS[engine].spark_of_version(version))
        for name, row in read_settings_table().settings.items()
    }
    return {name: value.format(slots=slots) for name, value in values.items() if value is not None}
