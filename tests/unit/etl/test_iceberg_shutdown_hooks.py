"""Shutdown hooks of Iceberg's thread pools are removed, for any set of pools."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JError

from millrace.etl.job import jvm_shutdown_hook


class Threads:
    """A JVM with shutdown hooks, and an Iceberg that has some pools."""

    def __init__(self, *pools: str) -> None:
        self.hooks = ["DelayedShutdownHook-for-worker", "Thread-7"]
        self._pools = pools

    def __getattr__(self, name: str) -> Any:
        return self  # a package, or the class in it

    def _pool(self, name: str) -> Any:
        if name not in self._pools:
            raise Py4JError(f"{name} does not exist in the JVM")
        self.hooks.append(f"DelayedShutdownHook-for-{name}")

    def getWorkerPool(self) -> Any:
        return self._pool("getWorkerPool")

    def getDeleteWorkerPool(self) -> Any:
        return self._pool("getDeleteWorkerPool")

    def forName(self, _name: str) -> Any:
        return self

    getDeclaredField = forName

    def setAccessible(self, _yes: bool) -> None:
        pass

    def get(self, _none: None) -> Any:
        return self

    def keySet(self) -> Any:
        return self

    def toArray(self) -> list[Any]:
        class Hook:
            def __init__(self, name: str) -> None:
                self.name = name

            def getName(self) -> str:
                return self.name

        return [Hook(name) for name in self.hooks]

    def getRuntime(self) -> Any:
        return self

    def removeShutdownHook(self, hook: Any) -> bool:
        self.hooks.remove(hook.name)
        return True


@pytest.mark.parametrize(
    ("pools", "taken"), [(("getWorkerPool", "getDeleteWorkerPool"), 3), (("getWorkerPool",), 2), ((), 0)]
)
def test_an_iceberg_without_one_of_the_pools_loses_the_hooks_of_the_others(
    pools: tuple[str, ...], taken: int
) -> None:
    """Without any Iceberg nothing is touched."""
    spark: Any = type("Session", (), {"_jvm": Threads(*pools)})()
    assert jvm_shutdown_hook.remove_iceberg_pool_shutdown_hooks(spark) == taken
    assert [hook for hook in spark._jvm.hooks if hook.startswith("Delayed")] == (
        [] if pools else ["DelayedShutdownHook-for-worker"]
    )
    assert "Thread-7" in spark._jvm.hooks
