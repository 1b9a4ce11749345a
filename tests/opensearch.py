"""A small server that answers as OpenSearch's documentation says; no OpenSearch is to be had in package registries.

Statuses and items are those of the pages "Bulk" and "Index document" and of their error responses; versions are those of
"Index document" (``version``, ``version_type``) and of OpenSearch's own ``org.opensearch.index.VersionType``. As a process of
its own, which outlives whoever writes to it: ``python -m tests.opensearch PORT``.
"""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

from millrace.sandbox.child_processes import RUN, Process, free_port
from millrace.sandbox.toolchain import ROOT, program_environment
from tests.serving import Handler, served

INDEX = "flights"


@dataclass
class Domain:
    """An index ``flights`` that takes documents with a number for ``flight``, and is busy at times.

    Attributes
    ----------
    versions
        Of the documents: counted here, or the writer's own (``external_gte``).
    refuse
        Requests that are answered with 429 from now on.
    busy
        Documents that are answered with 429 once.
    """

    endpoint: str
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    versions: dict[str, int] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    refuse: int = 0
    busy: set[str] = field(default_factory=set)
    most_bytes: int = 100 * 1024 * 1024
    lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def answer(self, lines: list[bytes]) -> list[dict[str, Any]]:
        """What a bulk request is answered with, document by document."""
        with self.lock:
            left, answers = iter(lines), []
            for line in left:
                action = json.loads(line)
                answers.append(
                    self.delete(action) if "delete" in action else self.put(action, json.loads(next(left)))
                )
            return answers

    def delete(self, action: dict[str, Any]) -> dict[str, Any]:
        """Delete a document, unless a later version is there; "Delete document" of OpenSearch's reference."""
        names = action["delete"]
        identity, version = names["_id"], names["version"]
        assert names["version_type"] == "external_gte", "no other is taken here"
        result: dict[str, Any] = {"_index": INDEX, "_id": identity}
        if self.versions.get(identity, -1) > version:
            error = {"type": "version_conflict_engine_exception", "reason": f"[{identity}]: version conflict"}
            return {"delete": {**result, "status": 409, "error": error}}
        known = self.documents.pop(identity, None) is not None
        self.versions[identity] = version
        return {
            "delete": {
                **result,
                "status": 200 if known else 404,
                "result": "deleted" if known else "not_found",
            }
        }

    def put(self, action: dict[str, Any], document: dict[str, Any]) -> dict[str, Any]:
        """Take or refuse one document."""
        ((verb, names),) = action.items()
        identity = names["_id"]
        assert not [name for name in document if name.startswith("_")], "a reserved field"
        result: dict[str, Any] = {"_index": INDEX, "_id": identity}
        if identity in self.busy:
            self.busy.discard(identity)
            error = {"type": "es_rejected_execution_exception", "reason": "rejected execution"}
            return {verb: {**result, "status": 429, "error": error}}
        number = document.get("flight", document.get("flights", document.get("n")))
        if not isinstance(number, int):
            error = {"type": "mapper_parsing_exception", "reason": "failed to parse field [flight]"}
            return {verb: {**result, "status": 400, "error": error}}
        if verb == "create" and identity in self.documents:
            error = {"type": "version_conflict_engine_exception", "reason": "document already exists"}
            return {verb: {**result, "status": 409, "error": error}}
        known = identity in self.documents
        version = self.versions.get(identity, 0) + 1
        if "version" in names:
            assert (verb, names["version_type"]) == ("index", "external_gte"), "no other is taken here"
            assert 0 <= names["version"] < 2**63, "a long that is not negative"
            if version - 1 > names["version"]:
                reason = (
                    f"current version [{version - 1}] is higher than the one provided [{names['version']}]"
                )
                error = {
                    "type": "version_conflict_engine_exception",
                    "reason": f"[{identity}]: version conflict, {reason}",
                }
                return {verb: {**result, "status": 409, "error": error}}
            version = names["version"]
        self.documents[identity], self.versions[identity] = document, version
        return {
            verb: {**result, "status": 200 if known else 201, "result": "updated" if known else "created"}
        }


def _handler(domain: Domain) -> type[Handler]:
    class Index(Handler):
        def do_HEAD(self) -> None:
            self.reply(200 if self.path == f"/{INDEX}" else 404)

        def do_GET(self) -> None:
            """All documents: what a test reads back."""
            with domain.lock:
                self.reply(200, json.dumps(list(domain.documents.values())).encode())

        def do_POST(self) -> None:
            body = self.body()
            assert self.path == f"/{INDEX}/_bulk"
            assert self.headers["Content-Type"] == "application/x-ndjson"
            assert self.headers["Authorization"].startswith("AWS4-HMAC-SHA256 Credential=test/")
            assert "/us-east-1/es/aws4_request" in self.headers["Authorization"]
            assert body.endswith(b"\n")
            if domain.refuse:
                domain.refuse -= 1
                domain.asked["refused"] += 1
                self.reply(429, b"429 Too Many Requests")
            elif len(body) > domain.most_bytes:
                domain.asked["too large"] += 1
                self.reply(413, b'{"Message":"Request size exceeded"}')
            else:
                domain.asked["taken"] += 1
                items = domain.answer(body.splitlines())
                self.reply(200, json.dumps({"took": 1, "errors": True, "items": items}).encode())

    return Index


@contextmanager
def running() -> Iterator[Domain]:
    """Serve from a thread of this process."""
    domain = Domain("")
    with served(_handler(domain)) as domain.endpoint:
        yield domain


@contextmanager
def apart() -> Iterator[str]:
    """Serve from a process of its own; gives the endpoint."""
    port = free_port()
    log = RUN / "opensearch.log"
    log.unlink(missing_ok=True)
    command: list[str | Path] = [sys.executable, "-m", "tests.opensearch", str(port)]
    environment = {**program_environment(), "PYTHONPATH": str(ROOT)}
    with Process.start("opensearch", command, environment=environment, log=log, cwd=ROOT) as process:
        process.wait_until(lambda: _listens(port), seconds=30, what="answering")
        yield f"http://127.0.0.1:{port}"


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def main(port: int) -> None:
    """Serve until this process is ended."""
    ThreadingHTTPServer(("127.0.0.1", port), _handler(Domain(f"http://127.0.0.1:{port}"))).serve_forever()


if __name__ == "__main__":
    main(int(sys.argv[1]))
