"""Proxy for PostgreSQL that cuts connections before or after statements that change data.

It reads the frontend's messages (PostgreSQL manual, "Message Formats", protocol 3.0) as far as it needs to: which SQL is
executed up to a Sync. What belongs to one Sync is passed on as one, and has taken effect when the server is ready again.
"""

from __future__ import annotations

import re
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

_SSL_REQUEST = 80877103
_ENDS_GROUP = frozenset(b"SQHXpcf")
"""Sync, Query, Flush, Terminate, a password, the end of a copy: what was sent is acted on."""

_CHANGES = re.compile(r"\s*(INSERT|UPDATE|DELETE|MERGE|TRUNCATE|CREATE|ALTER|DROP|COPY|GRANT)\b", re.I)
_WITH = re.compile(r"\s*WITH\b.*\b(INSERT|UPDATE|DELETE|MERGE)\b", re.I | re.S)
_ENDS = re.compile(r"\s*(COMMIT|ROLLBACK)\b", re.I)
_PATIENCE_SECONDS = 60.0


class Fates(Protocol):
    """Decides what befalls a statement that changes something."""

    def statement(self, sql: str, text: str) -> str:
        """``passed``, ``cut`` before it is done, or ``lost`` after it.

        Parameters
        ----------
        sql
            What is executed.
        text
            All of its messages, values included.
        """

    def answered(self, kind: str) -> None:
        """Called when it has taken effect, before its answer goes anywhere."""


@dataclass
class _Connection:
    """One client, and its connection to the server."""

    client: socket.socket
    server: socket.socket
    fates: Fates
    named: dict[bytes, str] = field(default_factory=dict)
    portals: dict[bytes, str] = field(default_factory=dict)
    changed: str = ""
    withheld: threading.Event | None = None

    def run(self) -> None:
        with suppress(OSError, EOFError):
            self._start()
            threading.Thread(target=self._back, daemon=True).start()
            self._forth()
        self.close()

    def close(self) -> None:
        for each in (self.client, self.server):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _start(self) -> None:
        while True:
            head = _exactly(self.client, 8)
            length, code = struct.unpack("!II", head)
            rest = _exactly(self.client, length - 8)
            if code == _SSL_REQUEST:
                self.client.sendall(b"N")
                continue
            self.server.sendall(head + rest)
            return

    def _back(self) -> None:
        with suppress(OSError, EOFError):
            while True:
                kind, message = _message(self.server)
                if self.withheld is None:
                    self.client.sendall(message)
                elif kind == b"Z":
                    self.withheld.set()
        self.close()

    def _forth(self) -> None:
        group, executed = b"", [""][:0]
        while True:
            kind, message = _message(self.client)
            group += message
            executed += self._executed(kind, message[5:])
            if kind[0] not in _ENDS_GROUP:
                continue
            fate = self._fate(executed, group)
            if fate == "cut":
                return
            if fate == "lost":
                self.withheld = threading.Event()
                self.server.sendall(group)
                if not self.withheld.wait(_PATIENCE_SECONDS):
                    raise TimeoutError(f"PostgreSQL did not answer: {executed}")
                self.fates.answered(fate)
                return
            self.server.sendall(group)
            group, executed = b"", []

    def _executed(self, kind: bytes, body: bytes) -> list[str]:
        """SQL that a message lets the server execute."""
        if kind == b"P":
            name, sql, _ = body.split(b"\0", 2)
            self.named[name] = sql.decode()
        elif kind == b"B":
            portal, name, _ = body.split(b"\0", 2)
            self.portals[portal] = self.named.get(name, "")
        elif kind == b"E":
            return [self.portals.get(body.split(b"\0", 1)[0], "")]
        elif kind == b"Q":
            return [body.rstrip(b"\0").decode()]
        return []

    def _fate(self, executed: list[str], group: bytes) -> str:
        changes = [sql for sql in executed if _CHANGES.match(sql) or _WITH.match(sql)]
        ends = [sql for sql in executed if _ENDS.match(sql)]
        text = group.decode("latin-1")
        if changes:
            self.changed += text
            return self.fates.statement(changes[0], text)
        if ends:
            # What a transaction did takes effect with its end.
            text, self.changed = self.changed, ""
            if text and ends[0].strip()[:1].upper() == "C":
                return self.fates.statement("COMMIT", text)
        return "passed"


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    head = _exactly(source, 5)
    return head[:1], head + _exactly(source, struct.unpack("!I", head[1:])[0] - 4)


def _exactly(source: socket.socket, count: int) -> bytes:
    result = bytearray()
    while len(result) < count:
        part = source.recv(count - len(result))
        if not part:
            raise EOFError
        result += part
    return bytes(result)


@contextmanager
def before(port: int, fates: Fates) -> Iterator[int]:
    """Stand before the server at a port of this machine; the port to ask in its place."""
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.create_connection(("127.0.0.1", port))
                for each in (client, server):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_Connection(client, server, fates).run, daemon=True).start()

    threading.Thread(target=accept, name="statements", daemon=True).start()
    try:
        yield listening.getsockname()[1]
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)
        listening.close()
