"""Registry of the engines that a launch document may name; each class is imported when a job runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import typed_json
from .errors import SettingsError

if TYPE_CHECKING:
    from .kinesis_connector_interface import Engine

ENGINES = {
    "glue": ".engines.glue_kinesis_connector:Glue",
    "emr": ".engines.emr_kinesis_connector:Emr",
    "sandbox": ".engines.sandbox_kinesis_connector:Sandbox",
}
"""Class of each engine, by its kind in launch documents; see :mod:`etl.launch.kinesis_connector_interface`."""


def engine_class_path(kind: str) -> str:
    """Return the loader of an engine.

    Raises
    ------
    SettingsError
        The kind is unknown.
    """
    if kind not in ENGINES:
        raise SettingsError(f"settings.engine: {kind!r} is not one of {', '.join(map(repr, ENGINES))}")
    return ENGINES[kind]


def engine_of(kind: str) -> Engine:
    """Return the engine of a kind; errors as in :func:`engine_class_path`."""
    engine: Engine = typed_json.import_object(engine_class_path(kind))()
    return engine
