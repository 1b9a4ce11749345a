"""Scenario of a verification: records flow, runs are killed, the stream is resharded, tables are compared."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any, Literal

from pyiceberg.catalog import Catalog

from millrace.config.model import KafkaTopic
from millrace.lifecycle.audit_kinesis import list_shards
from millrace.lifecycle.problems import AwsError, ThrottledError, translate_aws_errors
from millrace.sandbox import lake_tables
from millrace.sandbox.child_processes import StalledError, wait_until
from millrace.sandbox.flights import Event
from millrace.sandbox.ledger import Ledger
from millrace.sandbox.producer import Background, KafkaProducer, KinesisProducer, Producer
from millrace.sandbox.traffic import Feed, TokenBucket, TrafficShape, default_key_field
from millrace.sandbox.traffic_values import Generator
from millrace.verify.environment import (
    PARTITIONS,
    SHARDS,
    Leg,
    Source,
    VerificationCopy,
    VerificationSettings,
)
from millrace.verify.ledger_check import check_against_ledgers
from millrace.verify.removal import make_topic
from millrace.verify.verification_cost import put_units
from millrace.verify.verification_outcome import Kill, TableComparison
from millrace.verify.verification_target import Place, VerifyError, aws_errors, wait_for

_MOMENT_SECONDS = 3.0
"""Longest pause before a kill: longer than a trigger, so that a kill hits any part of a batch or the time between two."""

_BATCHES_PER_SECOND = 5
_SETTLE_SECONDS = 5.0
"""Wait after the last expected row, for surplus rows: more than two triggers."""

Turn = Literal["reshard", "kill"]
Say = Callable[[str], None]


def order_disturbances(kills: int, reshards: int) -> list[Turn]:
    """Order the disturbances while records flow: a kill follows each reshard at once, while old shards are still read."""
    resharding: list[Turn] = ["reshard"] * reshards
    killing: list[Turn] = ["kill"] * kills
    return [turn for pair in zip_longest(resharding, killing) for turn in pair if turn is not None]


@dataclass
class Traffic:
    """Sender of records to one stream until it is stopped; the ledger has the acknowledged ones.

    Attributes
    ----------
    units
        PUT payload units of the records for the producer.
    """

    source: Source
    producer: Producer
    wanted: VerificationSettings
    units: int = 0

    @property
    def ledger(self) -> Ledger:
        """Ledger of the sent records."""
        return self.producer.ledger

    def send(self, stop: threading.Event) -> None:
        """Send records until the flag is set.

        Raises
        ------
        SandboxError, AwsError
            The stream refused records.
        """
        choose = random.Random(self.wanted.seed)
        payloads = self.source.payloads
        shape = TrafficShape(
            per_second=self.wanted.per_second,
            dirty=self.wanted.dirty,
            key=default_key_field(payloads),
            keys=1000,
        )
        feed = Feed(Generator(payloads.schema, choose).record, payloads, shape, choose)
        try:
            with translate_aws_errors(f"sending to {self.source.kind}"):
                self.producer.send(self._paced(feed, stop), sent=lambda _: None)
        except ThrottledError as error:
            # The producer has given up after its retries: callers must not retry.
            raise AwsError(str(error)) from error

    def _paced(self, feed: Feed, stop: threading.Event) -> Iterator[Event]:
        bucket = TokenBucket(feed.shape.rate, wait=stop.wait)
        for event in feed.events():
            bucket.take()
            if stop.is_set():
                return
            self.units += put_units(event.payload)
            yield event


class ScenarioRun:
    """One verification's records, kills and reshards, between its deployment and its removal.

    Parameters
    ----------
    place
        Place of the deployment.
    copy
        The deployed copy.
    wanted
        Settings of the verification.
    say
        Called with each step.
    """

    def __init__(
        self, place: Place, copy: VerificationCopy, wanted: VerificationSettings, *, say: Say
    ) -> None:
        self._place = place
        self._copy = copy
        self._wanted = wanted
        self._say = say
        self._choose = random.Random(wanted.seed)
        self._catalog: Catalog = place.catalog(copy.names)
        self._started: list[str] = []
        self.traffic = {source.kind: self._traffic(source) for source in copy.sources}
        self._sending: list[Background] = []
        self.kills: list[Kill] = []
        self.reshards: list[tuple[int, int]] = []
        self.shards: list[tuple[float, int]] = []
        """Numbers of open shards, each with its time in seconds of the monotonic clock."""

    @property
    def jobs(self) -> tuple[str, ...]:
        """All jobs of the copy."""
        return tuple(self._copy.environment.jobs)

    def _traffic(self, source: Source) -> Traffic:
        names, stream = self._copy.names, self._copy.environment.streams[source.kind]
        own = names.stream(source.kind)
        if isinstance(stream, KafkaTopic):
            settings = self._place.kafka(names, stream.cluster)
            make_topic(settings, own, PARTITIONS, 30.0)
            producer: Producer = KafkaProducer(settings["bootstrap.servers"], own, settings=settings)
        else:
            batch = max(1, min(500, round(self._wanted.per_second / _BATCHES_PER_SECOND)))
            producer = KinesisProducer(self._place.client("kinesis"), own, batch=batch)
        return Traffic(source, producer, self._wanted)

    def start_all(self) -> None:
        """Start the records and all jobs, and wait until each has landed some.

        Raises
        ------
        VerifyError
            A job did not land any in time.
        """
        self._sending = [Background(traffic.send, f"to-{name}") for name, traffic in self.traffic.items()]
        for job in self.jobs:
            self._say(f"starting job {job}")
            self._started.append(job)
            self._place.start(self._copy.names, job)
        for leg in self._copy.legs:
            self._say(f"waiting for the first records of {leg.landed}")
            self._wait_for_rows(leg)

    def _wait_for_rows(self, leg: Leg) -> None:
        what = f"the first records in {leg.landed}"
        self._wait(lambda: self._rows(leg.landed) > 0, self._place.patience.start, what, [leg.job])

    def kill_and_reshard(self) -> None:
        """Kill and reshard, in turns, while records flow.

        Raises
        ------
        VerifyError
            A job did not commit again, or the stream did not reach its number of shards.
        """
        resharded = "kinesis" in self.traffic
        for turn in order_disturbances(self._wanted.kills, self._wanted.reshards if resharded else 0):
            if turn == "reshard":
                self._reshard()
            else:
                self._kill()

    def _kill(self) -> None:
        number = len(self.kills) // len(self.jobs) + 1
        names, dead, took = self._copy.names, {}, {}
        for job in self.jobs:
            time.sleep(self._choose.uniform(0.0, _MOMENT_SECONDS))
            self._check(())
            self._say(f"kill {number} of {self._wanted.kills}: {job}")
            asked = time.monotonic()
            self._place.kill_run(names, job)
            took[job], dead[job] = time.monotonic() - asked, datetime.now(UTC)
            self._place.restart_killed_job(names, job)
        for job in self.jobs:
            self._say(f"kill {number} of {self._wanted.kills}: waiting for the next commit of {job}")
            back = max(self._recovered(leg, dead[job], number) for leg in self._copy.legs if leg.job == job)
            self.kills.append(Kill(job, number, round(took[job], 1), round(back, 1)))

    def _recovered(self, leg: Leg, dead: datetime, number: int) -> float:
        """Wait for the first commit to a landing table after its job's run ended; return the seconds to it."""
        after = dead.timestamp() * 1000
        what = f"a commit to {leg.landed} after kill {number} of {leg.job}"
        patience = self._place.patience.recover
        self._wait(lambda: self._commit(leg.landed, after) is not None, patience, what, [leg.job])
        return ((self._commit(leg.landed, after) or after) - after) / 1000

    def _reshard(self) -> None:
        kinesis, stream = self._place.client("kinesis"), self._copy.names.stream("kinesis")
        before = self._open_shards(kinesis, stream)
        # To double the shards and back: a split of each shard, then a merge of each pair.
        after = 2 * SHARDS if before == SHARDS else SHARDS
        self._say(f"resharding: {before} to {after} shards")
        with translate_aws_errors(f"resharding {stream}"):
            kinesis.update_shard_count(
                StreamName=stream, TargetShardCount=after, ScalingType="UNIFORM_SCALING"
            )
            wait_for(
                lambda: (
                    self._status(kinesis, stream) == "ACTIVE" and self._open_shards(kinesis, stream) == after
                ),
                self._place.patience.reshard,
                f"{after} open shards of {stream}",
            )
        self.reshards.append((before, after))
        self.shards.append((time.monotonic(), after))

    @staticmethod
    def _status(kinesis: Any, stream: str) -> str:
        return str(
            kinesis.describe_stream_summary(StreamName=stream)["StreamDescriptionSummary"]["StreamStatus"]
        )

    @staticmethod
    def _open_shards(kinesis: Any, stream: str) -> int:
        shards = list_shards(kinesis, stream)
        return sum("EndingSequenceNumber" not in shard["SequenceNumberRange"] for shard in shards)

    def finish(self) -> str:
        """Send the missing records up to the wanted number, wait until no more rows come, and stop the jobs.

        Returns
        -------
        str
            Missing rows by the tables' counts, for people; empty without any.
        """
        for traffic in self.traffic.values():
            self._wait_for_traffic(traffic)
        for sending in self._sending:
            sending.stop()
        self._say("waiting until all is landed and derived")
        lacking = self._settle()
        self.stop()
        return lacking

    def stop(self) -> None:
        """Stop with grace the jobs that were started and are not stopped yet.

        Raises
        ------
        VerifyError
            A job does not stop.
        """
        while self._started:
            job = self._started[-1]
            self._say(f"stopping job {job}")
            self._place.stop(self._copy.names, job)
            self._started.pop()

    def _wait_for_traffic(self, traffic: Traffic) -> None:
        what = f"{self._wanted.records:,} records to {traffic.source.kind}"
        self._say(f"sending {what}")
        seconds = self._wanted.records / self._wanted.per_second * 2 + 60
        self._wait(lambda: len(traffic.ledger) >= self._wanted.records, seconds, what, ())

    def _settle(self) -> str:
        counts, patience = dict[str, tuple[int, int]](), self._place.patience.land

        def reached() -> bool:
            with suppress(ThrottledError):  # throttled: no news, and the request is repeated
                counts.update(self._counts())
            if counts and all(have >= wanted for have, wanted in counts.values()):
                return True
            self._check(self.jobs)
            return False

        def short() -> str:
            lacking = ((table, *each) for table, each in counts.items() if each[0] < each[1])
            return ", ".join(f"{table} has {have} of {wanted}" for table, have, wanted in lacking)

        try:
            wait_until(reached, seconds=patience, what="settled", progress=short, poll_seconds=0.5)
        except StalledError:
            return f"no further row for {patience:.0f} s: {short()}"
        time.sleep(_SETTLE_SECONDS)
        return ""

    def _counts(self) -> dict[str, tuple[int, int]]:
        found = {}
        for leg in self._copy.legs:
            ledger = self.traffic[leg.stream].ledger
            found[leg.landed] = (self._rows(leg.landed), len(ledger))
            found[leg.derived] = (self._rows(leg.derived), len(ledger) - ledger.dirty)
        return found

    def compare_tables(self) -> tuple[TableComparison, ...]:
        """Compare every leg's tables with the sent records."""
        ledgers = {name: traffic.ledger for name, traffic in self.traffic.items()}
        return check_against_ledgers(self._catalog, self._copy, ledgers)

    def close(self) -> None:
        """Stop the traffic, whatever its result."""
        for sending in self._sending:
            sending.ask_to_stop()

    # ---- tables ----

    def _rows(self, name: str) -> int:
        table = self._copy.names.table(name)
        with aws_errors(table):
            return lake_tables.row_count(self._catalog, table)

    def _commit(self, name: str, after_ms: float) -> float | None:
        """Return the time in ms of a table's first commit after a time, by the clock of the committing process."""
        with aws_errors(self._copy.names.table(name)):
            table = lake_tables.load_table(self._catalog, self._copy.names.table(name))
        times = [snapshot.timestamp_ms for snapshot in table.snapshots()] if table else []
        return min((at for at in times if at > after_ms), default=None)

    # ---- waiting ----

    def _wait(self, reached: Callable[[], bool], seconds: float, what: str, jobs: Sequence[str]) -> None:
        def look() -> bool:
            self._check(jobs)
            return reached()

        wait_for(look, seconds, what)

    def _check(self, jobs: Sequence[str]) -> None:
        for sending in self._sending:
            sending.check()
        for job in jobs:
            why = self._place.why_ended(self._copy.names, job)
            if why is not None:
                raise VerifyError(f"job {job}: {why}")
