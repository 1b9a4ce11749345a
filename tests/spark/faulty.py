"""A proxy before a real server of DynamoDB or Kinesis that throttles it, in whole and in part, and cuts connections."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

BUSY = "ProvisionedThroughputExceededException"


@dataclass
class Faults:
    """What the proxy does to writes.

    Attributes
    ----------
    share
        Of all writes, those that fare badly; 1 lets none pass.
    """

    endpoint: str
    target: str
    share: float = 0.5
    done: Counter[str] = field(default_factory=Counter)
    choose: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311 - repeatable on purpose

    def fault(self) -> str:
        """What befalls a write."""
        if self.choose.random() >= self.share:
            return "passed"
        return self.choose.choice(("part", "refused", "failed", "cut")) if self.share < 1 else "refused"


@contextmanager
def before(target: str) -> Iterator[Faults]:
    """Stand before the server at ``target``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            action = self.headers["X-Amz-Target"].rpartition(".")[2]
            kind = faults.fault() if action in ("BatchWriteItem", "PutRecords") else "passed"
            faults.done[kind] += 1
            if kind == "cut":
                self.close_connection = True
            elif kind == "refused":
                self.reply(400, json.dumps({"__type": BUSY, "message": "slow down"}).encode())
            elif kind == "failed":
                self.reply(500, b'{"__type":"InternalServerError"}')
            else:
                self.reply(*(self.part if kind == "part" else self.forward)(body))

        def forward(self, body: bytes) -> tuple[int, bytes]:
            connection = http.client.HTTPConnection(urlsplit(target).netloc, timeout=20)
            names = ("X-Amz-Target", "Content-Type", "Authorization", "X-Amz-Date")
            connection.request("POST", "/", body, {name: self.headers[name] for name in names})
            answer = connection.getresponse()
            read = answer.read()
            connection.close()
            return answer.status, read

        def part(self, body: bytes) -> tuple[int, bytes]:
            """Every third record or item is left out, as a shard or partition that is busy does it."""
            asked = json.loads(body)
            if "Records" in asked:
                kept = [r for i, r in enumerate(asked["Records"]) if i % 3]
                results = iter(self.asked({**asked, "Records": kept})["Records"] if kept else ())
                busy = {"ErrorCode": BUSY, "ErrorMessage": "slow down"}
                told = [next(results) if i % 3 else busy for i in range(len(asked["Records"]))]
                answer: dict[str, Any] = {"FailedRecordCount": len(told) - len(kept), "Records": told}
            else:
                ((table, puts),) = asked["RequestItems"].items()
                kept, left = [p for i, p in enumerate(puts) if i % 3], puts[::3]
                answer = self.asked({"RequestItems": {table: kept}}) if kept else {}
                answer["UnprocessedItems"] = {table: left}
            return 200, json.dumps(answer).encode()

        def asked(self, body: dict[str, Any]) -> Any:
            status, answer = self.forward(json.dumps(body).encode())
            assert status == 200, answer
            return json.loads(answer)

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", self.headers["Content-Type"])
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    faults = Faults(f"http://127.0.0.1:{server.server_port}", target)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
