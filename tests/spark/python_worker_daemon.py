"""Daemon of Spark's Python workers that does not read the directories of zip files again for each task.

The core does the same in its own tasks. Here it begins in the daemon, as each local list of rows that becomes a DataFrame goes
through two tasks without the core's code: a seventh of the CPU time of all these tests.
"""

from __future__ import annotations

from pyspark import daemon

from millrace.etl.services.python_task_start import skip_reading_zip_directories

if __name__ == "__main__":
    skip_reading_zip_directories()
    daemon.manager()
