"""What Spark knows about a running query, asked for beside it: no call of Spark's ever waits for us.

A query is asked about once a second, in place of a ``StreamingQueryListener`` in Python, which Spark 3.3
(Glue 4.0) does not have and which runs inside a thread of Spark's own (``docs/adr/0500-polled-progress.md``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Feed(Protocol):
    """Where a query's progress comes from."""

    def progress(self) -> list[dict[str, Any]]:
        """Return the triggers that ended since the last call, the oldest first."""

    def failed_tasks(self) -> int:
        """Return the tasks that failed in jobs of the query that ended since the last call."""


class SparkFeed:
    """A query of this Spark session.

    Parameters
    ----------
    query
        Started.
    """

    def __init__(self, spark: SparkSession, query: StreamingQuery) -> None:
        self._query: Any = query._jsq
        self._group = str(query.runId)
        self._context: Any = spark._jsc.sc()
        self._seen = ""
        self._last_job = -1

    def progress(self) -> list[dict[str, Any]]:
        """Return the triggers that ended since the last call, the oldest first.

        Spark keeps a hundred; those with data come when they end, those without every ten seconds
        (``spark.sql.streaming.noDataProgressEventInterval``).
        """
        recent = self._query.recentProgress()
        new: list[dict[str, Any]] = []
        # From the newest backwards: each look into the JVM is a call.
        for index in range(len(recent) - 1, -1, -1):
            begun = str(recent[index].timestamp())
            if begun <= self._seen:
                break
            new.append(json.loads(recent[index].json()))
        if new:
            self._seen = str(new[0]["timestamp"])
        return new[::-1]

    def failed_tasks(self) -> int:
        """Return the tasks that failed in jobs of the query that ended since the last call.

        A job of Spark's that still runs is left for a later call.
        """
        jobs = self._context.statusTracker().getJobIdsForGroup(self._group)
        last, failed = self._last_job, 0
        newest = last
        for index in range(len(jobs)):  # the newest first
            job = int(jobs[index])
            if job <= last:
                break
            newest = max(newest, job)
            try:
                data = self._context.statusStore().job(job)
                if str(data.status()) == "RUNNING":
                    newest = job - 1
                else:
                    failed += int(data.numFailedTasks())
            except Py4JJavaError:
                continue  # so many jobs since that Spark has forgotten this one
        self._last_job = newest
        return failed
