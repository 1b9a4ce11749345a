"""The engines that a launch document may name, each with the class that is imported when a job runs on it."""

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
"""By kind, as launch documents name it, the class of :mod:`etl.launch.engine`'s contract."""


def of(kind: str) -> Engine:
    """The engine of a kind.

    Raises
    ------
    SettingsError
        There is none.
    """
    from .engine import Engine

    engine: Engine = typed_json.read(Engine, kind, "engine")
    return engine
