"""A backlog after a pause of R seconds drains in λR/(μ - λ), on real Spark and Kafka with a running producer."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np
from confluent_kafka import Producer

from millrace.benchmark.fit import ModelFit
from millrace.sandbox.payloads import records_from_nycflights
from millrace.sandbox.programs import kafka_broker
from millrace.sandbox.programs.child_processes import locked_sandbox_without_left_programs
from tests.flight_records import flight_records
from tests.performance import hand_written_baselines, kafka_landing_speed, preloaded_input
from tests.performance.benchmark_session import spark_session

PARTITIONS = 4
CORES = 2

_WARM_SECONDS = 40.0
_MOST_SECONDS = 240.0


@dataclass(frozen=True)
class Setting:
    """What is tried: λ records per second, L records in a batch, T and R in seconds."""

    name: str
    rate: float
    limit: int
    trigger: float
    pause: float


SETTINGS = (
    Setting("the limit binds", rate=1000, limit=4000, trigger=2.0, pause=30.0),
    Setting("the limit binds, less room", rate=1400, limit=4000, trigger=2.0, pause=45.0),
    Setting("the work binds", rate=8000, limit=8000, trigger=0.0, pause=20.0),
)


@dataclass(frozen=True)
class Drained:
    """What was foretold and what came: seconds, and records per second.

    Attributes
    ----------
    capacity
        Foretold by the fit.
    seen
        That of the full batches themselves, while the backlog drained.
    measured
        From the begin of the first batch to the end of the first that was not full: it took all that was left.
    """

    setting: Setting
    capacity: float
    seen: float
    pause: float
    measured: float

    @property
    def of_a_batch(self) -> float:
        """Seconds that one batch more or less makes, as triggers fall: what cannot be foretold."""
        return self.setting.limit / (self.capacity - self.setting.rate)

    @property
    def foretold(self) -> float:
        """By the fit."""
        return self._drains_in(self.capacity)

    @property
    def afterwards(self) -> float:
        """By the batches themselves: what the formula alone misses. Infinite where they were too slow to catch up."""
        return self._drains_in(self.seen)

    def error(self, foretold: float) -> float:
        """How far a foretold time is off, as a share of the measured one."""
        return abs(foretold - self.measured) / self.measured

    def _drains_in(self, capacity: float) -> float:
        room = capacity - self.setting.rate
        return self.setting.rate * self.pause / room if room > 0 else float("inf")


@contextmanager
def _traffic(bootstrap: str, topic: str, payloads: Sequence[bytes], rate: float) -> Iterator[None]:
    """Send at a rate until the end; what a stall has missed is made good at once."""
    stop = threading.Event()
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5})

    def send() -> None:
        started, sent = time.monotonic(), 0
        while not stop.is_set():
            for _ in range(int((time.monotonic() - started) * rate) - sent):
                producer.produce(topic, payloads[sent % len(payloads)], partition=sent % PARTITIONS)
                sent += 1
                producer.poll(0)
            stop.wait(0.02)
        producer.flush(30)

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def drained(fit: ModelFit, said: Callable[[str], None]) -> list[Drained]:
    """Try every setting; capacity is foretold by the fit of the training runs."""
    payloads = [
        event.payload
        for event in flight_records(records_from_nycflights.read_departures(month=1), dirty_share=0, seed=1)
    ]
    results = []
    shutil.rmtree(hand_written_baselines.HOME, ignore_errors=True)
    hand_written_baselines.HOME.mkdir(parents=True)
    with (
        locked_sandbox_without_left_programs(),
        kafka_broker.running_broker() as broker,
        spark_session(CORES) as spark,
    ):
        for number, setting in enumerate(SETTINGS):
            topic = f"{preloaded_input.TOPIC}-{number}"
            broker.create_topic(topic, PARTITIONS)
            with (hand_written_baselines.HOME / "events.jsonl").open("a") as log:
                bench = kafka_landing_speed.Bench(spark, broker.bootstrap, setting.limit, 0, log, topic)
                with _traffic(broker.bootstrap, topic, payloads, setting.rate):
                    results.append(_once(bench, f"drain_{number}", setting, fit))
            one = results[-1]
            said(f"{setting.name}: foretold {one.foretold:.1f} s, measured {one.measured:.1f} s")
    shutil.rmtree(hand_written_baselines.HOME)
    return results


def _once(bench: kafka_landing_speed.Bench, name: str, setting: Setting, fit: ModelFit) -> Drained:
    query = bench.land_query(name)

    def start() -> Any:
        return (
            query.rows.writeStream.foreachBatch(query.handle)
            .option("checkpointLocation", query.checkpoint)
            .trigger(processingTime=f"{round(setting.trigger * 1000)} milliseconds")
            .start()
        )

    running = start()
    time.sleep(_WARM_SECONDS)
    last = _end(running.recentProgress[-1])
    running.stop()
    time.sleep(setting.pause)
    running = start()
    try:
        full: list[dict[str, Any]] = []
        ends = time.monotonic() + _MOST_SECONDS
        caught_up = None
        while caught_up is None:
            if time.monotonic() > ends or not running.isActive:
                raise SystemExit(f"{setting.name}: the backlog did not drain in {_MOST_SECONDS:.0f} s")
            time.sleep(0.1)
            # The first is the batch at which the query was stopped, if it was planned already.
            full = [dict(each) for each in running.recentProgress if each["numInputRows"]]
            caught_up = next((each for each in full[1:] if each["numInputRows"] < 0.95 * setting.limit), None)
    finally:
        running.stop()
    began = _begin(full[0])
    pause = (began - last).total_seconds()
    duration = fit.forecast_seconds(setting.limit, PARTITIONS, CORES)
    seen = np.median(
        [(_end(each) - _begin(each)).total_seconds() for each in full[1 : full.index(caught_up)]]
    )
    return Drained(
        setting,
        capacity=setting.limit / max(setting.trigger, duration),
        seen=setting.limit / max(setting.trigger, float(seen)),
        pause=pause,
        measured=(_end(caught_up) - began).total_seconds(),
    )


def _begin(progress: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))


def _end(progress: dict[str, Any]) -> datetime:
    return datetime.fromtimestamp(
        _begin(progress).timestamp() + progress["durationMs"]["triggerExecution"] / 1000,
        tz=_begin(progress).tzinfo,
    )
