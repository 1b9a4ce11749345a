"""A file of JSON lines, one for each sample, that never grows without bound."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .progress import Sample

MOST_BYTES = 10 * 1024 * 1024
KEPT = 4


@dataclass(frozen=True)
class JsonLines:
    """Appends samples to a file; a full one becomes ``NAME.1``, that one ``NAME.2``, and the last is deleted.

    Parameters
    ----------
    path
        The file; its folder must be there.
    job
        Deployed name of the job, part of every line.
    most_bytes
        Size at which a file is full.
    kept
        Full files that stay.
    """

    path: Path
    job: str
    most_bytes: int = MOST_BYTES
    kept: int = KEPT

    def write(self, samples: Sequence[Sample]) -> None:
        """Append samples, in whole lines.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        text = "".join(json.dumps(fields(self.job, sample)) + "\n" for sample in samples)
        if self.path.exists() and self.path.stat().st_size + len(text) > self.most_bytes:
            self._rotate()
        with self.path.open("a", encoding="utf-8") as file:
            file.write(text)

    def _rotate(self) -> None:
        for number in range(self.kept - 1, 0, -1):
            if self._old(number).exists():
                self._old(number).replace(self._old(number + 1))
        self.path.replace(self._old(1))

    def _old(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}")


def fields(job: str, sample: Sample) -> Mapping[str, Any]:
    """What a line of the file holds: metrics by name, and four figures of the records' age."""
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
