"""Small HTTP servers of tests, in a thread of their own on a free port."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

POLL_SECONDS = 0.02
"""``shutdown`` waits for a turn's end."""


_NOT_PASSED_ON = frozenset({"connection", "transfer-encoding", "keep-alive", "expect"})


class Handler(BaseHTTPRequestHandler):
    """Answers with bodies whose length is told, so that connections are kept; writes no log."""

    protocol_version = "HTTP/1.1"

    def body(self) -> bytes:
        """Read what was sent."""
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Answer; a header's name is written with ``_`` for ``-``."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def forward(self, address: str, body: bytes) -> tuple[int, dict[str, str], bytes]:
        """Hand a request on to a server of this machine; its status, headers and body."""
        connection = http.client.HTTPConnection(address, timeout=60)
        try:
            # The length is that of the body, which may be another one than was sent.
            left_out = _NOT_PASSED_ON | {"content-length"}
            passed = {k: v for k, v in self.headers.items() if k.lower() not in left_out}
            connection.request(self.command, self.path, body, passed)
            answer = connection.getresponse()
            headers = {k: v for k, v in answer.getheaders() if k.lower() not in _NOT_PASSED_ON}
            return answer.status, headers, answer.read()
        finally:
            connection.close()

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def served(handler: type[BaseHTTPRequestHandler]) -> Iterator[str]:
    """Serve while the block runs; its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(
        target=server.serve_forever, kwargs={"poll_interval": POLL_SECONDS}, daemon=True
    )
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
