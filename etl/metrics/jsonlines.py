"""Output of metrics as a file of JSON lines, one for each sample, with a size limit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from logging import LogRecord, makeLogRecord
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any

from .trigger_metrics import MetricSample

MOST_BYTES = 10 * 1024 * 1024
KEPT = 4


@dataclass(frozen=True)
class JsonLinesFile:
    """File of samples, with rotation: a full one becomes ``NAME.1``, that one ``NAME.2``, and the last is deleted.

    Parameters
    ----------
    path
        The file; its folder must exist.
    job
        Deployed name of the job, part of every line.
    most_bytes
        Size at which a file is full.
    kept
        Number of full files to keep.
    """

    path: Path
    job: str
    most_bytes: int = MOST_BYTES
    kept: int = KEPT

    def write(self, samples: Sequence[MetricSample]) -> None:
        """Append samples as complete lines.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        with closing(
            _RotatingHandler(self.path, "a", self.most_bytes, self.kept, "utf-8", delay=True)
        ) as file:
            for sample in samples:
                file.emit(makeLogRecord({"msg": json.dumps(sample_as_json_fields(self.job, sample))}))


class _RotatingHandler(RotatingFileHandler):
    def handleError(self, record: LogRecord) -> None:  # noqa: N802 - logging's name
        """Raise the error instead of printing a trace to standard error."""
        raise  # the error that logging is handling


def sample_as_json_fields(job: str, sample: MetricSample) -> Mapping[str, Any]:
    """Return the content of a line: metrics by name, and four figures of the records' age."""
    line: dict[str, Any] = {
        "at": datetime.fromtimestamp(sample.at, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z"),
        "job": job,
        "query": sample.query,
        "batch": sample.batch,
        **{name: round(value, 3) for name, value in sample.values.items()},
    }
    if sample.ages is not None:
        line["RecordAge"] = {
            name: round(sample.ages.quantile(q), 3)
            for name, q in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99), ("max", 1.0))
        }
    return line
