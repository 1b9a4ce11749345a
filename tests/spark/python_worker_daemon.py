"""Daemon of Spark's Python workers that does not read the directories of zip files again for each task.

PySpark's worker begins each task with ``importlib.invalidate_caches()``, for which Python reads the directories of ``pyspark.zip``,
Spark's own jar and all others on its path: four fifths of a task's CPU time, and a seventh of that of all these tests, as each local list
of rows that becomes a DataFrame goes through two such tasks. Nothing changes those files while the tests run.
"""

from __future__ import annotations

import zipimport

from pyspark import daemon


def _keep(importer: zipimport.zipimporter) -> None:
    """Keep what was read of the archive."""


if __name__ == "__main__":
    zipimport.zipimporter.invalidate_caches = _keep  # type: ignore[method-assign]
    daemon.manager()
