"""Where a job's metrics go: CloudWatch of its region; a file where it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ..launch.settings import DeriveSettings, JobSettings, QuerySettings
from ..record.batch_accounts import Reporter, Stream
from ..record.errors import StartError
from . import cloudwatch
from .jsonlines import JsonLines
from .monitor import Monitor
from .output_queues import Pipe
from .progress import BacklogSource, MetricSample


class Console:
    """Standard output, at which nobody waits: a reader that hangs loses lines and holds nothing up.

    Parameters
    ----------
    stream
        Where the lines go in the end.
    """

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.pipe: Pipe[str] = Pipe("stdout", self._write)

    def write(self, text: str) -> None:
        """Hand a whole line over, with its end."""
        self.pipe.put(text)

    def flush(self) -> None:
        """Do nothing: what is handed over is written at once."""

    def _write(self, texts: Sequence[str]) -> None:
        self._stream.write("".join(texts))
        self._stream.flush()


def open_monitor(
    name: str,
    job: JobSettings,
    console: Console,
    report: Reporter,
    binds: Mapping[str, str],
    region: str | None = None,
    others: Mapping[str, Callable[[Sequence[MetricSample]], None]] = MappingProxyType({}),
    followers: Mapping[str, Pipe[Mapping[str, Any]]] = MappingProxyType({}),
) -> Monitor:
    """Open the outputs and begin to measure.

    Parameters
    ----------
    name
        Deployed name of the job.
    job
        Its settings: what its queries read.
    console
        Standard output.
    report
        Whose events are listened to; it is told where the file is.
    binds
        Names and values of ``--bind``: ``metrics.file``.
    region
        Of the job's CloudWatch; None sends nothing there.
    others
        More outputs, by name.
    followers
        Of queries, by name (:class:`etl.metrics.monitor.Monitor`).

    Raises
    ------
    StartError
        A file that cannot be written.
    """
    outputs: list[Pipe[MetricSample]] = [Pipe(f"metrics-{other}", write) for other, write in others.items()]
    if region is not None:
        sent = cloudwatch.CloudWatch(name, region, report).write
        gathered = cloudwatch.GATHER_SECONDS
        outputs.append(Pipe("metrics-cloudwatch", sent, gather_seconds=gathered, urgent=_urgent))
    if file := binds.get("metrics.file"):
        outputs.append(Pipe("metrics-file", JsonLines(_file(file), name).write))
    origins = {query.name: _origin(query) for query in job.queries}
    monitor = Monitor(outputs, origins=origins, followers=followers, others=[console.pipe])
    report.listen(monitor.on_event)
    if file:
        report.emit("metrics", file=file)
    return monitor


def _urgent(sample: MetricSample) -> bool:
    """Starts and failures: a job that dies soon after has told of them."""
    return "Starts" in sample.values or "QueryFailures" in sample.values


def _origin(query: QuerySettings) -> BacklogSource:
    if isinstance(query, DeriveSettings):
        return BacklogSource()
    # Of several sources nobody can say by one number whose limit was hit.
    limit = query.sources[0].partition_limit if len(query.sources) == 1 else None
    return BacklogSource(counted=all(source.COUNTED for source in query.sources), limit=limit)


def _file(given: str) -> Path:
    path = Path(given)
    try:
        path.open("a").close()
    except OSError as error:
        raise StartError(f"--bind metrics.file={given}: {error.strerror}") from error
    return path
