"""A real OpenSearch of one node on 127.0.0.1, without security.

Maven has the server's jars and no distribution: its folders are laid out here. A module is a folder with jars of its own, a
descriptor, and its permissions ("Plugins" of OpenSearch's developer documentation).
"""

from __future__ import annotations

import json
import shutil
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.sandbox.programs import jars
from millrace.sandbox.programs.child_processes import RUN, ChildProcess, free_port
from millrace.sandbox.programs.toolchain import java_home, program_variables

MOST_BYTES = 1024 * 1024
"""Of a request; AWS has domains with 10 MiB and with 100."""

_MOST_DOCUMENTS = 100_000
_MODULES = {
    "transport-netty4": ("org.opensearch.transport.Netty4Plugin", ("transport-netty4-", "netty-")),
    "lang-painless": (
        "org.opensearch.painless.PainlessPlugin",
        ("lang-painless-", "opensearch-scripting-painless-", "antlr4-", "asm-"),
    ),
}
"""Module to its class, and how the names of its jars begin."""

_DESCRIPTOR = """\
name={name}
description={name}
classname={main}
version={version}
opensearch.version={version}
java.version=11
"""
_LOGGING = """\
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c{1}: %m%n
"""


@dataclass(frozen=True)
class OpenSearch:
    """A running server."""

    endpoint: str
    process: ChildProcess

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request with a body of JSON; the answer's JSON."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self.endpoint + path, data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def create(self, index: str, shards: int = 1, **fields: str) -> None:
        """Make an index; ``fields`` are the types of its mapping, and others are found out."""
        settings = {
            "number_of_shards": shards,
            "number_of_replicas": 0,
            "max_result_window": _MOST_DOCUMENTS,
        }
        properties = {name: {"type": kind} for name, kind in fields.items()}
        body = {"settings": {"index": settings}, "mappings": {"properties": properties}}
        self.ask("PUT", f"/{index}", body)

    def documents(self, index: str) -> dict[str, dict[str, Any]]:
        """All documents by their id."""
        self.ask("POST", f"/{index}/_refresh")
        result = self.ask("GET", f"/{index}/_search?size={_MOST_DOCUMENTS}")["hits"]["hits"]
        return {each["_id"]: each["_source"] for each in result}

    def refuse_writes(self, refused: bool) -> None:
        """Answer every write with 429, or none: requests under way may take a byte of memory, or what is usual."""
        name = "network.breaker.inflight_requests.limit"
        self.ask("PUT", "/_cluster/settings", {"transient": {name: "1b" if refused else None}})

    def refused(self) -> int:
        """Return how many requests were answered with 429 so far."""
        return sum(node["breakers"]["in_flight_requests"]["tripped"] for node in self._stats("breaker"))

    def rejected(self) -> int:
        """Return how many parts of requests, one for each shard, were refused so far since the queue was full."""
        return sum(node["thread_pool"]["write"]["rejected"] for node in self._stats("thread_pool"))

    def _stats(self, kind: str) -> Any:
        return self.ask("GET", f"/_nodes/stats/{kind}")["nodes"].values()

    def answers(self) -> bool:
        """Whether it answers requests."""
        try:
            return bool(self.ask("GET", "/_cluster/health")["status"] == "green")
        except OSError:
            return False


@contextmanager
def running() -> Iterator[OpenSearch]:
    """Start an empty server, and stop it at the end."""
    port, log = free_port(), RUN / "opensearch.log"
    log.unlink(missing_ok=True)
    with tempfile.TemporaryDirectory(prefix="opensearch-") as name:
        command = _lay_out(Path(name), port)
        process = ChildProcess.start("opensearch", command, environment=program_variables(), log=log)
        try:
            server = OpenSearch(f"http://127.0.0.1:{port}", process)
            process.wait_until(server.answers, seconds=120, what="answering")
            yield server
        finally:
            process.kill()  # it would close its indexes first


def _lay_out(home: Path, port: int) -> list[str | Path]:
    """Write the folders of an installation; the command that starts it."""
    left = jars.jar_files("opensearch")
    (version,) = (jar.version for jar in jars.read_jar_lock_file()["opensearch"] if jar.name == "opensearch")
    for name, (main, begins) in _MODULES.items():
        module = home / "modules" / name
        module.mkdir(parents=True)
        for jar in (each for each in left if each.name.startswith(begins)):
            shutil.copy(jar, module)  # the server follows links, and may then not read where they lead
        left = [each for each in left if not each.name.startswith(begins)]
        (module / "plugin-descriptor.properties").write_text(
            _DESCRIPTOR.format(name=name, main=main, version=version)
        )
        (module / "plugin-security.policy").write_text("grant { permission java.security.AllPermission; };\n")
    settings = {
        "discovery.type": "single-node",
        "network.host": "127.0.0.1",
        "http.port": port,
        "transport.port": 0,
        "path.data": str(home / "data"),
        "path.logs": str(home / "logs"),
        "http.max_content_length": f"{MOST_BYTES}b",
        "action.auto_create_index": False,
        "cluster.routing.allocation.disk.threshold_enabled": False,
        # Two writes at a time, and one that waits: an index of many shards refuses parts of one request.
        "node.processors": 2,
        "thread_pool.write.queue_size": 1,
    }
    config = home / "config"
    for folder in (config, home / "plugins", home / "tmp"):
        folder.mkdir()
    (config / "opensearch.yml").write_text(json.dumps(settings))
    (config / "log4j2.properties").write_text(_LOGGING)
    return [
        java_home() / "bin" / "java", "-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
        f"-Djava.io.tmpdir={home / 'tmp'}", f"-Dopensearch.path.home={home}", f"-Dopensearch.path.conf={config}",
        # Containers run as root, which it refuses where native code can tell: none is unpacked.
        "-Djna.nosys=true", "-Djna.nounpack=true", "-Djava.security.manager=allow",
        "-cp", ":".join(map(str, left)), "org.opensearch.bootstrap.OpenSearch",
    ]  # fmt: skip
