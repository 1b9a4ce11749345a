"""Cost of a Kinesis stream (AWS' price page of Kinesis Data Streams), and its CloudWatch metrics (developer guide)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from millrace.config.sources.base import GB, HOURS, SECONDS, Charge, MonthlyStreamUsage, Traffic
from millrace.config.sources.stream_metrics import (
    LATE_PERIODS,
    StreamAlarm,
    StreamMetrics,
    StreamPanel,
    StreamReaderTiming,
)

if TYPE_CHECKING:
    from millrace.config.aws.resource_names import Names


_PUT_UNIT = 25_000
"""Bytes of a PUT payload unit (25 KB)."""

_KB = 1024
"""Bytes to a multiple of which each record of an on-demand stream is rounded up ("Data-In")."""

_DAY = timedelta(days=1)
_WEEK = 7 * _DAY
_MONTH = timedelta(hours=HOURS)


def provisioned_charges(
    traffic: Traffic, retention: timedelta, usage: MonthlyStreamUsage
) -> Iterator[Charge]:
    """Yield the charges of a provisioned stream."""
    shards, guess = usage.partitions, usage.assumed
    hours = shards * HOURS
    volume_guess = traffic.basis == "assumed"
    of_shards = _with_plural(shards, "shard")
    yield Charge("shards", hours, "kinesis.shard_hour", f"{of_shards} for {HOURS} h", guess)
    units = traffic.records_per_second * SECONDS * -(-int(traffic.record_size) // _PUT_UNIT) / 1e6
    why = f"{units:,.0f} million PUT units of 25 KB"
    yield Charge("puts", units, "kinesis.million_put_units", why, volume_guess)
    if retention > _DAY:
        why = "longer than 24 h, by the shard"
        yield Charge("retention", hours, "kinesis.extended_retention_shard_hour", why, guess)
    if retention > _WEEK:
        retention_gb = traffic.monthly_gb * ((retention - _WEEK) / _MONTH)
        why = f"{retention_gb:,.0f} GB beyond 7 days"
        yield Charge("long retention", retention_gb, "kinesis.long_retention_gb_month", why, volume_guess)
    if usage.consumers:
        count = usage.consumers
        why = f"{_with_plural(count, 'consumer')} on {of_shards}"
        yield Charge("fan-out", hours * count, "kinesis.fan_out_consumer_shard_hour", why, guess)
        volume = traffic.monthly_gb * count
        yield Charge("fan-out data", volume, "kinesis.fan_out_gb", f"{volume:,.0f} GB", volume_guess)


def on_demand_charges(traffic: Traffic, retention: timedelta, usage: MonthlyStreamUsage) -> Iterator[Charge]:
    """Yield the charges of an on-demand stream.

    Each record is rounded up, so records of different sizes cost more than the same number of records of their mean size.
    """
    volume, guess = traffic.monthly_gb, traffic.basis == "assumed"
    name = "kinesis.advantage." if usage.advantage else "kinesis.on_demand."
    if not usage.advantage:
        yield Charge("stream", HOURS, f"{name}stream_hour", f"{HOURS} h", assumed=False)
    billed = traffic.records_per_second * _rounded_to_kib(traffic.record_size) * SECONDS / GB
    why = f"{billed:,.0f} GB, each record rounded up to 1 KiB"
    yield Charge("data in", billed, f"{name}gb_in", why, guess)
    if usage.readers:
        why = f"{volume:,.0f} GB to {usage.readers} reader{'s' * (usage.readers > 1)}"
        yield Charge("data out", volume * usage.readers, f"{name}gb_out", why, guess)
    if usage.consumers:
        out = volume * usage.consumers
        yield Charge("fan-out data", out, f"{name}fan_out_gb", f"{out:,.0f} GB", guess)
    if retention > _DAY:
        retention_gb = volume * ((min(retention, _WEEK) - _DAY) / _MONTH)
        why = f"{retention_gb:,.0f} GB from 24 h to 7 days"
        yield Charge("retention", retention_gb, f"{name}extended_retention_gb_month", why, guess)
    if retention > _WEEK:
        retention_gb = volume * ((retention - _WEEK) / _MONTH)
        yield Charge(
            "long retention",
            retention_gb,
            f"{name}long_retention_gb_month",
            f"{retention_gb:,.0f} GB beyond 7 days",
            guess,
        )


def _rounded_to_kib(record_bytes: float) -> int:
    return math.ceil(record_bytes / _KB) * _KB


def _with_plural(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


_AGE = "GetRecords.IteratorAgeMilliseconds"
_WRITES, _READS = "WriteProvisionedThroughputExceeded", "ReadProvisionedThroughputExceeded"

METRICS = StreamMetrics(
    namespace="AWS/Kinesis",
    dimension="StreamName",
    age=_AGE,
    panels=(
        StreamPanel("Behind the newest record", "ms", (("iterator age", _AGE, "Maximum"),), "iterator-age"),
        StreamPanel(
            "Records", "short", (("in", "IncomingRecords", "Sum"), ("out", "GetRecords.Records", "Sum"))
        ),
        StreamPanel("Turned away", "short", (("writes", _WRITES, "Sum"), ("reads", _READS, "Sum"))),
    ),
)


def kinesis_alarms(
    names: Names, stream_name: str, readers: Sequence[StreamReaderTiming], *, created: bool
) -> Iterator[StreamAlarm]:
    """Return the alarms of a stream of this account.

    Parameters
    ----------
    readers
        Queries that land it.
    created
        Whether the environment created it, so that an alarm watches its producers.
    """
    dimensions = {METRICS.dimension: stream_name}
    shared = [reader for reader in readers if not reader.fans_out]
    latency = min((reader.latency for reader in shared), default=0.0)
    # Readers call only within their batches, so the slowest trigger decides how often there is data.
    trigger = max((reader.trigger for reader in shared), default=0.0)
    if shared:
        why = f"a reader is more than {latency:g} s behind the newest record"
        yield StreamAlarm(
            "iterator-age", _AGE, dimensions, "Maximum", latency * 1000, LATE_PERIODS, trigger, why
        )
    for reader in readers:
        if reader.fans_out:
            yield StreamAlarm(
                f"iterator-age/{reader.job}/{reader.query}",
                "SubscribeToShardEvent.MillisBehindLatest",
                dimensions | {"ConsumerName": names.fan_out_consumer(reader.job, reader.query)},
                "Maximum",
                reader.latency * 1000,
                LATE_PERIODS,
                reader.trigger,
                f"{reader.query} of {reader.job} is more than {reader.latency:g} s behind the newest record",
            )
    if created:
        why = "producers are turned away: more shards, or a key that spreads better"
        yield StreamAlarm("write-throttled", _WRITES, dimensions, "Sum", 0, 5, None, why)
    if shared:
        why = "readers are turned away: fewer of them on one stream, or fan-out"
        yield StreamAlarm("read-throttled", _READS, dimensions, "Sum", 0, 5, trigger, why)
