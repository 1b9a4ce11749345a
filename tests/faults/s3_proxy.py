"""Proxy for S3 or another server that throttles, fails, cuts connections, loses answers or rejects credentials."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.http_servers import Handler, served

REFUSALS: Mapping[str, tuple[int, str, str]] = {
    "slow_down": (503, "SlowDown", "Please reduce your request rate."),
    "failed": (500, "InternalError", "We encountered an internal error. Please try again."),
    "expired": (400, "ExpiredToken", "The provided token has expired."),
    "denied": (403, "AccessDenied", "Access Denied"),
}
"""Status, code and message as S3 answers ("Error responses", Amazon S3 API reference)."""

UNKNOWN: Mapping[str, tuple[int, str, str]] = {
    "timed_out": (504, "GatewayTimeout", "The server did not answer in time."),
}
"""What a gateway answers when the server has done what was asked, and its answer did not come through."""

KINDS = (*REFUSALS, "cut", "lost", *UNKNOWN)
"""Beside them: the connection is cut before anything is done, or after it, before the answer."""


@dataclass
class Faults:
    """What befalls requests; a story changes it while they come.

    Attributes
    ----------
    kinds
        Of :data:`KINDS`, one is drawn for each request that fares badly.
    share
        Of all requests, those that do.
    done
        How often each befell one; ``passed`` too.
    """

    endpoint: str
    kinds: tuple[str, ...] = ()
    share: float = 1.0
    done: Counter[str] = field(default_factory=Counter)
    choose: random.Random = field(default_factory=lambda: random.Random(7))

    def fate(self, method: str, path: str, headers: Mapping[str, str], body: bytes) -> str:
        """What befalls the next request."""
        fares_badly = bool(self.kinds) and self.choose.random() < self.share
        kind = self.choose.choice(self.kinds) if fares_badly else "passed"
        self.done[kind] += 1
        return kind

    def answered(self, kind: str) -> None:
        """Called when a request that was passed on has taken effect, before its answer goes anywhere."""

    def set(self, *kinds: str, share: float = 1.0) -> None:
        """From now on; without kinds all pass."""
        assert set(kinds) <= set(KINDS), kinds
        self.kinds, self.share = kinds, share


@contextmanager
def before(target: str, given: Faults | None = None) -> Iterator[Faults]:
    """Stand before the S3 at ``target``, by faults of a kind of one's own where some are given."""
    address = urlsplit(target).netloc

    class Proxy(Handler):
        def handle(self) -> None:
            with suppress(ConnectionError):  # of whoever is killed in the middle of asking
                super().handle()

        def _answer(self) -> None:
            body = self.body()
            if len(body) < int(self.headers.get("Content-Length") or 0):
                # Whoever asked was killed in the middle of it: an object of half a body is never made.
                self.close_connection = True
                return
            kind = faults.fate(self.command, self.path, dict(self.headers.items()), body)
            if kind in REFUSALS:
                status, code, message = REFUSALS[kind]
                text = (
                    f"<Error><Code>{code}</Code><Message>{message}</Message><RequestId>0</RequestId></Error>"
                )
                self._reply(status, {"Content-Type": "application/xml"}, text.encode())
            elif kind == "cut":
                self.close_connection = True
            else:
                status, headers, answer = self.forward(address, body)
                faults.answered(kind)
                if kind == "lost":
                    self.close_connection = True
                elif kind in UNKNOWN:
                    self._reply(UNKNOWN[kind][0], {}, b"")
                else:
                    self._reply(status, headers, answer)

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer

        def _reply(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
            self.send_response_only(status)
            # The length of a HEAD's answer is the object's, though no body comes.
            told = headers if self.command == "HEAD" and "Content-Length" in headers else None
            for name, value in (told or {**headers, "Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    faults = given or Faults("")
    with served(Proxy) as faults.endpoint:
        yield faults
