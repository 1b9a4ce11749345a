"""Outputs of a job's metrics: CloudWatch in its region, and a file if requested."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..launch.settings import DeriveSettings, QuerySettings
from ..record.batch_accounts import LineOutput
from ..record.errors import StartError
from ..record.job_run_context import JobRun
from . import cloudwatch
from .background_writer import BackgroundWriter
from .jsonlines import JsonLinesFile
from .poll_query_progress import MetricsMonitor
from .trigger_metrics import BacklogInputs, MetricSample


class NonBlockingConsole:
    """Standard output that never blocks: a reader that hangs loses lines and delays nothing.

    Parameters
    ----------
    stream
        Final target of the lines.
    """

    def __init__(self, stream: LineOutput) -> None:
        self._stream = stream
        self.pipe: BackgroundWriter[str] = BackgroundWriter("stdout", self._write)

    def write(self, text: str) -> None:
        """Add a complete line, with its line end."""
        self.pipe.put(text)

    def flush(self) -> None:
        """Do nothing: lines are written as soon as possible."""

    def _write(self, texts: Sequence[str]) -> None:
        self._stream.write("".join(texts))
        self._stream.flush()


def start_metrics_monitor(
    name: str,
    run: JobRun,
    console: NonBlockingConsole,
    region: str | None = None,
    others: Mapping[str, Callable[[Sequence[MetricSample]], None]] = MappingProxyType({}),
    followers: Mapping[str, BackgroundWriter[Mapping[str, Any]]] = MappingProxyType({}),
) -> MetricsMonitor:
    """Open the outputs and start to measure.

    Parameters
    ----------
    name
        Deployed name of the job.
    run
        Source of the events, with the bind ``metrics.file``; the path of the file is an event too.
    console
        Standard output.
    region
        Region of CloudWatch; None sends nothing there.
    others
        Further outputs, by name.
    followers
        Pipes of queries, by name (:class:`etl.metrics.poll_query_progress.MetricsMonitor`).

    Raises
    ------
    StartError
        The file cannot be written.
    """
    outputs: list[BackgroundWriter[MetricSample]] = [
        BackgroundWriter(f"metrics-{other}", write) for other, write in others.items()
    ]
    if region is not None:
        sent = cloudwatch.CloudWatchSender(name, region, run.report).write
        gathered = cloudwatch.GATHER_SECONDS
        outputs.append(
            BackgroundWriter(
                "metrics-cloudwatch", sent, gather_seconds=gathered, urgent=_has_start_or_failure
            )
        )
    if file := run.binds.get("metrics.file"):
        outputs.append(
            BackgroundWriter("metrics-file", JsonLinesFile(_writable_metrics_file(file), name).write)
        )
    origins = {query.name: _backlog_inputs(query) for query in run.job.queries}
    monitor = MetricsMonitor(outputs, origins=origins, followers=followers, others=[console.pipe])
    run.report.add_listener(monitor.on_event)
    if file:
        run.report.emit("metrics", file=file)
    return monitor


def _has_start_or_failure(sample: MetricSample) -> bool:
    """Return True for starts and failures, so that a job that dies soon after has reported them."""
    return "Starts" in sample.values or "QueryFailures" in sample.values


def _backlog_inputs(query: QuerySettings) -> BacklogInputs:
    if isinstance(query, DeriveSettings):
        return BacklogInputs()
    # For several sources one number cannot show whose limit was reached.
    limit = query.sources[0].partition_record_limit if len(query.sources) == 1 else None
    return BacklogInputs(counted=all(source.COUNTED for source in query.sources), limit=limit)


def _writable_metrics_file(name: str) -> Path:
    path = Path(name)
    try:
        path.open("a").close()
    except OSError as error:
        raise StartError(f"--bind metrics.file={name}: {error.strerror}") from error
    return path
