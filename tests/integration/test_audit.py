"""An audit of complete tables finds nothing; of a table that lacks records it names each of them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from pyiceberg.exceptions import NoSuchTableError
from typer.testing import CliRunner

from millrace.cli.app import app
from millrace.lifecycle.audits.hourly_audit import HOUR, AuditResult, hour_starts_covering_window
from millrace.lifecycle.audits.kafka import TopicReader, compare_offsets_by_hour
from millrace.lifecycle.audits.query_audit import audit_query
from millrace.lifecycle.audits.records_in_tables import (
    OFFSETS,
    QUERY,
    LandedRecords,
    SinkAndDeadLetters,
    gaps_between_commits,
)
from millrace.lifecycle.aws_error_messages import AwsError
from millrace.sandbox import operate_running_sandbox
from millrace.sandbox.localstack_deployment import Sandbox

pytestmark = pytest.mark.slow

TOPIC = "audited"
ROWS = pa.schema(
    [
        ("_id", pa.string()),
        ("_source", pa.string()),
        ("_position", pa.string()),
        ("_arrived_at", pa.timestamp("us", "UTC")),
    ]
)


@pytest.mark.parametrize(
    ("job", "query", "method"),
    [("flights", "land-flights", "offsets"), ("departures", "land-departures", "records")],
)
def test_what_the_drill_landed_is_what_came(sandbox, outcomes, job, query, method):
    place = operate_running_sandbox.sandbox_deployment(sandbox.spark, sandbox.environment)
    end = datetime.now(UTC)
    # The events' own times are those of the flights, in 2013; when they came is another matter.
    (result,) = audit_query(place, job, query, end - 2 * HOUR, end)
    assert isinstance(result, AuditResult)
    assert (result.method, result.missing_records, result.holes) == (method, 0, ())
    assert sum(hour.arrived or 0 for hour in result.hours) == outcomes[job].account.produced
    assert sum(hour.landed for hour in result.hours) == outcomes[job].account.produced


def test_the_command_says_so_and_ends_well(sandbox, outcomes):
    operate_running_sandbox.save_endpoints(sandbox)
    try:
        ended = CliRunner().invoke(app, ["audit", "flights", "--env", "local", "--hours", "2", "--json"])
        told = CliRunner().invoke(app, ["audit", "flights", "--env", "local", "--hours", "2"])
    finally:
        operate_running_sandbox._RECORD.unlink()
    assert ended.exit_code == told.exit_code == 0, ended.output
    (result,) = json.loads(ended.stdout)
    produced = outcomes["flights"].account.produced
    assert (result["missing"], sum(hour["landed"] for hour in result["hours"])) == (0, produced)
    assert f"none of {produced:,} records is missing" in told.stdout


@dataclass(frozen=True)
class Holed:
    """A topic, and a table that lacks some of its records.

    Attributes
    ----------
    sent
        Offsets of the records that were sent, in order; those between are markers of transactions.
    """

    landed: LandedRecords
    sent: list[int]


@pytest.fixture(scope="module")
def holed(sandbox: Sandbox) -> Iterator[Holed]:
    """20 records, two in transactions, 5 more; the first three are forgotten by the broker."""
    sandbox.kafka.create_topic(TOPIC, 1)
    servers = {"bootstrap.servers": sandbox.kafka.bootstrap}
    sent: list[int] = []

    def delivered(error, message):
        assert error is None
        sent.append(message.offset())

    plain, reader = Producer(servers), Consumer({**servers, "group.id": "markers"})
    for number in range(20):
        plain.produce(TOPIC, f"{number}".encode(), partition=0, on_delivery=delivered)
    assert plain.flush(30) == 0
    for number in range(2):
        careful = Producer({**servers, "transactional.id": f"audited-{number}"})
        careful.init_transactions(30)
        careful.begin_transaction()
        careful.produce(TOPIC, b"in a transaction", partition=0, on_delivery=delivered)
        careful.commit_transaction(30)
        # The broker writes the marker after it has answered.
        until = time.monotonic() + 30
        while reader.get_watermark_offsets(TopicPartition(TOPIC, 0))[1] < sent[-1] + 2:
            assert time.monotonic() < until
            time.sleep(0.05)
    for number in range(5):
        plain.produce(TOPIC, f"{number}".encode(), partition=0, on_delivery=delivered)
    assert plain.flush(30) == 0
    reader.close()
    admin = sandbox.kafka.admin()  # its futures die with it
    forgotten = admin.delete_records([TopicPartition(TOPIC, 0, 3)])
    for future in forgotten.values():
        future.result()
    catalog = sandbox.spark.catalog(sandbox.names.warehouse_url)
    name = f"{sandbox.names.database}.audited"
    with suppress(NoSuchTableError):
        catalog.drop_table(name)
    now = datetime.now(UTC)
    lacking = {1, 2, 7, 8, 15, *sent[-2:]}
    rows = [
        {"_id": f"{TOPIC}/0/{o}", "_source": TOPIC, "_position": str(o).zfill(20), "_arrived_at": now}
        for o in sent
        if o not in lacking
    ]
    # Landed, though its producer's clock was never set.
    rows[-1]["_arrived_at"] = datetime.fromtimestamp(0, UTC)
    catalog.create_table(name, schema=ROWS).append(pa.Table.from_pylist(rows, ROWS))
    yield Holed(LandedRecords.open(catalog, name, TOPIC), sent)
    catalog.drop_table(name)


@pytest.mark.faults
def test_what_is_missing_is_named(sandbox, holed):
    now = datetime.now(UTC)
    topic = TopicReader(TOPIC, {"bootstrap.servers": sandbox.kafka.bootstrap})
    unread = holed.sent[-2]
    hours, holes = compare_offsets_by_hour(
        topic,
        holed.landed,
        hour_starts_covering_window(now - HOUR, now),
        only=None,
        read={0: unread},
        whole=True,
    )
    markers = sorted(set(range(unread)) - set(holed.sent))
    assert len(markers) == 2
    assert [(int(h.first), int(h.last), h.verdict) for h in holes if h.verdict != "nothing"] == [
        (1, 2, "gone"),
        (7, 8, "lost"),
        (15, 15, "lost"),
    ]
    nothing = [o for h in holes if h.verdict == "nothing" for o in range(int(h.first), int(h.last) + 1)]
    assert nothing == markers
    assert sum(hour.missing for hour in hours) == 3
    assert sum(hour.waiting for hour in hours) == 2
    lost = next(hole for hole in holes if hole.verdict == "lost")
    assert lost.since is not None
    assert now - timedelta(minutes=10) < lost.since < now


def test_a_topic_that_is_not_there_is_told(sandbox, holed):
    now = datetime.now(UTC)
    nowhere = TopicReader("nowhere", {"bootstrap.servers": sandbox.kafka.bootstrap})
    with pytest.raises(AwsError, match="topic nowhere"):
        compare_offsets_by_hour(
            nowhere,
            holed.landed,
            hour_starts_covering_window(now - HOUR, now),
            only=None,
            read={},
            whole=True,
        )


DIRECT = "audited-direct"


def direct_rows(offsets):
    now = datetime.now(UTC)
    result = [
        {"_id": f"{DIRECT}/0/{o}", "_source": DIRECT, "_position": str(o).zfill(20)}
        | {"_arrived_at": now, "_landed_at": now}
        for o in offsets
    ]
    return pa.Table.from_pylist(result, ROWS.append(pa.field("_landed_at", pa.timestamp("us", "UTC"))))


def test_a_direct_query_is_held_against_its_sink_its_letters_and_its_commits(sandbox):
    """Thirty records; offsets 3 to 5 and 20 are in neither table, and of 20 and 21 no commit says that it holds them."""
    sandbox.kafka.create_topic(DIRECT, 1)
    producer = Producer({"bootstrap.servers": sandbox.kafka.bootstrap})
    for number in range(30):
        producer.produce(DIRECT, f"{number}".encode(), partition=0)
    assert producer.flush(30) == 0
    catalog, tables = sandbox.spark.catalog(sandbox.names.warehouse_url), []
    for name in ("direct_sink", "direct_letters"):
        full = f"{sandbox.names.database}.{name}"
        with suppress(NoSuchTableError):
            catalog.drop_table(full)
        tables.append(catalog.create_table(full, schema=direct_rows(()).schema))
    sink, letters = tables
    for start, end in ((0, 10), (10, 20), (22, 30)):
        offsets = json.dumps({"start": {"0": start} if start else {}, "end": {"0": end}})
        held = [o for o in range(start, end) if o not in (3, 4, 5, 6)]
        sink.append(direct_rows(held), snapshot_properties={QUERY: "tax", OFFSETS: offsets})
    letters.append(direct_rows([6, 21]))
    now = datetime.now(UTC)
    topic = TopicReader(DIRECT, {"bootstrap.servers": sandbox.kafka.bootstrap})
    running_sandbox = SinkAndDeadLetters(
        LandedRecords(letters, DIRECT),
        LandedRecords(sink, DIRECT),
        hour_starts_covering_window(now - HOUR, now)[0],
    )

    def told(held):
        hours, holes = compare_offsets_by_hour(
            topic,
            running_sandbox,
            hour_starts_covering_window(now - HOUR, now),
            only=None,
            read={0: 30},
            whole=True,
            gaps=held,
        )
        left_out = sum(hour.left_out for hour in hours)
        return [(h.first, h.last, h.verdict) for h in holes], sum(h.missing for h in hours), left_out

    # Without a transform each record has a row; with one, those that a commit holds may be left out.
    assert told(None) == ([("3", "5", "lost"), ("20", "20", "lost")], 4, 0)
    gaps = gaps_between_commits(sink, "tax", {"0": (DIRECT, 0)}, earliest=True)
    assert told(gaps) == ([("20", "20", "lost")], 1, 3)
    for table in tables:
        catalog.drop_table(table.name())
