"""Registry of the engines that a launch document may name; each class is imported when a job runs on it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import typed_json

if TYPE_CHECKING:
    from .engine import Engine

ENGINES = {
    "glue": ".engines.glue:Glue",
    "emr": ".engines.emr:Emr",
    "sandbox": ".engines.sandbox:Sandbox",
}
"""Class of each engine, by its kind in launch documents; see :mod:`etl.launch.engine`."""


def of(kind: str) -> Engine:
    """Return the engine of a kind.

    Raises
    ------
    SettingsError
        The kind is unknown.
    """
    from .engine import Engine

    engine: Engine = typed_json.read(Engine, kind, "engine")
    return engine
