"""A proxy before a real server of DynamoDB or Kinesis that throttles it, in whole and in part, and cuts connections."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from tests.http_servers import Handler, served

Answer = tuple[int, bytes]
BUSY = "ProvisionedThroughputExceededException"


@dataclass
class Faults:
    """What the proxy does to writes.

    Attributes
    ----------
    share
        Of all writes, those that fare badly; 1 lets none pass.
    kinds
        What befalls them: ``part`` (a third is left out), ``refused``, ``failed`` (status 500, nothing done), ``cut``
        (nothing done), ``lost`` (done, and the connection is cut before the answer).
    rate
        In place of that: records or items that it takes in a second; what is more is left out.
    """

    endpoint: str
    target: str
    share: float = 0.5
    kinds: tuple[str, ...] = ("part", "refused", "failed", "cut")
    rate: float | None = None
    done: Counter[str] = field(default_factory=Counter)
    left: float = 0.0
    filled_at: float = field(default_factory=time.monotonic)
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)
    choose: random.Random = field(default_factory=lambda: random.Random(7))

    def fault(self) -> str:
        """What befalls a write."""
        if self.choose.random() >= self.share:
            return "passed"
        return self.choose.choice(self.kinds) if self.share < 1 else "refused"

    def takes(self, count: int) -> int:
        """How many of so many records it takes now: those of a second at most are saved up."""
        assert self.rate is not None
        with self.lock:
            now = time.monotonic()
            self.left = min(self.rate, self.left + (now - self.filled_at) * self.rate)
            self.filled_at = now
            taken = min(count, int(self.left))
            self.left -= taken
        return taken


def entries(asked: dict[str, Any]) -> list[Any]:
    """Records or items of a write."""
    if "Records" in asked:
        return list(asked["Records"])
    if "Item" in asked:
        return [asked["Item"]]
    ((_, puts),) = asked["RequestItems"].items()
    return list(puts)


@contextmanager
def before(target: str) -> Iterator[Faults]:
    """Stand before the server at ``target``."""

    class Proxy(Handler):
        def do_POST(self) -> None:
            body = self.body()
            action = self.headers["X-Amz-Target"].rpartition(".")[2]
            writes = action in ("BatchWriteItem", "PutItem", "PutRecords")
            if writes and faults.rate is not None:
                count = len(entries(json.loads(body)))
                taken = faults.takes(count)
                faults.done["passed" if taken == count else "refused"] += 1
                if taken or action == "PutRecords":
                    self.answer(*self.part(body, lambda number: number < taken))
                else:
                    self.answer(400, json.dumps({"__type": BUSY, "message": "slow down"}).encode())
                return
            kind = faults.fault() if writes else "passed"
            if action == "PutItem" and kind == "part":
                kind = "refused"
            faults.done[kind] += 1
            if kind in ("cut", "lost"):
                if kind == "lost":
                    self.whole(body)
                self.close_connection = True
            elif kind == "refused":
                self.answer(400, json.dumps({"__type": BUSY, "message": "slow down"}).encode())
            elif kind == "failed":
                self.answer(500, b'{"__type":"InternalServerError"}')
            else:
                self.answer(*(self.part if kind == "part" else self.whole)(body))

        def whole(self, body: bytes) -> Answer:
            status, _, answer = self.forward(urlsplit(target).netloc, body)
            return status, answer

        def part(self, body: bytes, keeps: Callable[[int], bool] = lambda number: number % 3 > 0) -> Answer:
            """Some records or items are left out, as a shard or partition that is busy does it."""
            asked = json.loads(body)
            if "Records" in asked:
                kept = [r for i, r in enumerate(asked["Records"]) if keeps(i)]
                results = iter(self.asked({**asked, "Records": kept})["Records"] if kept else ())
                busy = {"ErrorCode": BUSY, "ErrorMessage": "slow down"}
                told = [next(results) if keeps(i) else busy for i in range(len(asked["Records"]))]
                answer: dict[str, Any] = {"FailedRecordCount": len(told) - len(kept), "Records": told}
            else:
                ((table, puts),) = asked["RequestItems"].items()
                kept = [p for i, p in enumerate(puts) if keeps(i)]
                left = [p for i, p in enumerate(puts) if not keeps(i)]
                answer = self.asked({"RequestItems": {table: kept}}) if kept else {}
                answer["UnprocessedItems"] = {table: left} if left else {}
            return 200, json.dumps(answer).encode()

        def asked(self, body: dict[str, Any]) -> Any:
            status, answer = self.whole(json.dumps(body).encode())
            assert status == 200, answer
            return json.loads(answer)

        def answer(self, status: int, body: bytes) -> None:
            self.reply(status, body, Content_Type=self.headers["Content-Type"])

    faults = Faults("", target)
    with served(Proxy) as faults.endpoint:
        yield faults
