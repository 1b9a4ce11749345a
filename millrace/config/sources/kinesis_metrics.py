"""CloudWatch metrics of a Kinesis stream (Kinesis developer guide, "Monitoring with CloudWatch")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from millrace.config.sources.stream_metrics import (
    LATE_PERIODS,
    StreamAlarm,
    StreamMetrics,
    StreamPanel,
    StreamReaderTiming,
)

if TYPE_CHECKING:
    from millrace.config.aws.resource_names import Names

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
