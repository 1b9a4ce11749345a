"""Numbers the writes of a job outside its process, and kills it before or after one, or drops the response."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import unquote

from tests.faults.s3_proxy import Faults

Mode = Literal["before", "after", "lost", "twice"]
MODES: tuple[Mode, ...] = ("before", "after", "lost", "twice")
"""Killed before it takes effect, killed after it did and before the answer, or alive without the answer; killed before it, and
the driver that recovers from that before the same number of its own."""

_RENEWAL = re.compile(rb'"renewals": [1-9]')
_CATALOG = "iceberg_tables"
"""Its answers are not lost. Iceberg's JDBC client then sends the commit once more, finds that nothing is left to change, takes
that for another writer's commit, and deletes the files of the one that took effect (``ClientPoolImpl`` and ``SnapshotProducer``
of 1.10: a kind of harm that no caller can prevent). Glue's catalog looks before it says so (``GlueTableOperations``:
``RetryDetector`` and ``checkCommitStatus``); and the sandbox's own, in a file, has no connection to lose."""

_IDENTITY = re.compile(r"[0-9a-f]{8}-[0-9a-f-]{27,}|\d+")


def label(method: str, path: str, headers: Mapping[str, str]) -> str:
    """Say what a request changes, without what differs from run to run."""
    key, _, query = unquote(path).partition("?")
    if method == "POST" and query.startswith("delete"):
        return "DELETE several"
    verb = "COPY" if any(name.lower() == "x-amz-copy-source" for name in headers) else method
    return f"{verb} {_IDENTITY.sub('*', key)}"


@dataclass
class Points(Faults):
    """What befalls the mutations of an S3 and of a PostgreSQL.

    Attributes
    ----------
    scope
        Words of which one stands in the key, or in the statement, of what is numbered.
    labels
        What was numbered since it was armed.
    dead
        Whether nothing has an effect any more, as after a kill.
    """

    endpoint: str = ""
    scope: tuple[str, ...] = ()
    labels: list[str] = field(default_factory=list)
    fired: threading.Event = field(default_factory=threading.Event, repr=False)
    last: float = 0.0
    dead: bool = False
    _waits: str = ""
    _mode: Mode | None = None
    _number: int = 0
    _after: bool = False
    _kill: Callable[[], None] = field(default=lambda: None, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def arm(self, mode: Mode, number: int, kill: Callable[[], None], *, after: str = "") -> None:
        """From now on, or after a mutation with a word in its label, let it befall the mutation of a number, counted from 1."""
        with self._lock:
            self.labels.clear()
            self.fired.clear()
            self._waits = after
            self._mode, self._number, self._kill = mode, number, kill

    def disarm(self) -> None:
        """Let all pass."""
        with self._lock:
            self._mode = None

    def fate(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """See :class:`tests.faults.s3_proxy.Faults`."""
        if self.dead:
            return "cut"
        if method not in ("PUT", "POST", "DELETE") or _RENEWAL.search(body[:4096]):
            return "passed"  # a lease is renewed by the clock
        text = unquote(path) + (body.decode("latin-1") if method == "POST" else "")
        return self._numbered(label(method, path, headers), text)

    def statement(self, sql: str, text: str) -> str:
        """See :class:`tests.faults.postgres_proxy.Fates`."""
        if self.dead:
            return "cut"
        if self._mode == "lost" and _CATALOG in sql:
            return "passed"
        return self._numbered(f"SQL {_IDENTITY.sub('*', ' '.join(sql.split()[:3]))}", text)

    def _numbered(self, what: str, text: str) -> str:
        with self._lock:
            if self.scope and not any(word in text for word in self.scope):
                return "passed"
            self.last = time.monotonic()
            if self._mode is None:
                return "passed"
            if self._waits:
                self._waits = "" if self._waits in what else self._waits
                return "passed"
            self.labels.append(what)
            if len(self.labels) < self._number:
                return "passed"
            mode, self._mode = self._mode, None
            if mode in ("before", "twice"):
                self._kill()
                self.fired.set()
                return "cut"
            self._after = mode == "after"
            return "lost"

    def answered(self, kind: str) -> None:
        """See :class:`tests.faults.s3_proxy.Faults`."""
        if kind == "lost":
            if self._after:
                self._kill()
            self.fired.set()
