"""kinesalite, a Kinesis server for tests of load, crashes, reshards and faults.

It keeps everything in memory. ``kinesalite.cjs`` removes the differences to AWS that matter
here: it listens on 127.0.0.1 only, survives clients that are killed, has no shard limit of
ten, ends an answer at 10 MiB, takes records above 1 MiB and reports how far behind a
reader is. Requests are limited to 7 MiB, so one record to about 5 MiB.
"""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from millrace.sandbox.programs.child_processes import RUN, ChildProcess, free_port
from millrace.sandbox.programs.toolchain import node_bin_folder, node_package_folder, program_variables

REGION = "us-east-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
"""It accepts any credentials; the SDKs require some."""

MANY_SHARDS = 10_000
"""Above the shards of any test: each reshard leaves closed shards, which count too."""


@dataclass(frozen=True)
class Kinesalite:
    """A running kinesalite.

    Attributes
    ----------
    endpoint
        Such as ``http://127.0.0.1:4567``.
    control
        URL that switches faults on and off.
    """

    endpoint: str
    control: str
    process: ChildProcess

    def client(self) -> Any:
        """Return a boto3 client for it."""
        return boto3.client(
            "kinesis",
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id=CREDENTIALS["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=CREDENTIALS["AWS_SECRET_ACCESS_KEY"],
            config=Config(retries={"max_attempts": 20, "mode": "standard"}),
        )

    def throttle(self, probability: float) -> None:
        """Refuse this share of all reads from now on, as a shard whose throughput is exceeded does."""
        self._tell({"error_probability": probability})

    def set_clock(self, ahead_seconds: float) -> None:
        """Set its clock ahead: iterators expire after 300 s, records after the stream's retention."""
        self._tell({"clock_offset_ms": round(ahead_seconds * 1000)})

    def count_refused_reads(self) -> int:
        """Return the number of reads refused so far."""
        return sum(self._tell(None)["refused"].values())

    def _tell(self, settings: dict[str, float] | None) -> Any:
        body = None if settings is None else json.dumps(settings).encode()
        request = urllib.request.Request(self.control, data=body, method="PUT")
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)


@contextmanager
def running(*, seed: int = 1, update_stream_ms: int = 50, name: str = "kinesalite") -> Iterator[Kinesalite]:
    """Start an empty kinesalite and stop it at the end.

    Parameters
    ----------
    seed
        Seed of the random sequence that decides which read is refused.
    update_stream_ms
        Milliseconds of state UPDATING during a reshard.
    name
        Name of its process and log.

    Raises
    ------
    SandboxError
        It did not start.
    """
    node_package_folder("kinesalite")
    port, control = free_port(), free_port()
    settings = {
        "port": port,
        "control_port": control,
        "shard_limit": MANY_SHARDS,
        "seed": seed,
        "update_stream_ms": update_stream_ms,
    }
    log = RUN / f"{name}.log"
    log.unlink(missing_ok=True)
    with ChildProcess.start(
        name,
        [node_bin_folder() / "node", Path(__file__).with_suffix(".cjs"), json.dumps(settings)],
        environment=program_variables(),
        log=log,
    ) as process:
        process.wait_until(lambda: "ready" in log.read_text(), seconds=30, what="ready")
        yield Kinesalite(f"http://127.0.0.1:{port}", f"http://127.0.0.1:{control}", process)
