"""A shard's output limit bounds how fast a backlog drains: the plan's prediction against a measurement.

A proxy before kinesalite refuses reads as Kinesis does ("GetRecords", API reference): five calls a second and 2 MiB a second for
each shard, where an answer of 10 MiB is followed by five seconds without another.
"""

from __future__ import annotations

import base64
import json
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from millrace.config import load
from millrace.config.aws.resource_names import Names
from millrace.infra.launch.launch_settings import job_settings
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.child_processes import RUN, locked_sandbox_without_left_programs
from millrace.sandbox.programs.localstack import ACCOUNT
from millrace.sandbox.records.producer import BackgroundThread, KinesisProducer
from millrace.sizing import plan
from tests import kinesalite
from tests.faults.round_setup import Stage
from tests.http_servers import Handler, served
from tests.kinesalite import Kinesalite
from tests.steady_rate import yield_at_rate

READ_BYTES_PER_SECOND = 2 * 1024**2
CALLS_PER_SECOND = 5
LONGEST_SECONDS = 400.0

_ENVIRONMENT = """\
project: shard
region: us-east-1
streams:
  events:
    kind: kinesis
    shards: 1
    traffic: {{records_per_second: {rate}, peak_factor: 1, record_size: {size}, basis: measured}}
jobs:
  land:
    engine: glue
    latency: {latency}s
    cores: 2
    catch_up: {{outage: {pause}s, within: 30m}}
    queries:
      land:
        kind: land
        source: events
        table: landed
        schema: pipelines/clicks/schemas/click.ddl
"""


@dataclass(frozen=True)
class Setting:
    """What is tried: records per second, bytes of one, and seconds of pause and of latency."""

    name: str
    rate: int
    size: int
    pause: int = 90
    latency: int = 12


SETTINGS = (
    Setting("large records", rate=50, size=20 * 1024),
    Setting("small records", rate=950, size=1024),
    Setting("longer batches", rate=950, size=1024, latency=40),
)


@dataclass(frozen=True)
class Drained:
    """Records that waited; seconds that the plan foretold and that it took; the plan's trigger, and how many reads were refused."""

    setting: Setting
    backlog: int
    foretold: float
    measured: float
    trigger: float
    refused: int

    @property
    def error(self) -> float:
        """How far the foretold time is off, as a share of the measured one."""
        return abs(self.foretold - self.measured) / self.measured


class _Shard:
    """When the next read of the one shard is allowed, and how far its reader is."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free_at = 0.0
        self.refused = 0
        self.watch()

    def watch(self) -> None:
        """Forget when it was read."""
        self.first_read: float | None = None
        self.at_its_end: float | None = None

    def allows(self) -> bool:
        with self._lock:
            now = time.monotonic()
            self.first_read = self.first_read or now
            allowed = now >= self._free_at
            self.refused += not allowed
            return allowed

    def handed_over(self, answer: Mapping[str, Any]) -> None:
        size = sum(len(base64.b64decode(each["Data"])) for each in answer["Records"])
        with self._lock:
            now = time.monotonic()
            least = max(size / READ_BYTES_PER_SECOND, 1 / CALLS_PER_SECOND)
            self._free_at = max(self._free_at, now) + least
            if answer["MillisBehindLatest"] == 0:
                self.at_its_end = self.at_its_end or now


@contextmanager
def _limited(address: str, shard: _Shard) -> Iterator[str]:
    class Limited(Handler):
        def do_POST(self) -> None:
            body = self.body()
            reads = self.headers.get("X-Amz-Target", "").endswith(".GetRecords")
            if reads and not shard.allows():
                told = {"__type": "ProvisionedThroughputExceededException", "message": "Rate exceeded"}
                self.reply(400, json.dumps(told).encode(), Content_Type="application/x-amz-json-1.1")
                return
            status, headers, answer = self.forward(address, body)
            if reads and status == 200:
                shard.handed_over(json.loads(answer))
            headers = {name: value for name, value in headers.items() if name.lower() != "content-length"}
            self.reply(status, answer, **headers)

    with served(Limited) as url:
        yield url


@dataclass(frozen=True)
class _Behind:
    """A kinesalite whose readers go by the proxy, and whose producer does not."""

    server: Kinesalite
    endpoint: str

    def client(self) -> Any:
        return self.server.client()


def drained(said: Callable[[str], None]) -> list[Drained]:
    """Try every setting."""
    results = []
    with locked_sandbox_without_left_programs(), kinesalite.running() as server:
        for setting in SETTINGS:
            results.append(one := _once(server, setting))
            said(f"{setting.name}: foretold {one.foretold:.1f} s, measured {one.measured:.1f} s")
    return results


def _once(server: Kinesalite, setting: Setting) -> Drained:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "shard.yaml"
        file.write_text(_ENVIRONMENT.format(**{**vars(setting), "size": f"{setting.size}B"}))
        environment = load(str(file))
    planned = plan(environment).jobs["land"]
    query = planned.queries["land"]
    assert query.catch_up_seconds is not None
    (launched,) = job_settings(environment, planned, Names(environment, ACCOUNT)).queries
    shard = _Shard()
    name = setting.name.replace(" ", "-")
    with _limited(server.endpoint.removeprefix("http://"), shard) as url:
        stage = Stage(
            _Behind(server, url), RUN / f"validation-{name}", name, random.Random(1),
            settings={name: getattr(launched.sources[0], name) for name in ("records_per_shard", "fetch_seconds")},
            trigger_seconds=query.trigger_seconds.value,
        )  # fmt: skip
        try:
            backlog, measured = _drain(stage, setting, shard)
        finally:
            stage.close()
    # What waited is what was sent in a pause of another length: Spark's start is part of it.
    foretold = query.catch_up_seconds.value * backlog / (setting.rate * setting.pause)
    return Drained(setting, backlog, foretold, measured, query.trigger_seconds.value, shard.refused)


def _drain(stage: Stage, setting: Setting, shard: _Shard) -> tuple[int, float]:
    """Stop the job while records come, start it again, and wait until it has read all: records that waited, and seconds."""
    stage.create_stream(1)
    producer = KinesisProducer(stage.client, stage.stream, batch=max(1, setting.rate // 5))
    text = "x" * (setting.size - len(json.dumps({"n": 10**6, "text": ""})))

    def send(stop: threading.Event) -> None:
        events = (
            RecordToSend(str(n).encode(), json.dumps({"n": n, "text": text}).encode()) for n in count(10**6)
        )
        producer.send(yield_at_rate(events, per_second=setting.rate, stop=stop), sent=lambda _: None)

    with BackgroundThread(send, "producer") as sending:
        stage.start()
        stage.until_landed(1)
        time.sleep(3 * stage.trigger_seconds)
        stage.job.stop(grace_seconds=60)
        time.sleep(setting.pause)
        sending.raise_error_of_work()
        shard.watch()
        stage.start()
        stage.until(lambda: shard.first_read is not None, LONGEST_SECONDS, "the first read")
        backlog = len(producer.ledger) - stage.landed()
        stage.until(lambda: shard.at_its_end is not None, LONGEST_SECONDS, "all read")
        sending.raise_error_of_work()
        assert shard.first_read is not None
        assert shard.at_its_end is not None
        return backlog, shard.at_its_end - shard.first_read
