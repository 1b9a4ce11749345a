"""Scenario of a verification: records flow, runs are killed, the stream is resharded, tables are compared."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import zip_longest
from typing import Any, Literal

from pyiceberg.catalog import Catalog

from millrace.config.model import KafkaTopic
from millrace.lifecycle.audits.kinesis import list_shards
from millrace.lifecycle.aws_error_messages import translating_aws_errors
from millrace.sandbox.kill_and_restart_jobs import (
    JobsDrill,
    Say,
    translating_table_errors,
    wait_for_condition,
)
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.records.ledger import Ledger, compare_with_ledger
from millrace.sandbox.records.producer import KafkaProducer, KinesisProducer, RecordProducer
from millrace.sandbox.records.traffic import TrafficFeed, TrafficShape, default_key_field, generated_feed
from millrace.verify.environment_copy import (
    PARTITIONS,
    SHARDS,
    VerificationCopy,
    VerificationSettings,
)
from millrace.verify.expected_and_actual_cost import put_units
from millrace.verify.removals.removal import create_topic_if_missing
from millrace.verify.target_base import VerificationTarget
from millrace.verify.verification_outcome import TableComparison

_BATCHES_PER_SECOND = 5
_SETTLE_SECONDS = 5.0
"""Wait after the last expected row, for surplus rows: more than two triggers."""

Turn = Literal["reshard", "kill"]


def order_disturbances(kills: int, reshards: int) -> list[Turn]:
    """Return the order of disturbances while records flow: a kill follows each reshard at once, while old shards are still read."""
    resharding: list[Turn] = ["reshard"] * reshards
    killing: list[Turn] = ["kill"] * kills
    return [turn for pair in zip_longest(resharding, killing) for turn in pair if turn is not None]


class VerificationScenario(JobsDrill):
    """One verification's records, kills and reshards, between its deployment and its removal.

    Parameters
    ----------
    place
        Place of the deployment.
    copy
        The deployed copy.
    settings
        Settings of the verification.
    say
        Called with each step.
    """

    def __init__(
        self, place: VerificationTarget, copy: VerificationCopy, settings: VerificationSettings, *, say: Say
    ) -> None:
        super().__init__(place, copy.names, tuple(copy.environment.jobs), seed=settings.seed, say=say)
        self._place = place
        self._copy = copy
        self._settings = settings
        self.producers = {kind: self._make_producer(kind) for kind in copy.sources}
        self.units = Counter[str]()
        """PUT payload units of the records for each stream."""
        self.reshards: list[tuple[int, int]] = []
        self.shards: list[tuple[float, int]] = []
        """Numbers of open shards, each with its time in seconds of the monotonic clock."""

    def _make_producer(self, kind: str) -> RecordProducer:
        names, stream = self._copy.names, self._copy.environment.streams[kind]
        own = names.stream(kind)
        if isinstance(stream, KafkaTopic):
            settings = self._place.kafka_settings(names, stream.cluster)
            create_topic_if_missing(settings, own, PARTITIONS, 30.0)
            return KafkaProducer(settings["bootstrap.servers"], own, settings=settings)
        batch = max(1, min(500, round(self._settings.per_second / _BATCHES_PER_SECOND)))
        return KinesisProducer(self._place.client("kinesis"), own, batch=batch)

    def _generated_feed(self, kind: str) -> TrafficFeed:
        payloads = self._copy.sources[kind]
        shape = TrafficShape(
            per_second=self._settings.per_second,
            dirty=self._settings.dirty,
            key=default_key_field(payloads),
            keys=1000,
        )
        return generated_feed(payloads, shape, self._settings.seed)

    def _count_units(self, kind: str, event: RecordToSend) -> None:
        self.units[kind] += put_units(event.payload)

    def start_all(self) -> None:
        """Start the records and all jobs, and wait until each has landed some.

        Raises
        ------
        DrillError
            A job did not land any in time.
        """
        for kind, producer in self.producers.items():
            counting = partial(self._count_units, kind)
            self.send_in_background(f"to-{kind}", self._generated_feed(kind), producer, pass_event=counting)
        self.start()
        for leg in self._copy.legs:
            self.wait_for_first_rows(leg.landed, leg.job)

    def kill_and_reshard(self) -> None:
        """Kill and reshard, in turns, while records flow.

        Raises
        ------
        DrillError
            A job did not commit again, or the stream did not reach its number of shards.
        """
        resharded = "kinesis" in self.producers
        tables = {job: [[leg.landed] for leg in self._copy.legs if leg.job == job] for job in self.jobs}
        for turn in order_disturbances(self._settings.kills, self._settings.reshards if resharded else 0):
            if turn == "reshard":
                self._double_or_halve_shards()
            else:
                number = len(self.kills) // len(self.jobs) + 1
                self.kill_and_restart_jobs(f"kill {number} of {self._settings.kills}", tables)

    def _double_or_halve_shards(self) -> None:
        kinesis, stream = self._place.client("kinesis"), self._copy.names.stream("kinesis")
        before = self._open_shard_count(kinesis, stream)
        # To double the shards and back: a split of each shard, then a merge of each pair.
        after = 2 * SHARDS if before == SHARDS else SHARDS
        self.say(f"resharding: {before} to {after} shards")
        with translating_aws_errors(f"cannot reshard {stream}"):
            kinesis.update_shard_count(
                StreamName=stream, TargetShardCount=after, ScalingType="UNIFORM_SCALING"
            )
            asked = partial(kinesis.describe_stream_summary, StreamName=stream)
            wait_for_condition(
                lambda: (
                    asked()["StreamDescriptionSummary"]["StreamStatus"] == "ACTIVE"
                    and self._open_shard_count(kinesis, stream) == after
                ),
                self.runs.patience.reshard,
                f"{after} open shards of {stream}",
            )
        self.reshards.append((before, after))
        self.shards.append((time.monotonic(), after))

    @staticmethod
    def _open_shard_count(kinesis: Any, stream: str) -> int:
        shards = list_shards(kinesis, stream)
        return sum("EndingSequenceNumber" not in shard["SequenceNumberRange"] for shard in shards)

    def send_rest_stop_jobs_and_describe_missing(self) -> str:
        """Send the missing records up to the wanted number, wait until no more rows come, and stop the jobs.

        Returns
        -------
        str
            Missing rows by the tables' counts, for people; empty without any.
        """
        for kind in self.producers:
            self._wait_until_records_sent(kind)
        for sending in self.sending:
            sending.stop()
        self.say("waiting until all records are landed and derived")
        if not (lacking := self.wait_for_rows_and_describe_missing(self._expected_rows_by_table())):
            time.sleep(_SETTLE_SECONDS)
        self.stop()
        return lacking

    def _wait_until_records_sent(self, kind: str) -> None:
        what, ledger = f"{self._settings.records:,} records to {kind}", self.producers[kind].ledger
        self.say(f"sending {what}")
        seconds = self._settings.records / self._settings.per_second * 2 + 60
        self.wait_while_jobs_run(lambda: len(ledger) >= self._settings.records, seconds, what, ())

    def _expected_rows_by_table(self) -> dict[str, int]:
        """Return the number of rows by table, after all records were sent."""
        counts: dict[str, int] = {}
        for leg in self._copy.legs:
            ledger = self.producers[leg.stream].ledger
            counts |= {leg.landed: len(ledger), leg.derived: len(ledger) - ledger.dirty_count}
        return counts

    def compare_tables(self) -> tuple[TableComparison, ...]:
        """Return the comparison of every leg's tables with the sent records."""
        ledgers = {kind: producer.ledger for kind, producer in self.producers.items()}
        return compare_with_ledgers(self.catalog, self._copy, ledgers)


def compare_with_ledgers(
    catalog: Catalog, copy: VerificationCopy, ledgers: Mapping[str, Ledger]
) -> tuple[TableComparison, ...]:
    """Return the comparison of every leg's two tables with the ledger of its stream, as multisets.

    Parameters
    ----------
    copy
        The copy, for its legs.
    ledgers
        Ledgers by stream.

    Raises
    ------
    AwsError, DrillError
        The catalog refuses, or a table cannot be read.
    """
    comparisons = []
    for leg in copy.legs:
        landed, derived = copy.names.table(leg.landed), copy.names.table(leg.derived)
        with translating_table_errors(f"{landed} and {derived}"):
            account = compare_with_ledger(catalog, ledgers[leg.stream], landed, derived)
        comparisons.append(TableComparison(leg, account))
    return tuple(comparisons)
