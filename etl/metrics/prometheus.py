"""A page that Prometheus scrapes, served by the driver on 127.0.0.1.

Text format 0.0.4 ("Exposition formats", Prometheus documentation). The library that writes it is
on no engine, and the core is standard library and PySpark alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from etl.metrics.catalogue import METRICS, PREFIX, Metric
from etl.metrics.progress import Sample
from etl.metrics.sketch import Sketch

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
QUANTILES = (0.5, 0.95, 0.99, 1.0)
_UNITS = {"Seconds": "seconds", "Bytes": "bytes", "Count/Second": "per_second"}


def metric_name(metric: Metric) -> str:
    """Name a metric as Prometheus does: ``millrace_input_rows_total``, ``millrace_record_age_seconds``.

    Examples
    --------
    >>> from etl.metrics.catalogue import BY_NAME
    >>> metric_name(BY_NAME["BacklogSeconds"])
    'millrace_backlog_seconds'
    """
    name = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", metric.name).lower()
    unit = _UNITS.get(metric.unit, "")
    suffix = "" if name.endswith(unit) else f"_{unit}"
    return f"{PREFIX.lower()}_{name}{suffix}{'_total' if metric.kind == 'total' else ''}"


class Page:
    """Totals since the start and the latest levels of a job.

    Parameters
    ----------
    job
        Deployed name of the job, the label ``job``.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self._lock = threading.Lock()
        self._values: dict[tuple[str, str | None], float] = {}
        self._ages: dict[str | None, Sketch] = {}
        self._age_sums: dict[str | None, tuple[float, float]] = {}

    def write(self, samples: Sequence[Sample]) -> None:
        """Take in what has come."""
        kinds = {metric.name: metric.kind for metric in METRICS}
        with self._lock:
            for sample in samples:
                for name, value in sample.values.items():
                    before = self._values.get((name, sample.query), 0.0) if kinds[name] == "total" else 0.0
                    self._values[name, sample.query] = before + value
                if sample.ages is not None:
                    self._ages[sample.query] = sample.ages
                    total, count = self._age_sums.get(sample.query, (0.0, 0.0))
                    total += sum(value * weight for value, weight in sample.ages.points)
                    self._age_sums[sample.query] = total, count + sample.ages.count

    def text(self) -> str:
        """Write the page."""
        with self._lock:
            return "".join(f"{line}\n" for metric in METRICS for line in self._lines(metric))

    def _lines(self, metric: Metric) -> list[str]:
        name = metric_name(metric)
        if metric.kind == "spread":
            return self._age_lines(name)
        found = [
            f"{name}{self._labels(query)} {value:.15g}"
            for (of, query), value in self._values.items()
            if of == metric.name
        ]
        kind = "counter" if metric.kind == "total" else "gauge"
        return [f"# TYPE {name} {kind}", *found] if found else []

    def _age_lines(self, name: str) -> list[str]:
        if not self._ages:
            return []
        lines = [f"# TYPE {name} summary"]
        for query, ages in self._ages.items():
            lines += [f"{name}{self._labels(query, f'{q:g}')} {ages.quantile(q):.15g}" for q in QUANTILES]
            total, count = self._age_sums[query]
            lines += [
                f"{name}_sum{self._labels(query)} {total:.15g}",
                f"{name}_count{self._labels(query)} {count:.15g}",
            ]
        return lines

    def _labels(self, query: str | None, quantile: str | None = None) -> str:
        labels = {"job": self._job, "query": query, "quantile": quantile}
        return "{" + ",".join(f'{k}="{_escaped(v)}"' for k, v in labels.items() if v is not None) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def serve(page: Page, port: int) -> ThreadingHTTPServer:
    """Serve a page at ``http://127.0.0.1:PORT/metrics`` from daemon threads.

    Parameters
    ----------
    page
        What is shown.
    port
        0 for one that is free; ``server_port`` of what comes back tells.

    Raises
    ------
    OSError
        The port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = 10  # of a client that says nothing

        def do_GET(self) -> None:
            found = self.path.split("?")[0] == "/metrics"
            body = page.text().encode() if found else b"the page is /metrics\n"
            self.send_response(HTTPStatus.OK if found else HTTPStatus.NOT_FOUND)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's own name
            """Say nothing: standard error is the job's log."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, name="metrics-page", daemon=True).start()
    return server
