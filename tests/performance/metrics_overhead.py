"""Cost of monitoring a query: landing with the core's monitor, and with an additional Spark listener."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from millrace.etl.metrics import arrival_times, cloudwatch
from millrace.etl.metrics.background_writer import BackgroundWriter
from millrace.etl.metrics.jsonlines import JsonLinesFile
from millrace.etl.metrics.poll_query_progress import MetricsMonitor, SparkProgress
from millrace.etl.metrics.trigger_metrics import BacklogInputs, MetricSample
from millrace.etl.record.batch_accounts import EventReporter

if TYPE_CHECKING:
    from tests.performance.kafka_landing_speed import Bench


def _make_calls(name: str, samples: Sequence[MetricSample]) -> None:
    for _ in cloudwatch.put_metric_data_calls(name, samples):
        pass


def watched(bench: Bench, name: str) -> Watched:
    report = EventReporter("flights", bench.log)
    query = bench.land_query(name, report)
    outputs: list[BackgroundWriter[MetricSample]] = [
        # All but the call itself, which waits for the network.
        BackgroundWriter(
            "cloudwatch",
            partial(_make_calls, name),
            gather_seconds=cloudwatch.GATHER_SECONDS,
        ),
        BackgroundWriter("file", JsonLinesFile(Path(query.checkpoint).with_suffix(".jsonl"), name).write),
    ]
    monitor = MetricsMonitor(outputs, origins={name: BacklogInputs(counted=True)})
    report.add_listener(monitor.on_event)
    started = (
        arrival_times.observe_arrivals(query.rows)
        .writeStream.foreachBatch(query.handle)
        .option("checkpointLocation", query.checkpoint)
        .start()
    )
    monitor.watch(name, SparkProgress(bench.spark, started))
    return Watched(started, monitor)


class Watched:
    """A query with its monitor, stopped together."""

    def __init__(self, query: Any, monitor: MetricsMonitor) -> None:
        self._query, self._monitor = query, monitor
        self.processAllAvailable = query.processAllAvailable  # the names are Spark's
        self.then: list[Callable[[], object]] = []

    @property
    def recentProgress(self) -> Any:
        return self._query.recentProgress

    def stop(self) -> None:
        self._query.stop()
        self._monitor.close()
        for call in self.then:
            call()


def listener(bench: Bench, name: str) -> Any:
    class Hearing(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None: ...
        def onQueryProgress(self, event: Any) -> None:
            json.loads(event.progress.json)

        def onQueryIdle(self, event: Any) -> None: ...
        def onQueryTerminated(self, event: Any) -> None: ...

    hearing = Hearing()
    bench.spark.streams.addListener(hearing)
    found = watched(bench, name)
    found.then.append(lambda: bench.spark.streams.removeListener(hearing))
    return found
