"""Start of a task in a Python worker of Spark."""

from __future__ import annotations

import zipimport


def skip_reading_zip_directories() -> None:
    """Let further tasks of this worker begin without reading the directories of zip files again.

    PySpark's worker begins each task with ``importlib.invalidate_caches()``. From Python 3.10 on this reads the directory of
    an archive once for each package that was imported from it: of PySpark's, of Spark's jar, and of the job's. That is most
    of what a small task takes. A worker's archives never change: Spark copies them for each application.
    """
    zipimport.zipimporter.invalidate_caches = _keep_directory  # type: ignore[assignment, method-assign]


def _keep_directory(importer: zipimport.zipimporter) -> None:
    """Leave an archive's directory as it was read."""
