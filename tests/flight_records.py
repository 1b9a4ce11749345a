"""Records of the demo, for tests that send or decode them by other ways."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from millrace.config.formats.json import JsonFormat
from millrace.sandbox.demo import departures_feed
from millrace.sandbox.payloads import payload_writers
from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.toolchain import ROOT

SCHEMA = ROOT / "pipelines" / "flights" / "schemas" / "flight.ddl"


def flight_records(departures: pa.Table, *, dirty_share: float, seed: int) -> Iterator[RecordToSend]:
    """Each departure once, a seeded share of them spoiled."""
    payloads = payload_writers(JsonFormat(), SCHEMA)
    feed = departures_feed(departures, payloads, per_second=1, dirty=dirty_share, seed=seed)
    return feed.events(most=departures.num_rows)
