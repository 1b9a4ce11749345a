"""Deployed jobs that are killed with -9 between batches land every record once."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient

from millrace.advisor.logs.event_logs import LogLines, find_event_logs
from millrace.sandbox import demo

pytestmark = pytest.mark.faults


@pytest.mark.parametrize("job", ["departures", "flights"])
def test_every_record_is_accounted_for(outcomes, job):
    outcome = outcomes[job]
    assert outcome.account.exact, outcome.account
    assert outcome.account.produced == outcome.account.landed == len(outcome.ledger)
    assert outcome.account.dead_letters == outcome.ledger.dirty_count > 0
    assert outcome.derived.rows == outcome.account.produced - outcome.account.dead_letters
    compared = outcome.derived.comparison
    assert (compared.rows, compared.is_wrong, compared.reason) == (outcome.derived.rows, False, None)
    assert outcome.landed.letter is not None
    assert outcome.landed.letter["_bytes"]


@pytest.mark.parametrize(
    ("job", "column"),
    [
        ("departures", "airline_name"),
        ("departures", "dest_name"),
        ("departures", "plane_model"),
        ("flights", "temp"),
    ],
)
def test_rows_are_enriched(sandbox, outcomes, job, column):
    catalog = sandbox.spark.catalog(sandbox.names.warehouse_url)
    rows = catalog.load_table(outcomes[job].derived_table).scan(selected_fields=(column,)).to_arrow()
    assert rows[column].null_count < rows.num_rows


def test_columns_hold_what_was_sent(sandbox, outcomes):
    """The hash proves the bytes that arrived; this proves what was decoded from them."""
    columns = ("carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "distance")
    catalog = sandbox.spark.catalog(sandbox.names.warehouse_url)
    landed = catalog.load_table(outcomes["flights"].landed_table)
    result = landed.scan(row_filter="_error is null", selected_fields=columns).to_arrow().to_pylist()
    feed = demo.feed_by_stream(sandbox.environment, "few")["flights"]
    sent = [json.loads(event.payload) for event in feed.feed.events(most=feed.most) if event.dirt is None]
    assert Counter(tuple(row[c] for c in columns) for row in result) == Counter(
        tuple(row.get(c) for c in columns) for row in sent
    )


def test_event_logs_and_checkpoints_are_on_s3(sandbox, outcomes, aws):
    s3 = aws.client("s3")
    logs = s3.list_objects_v2(Bucket=sandbox.names.bucket("event-logs"))
    assert logs["KeyCount"] >= 2 * len(outcomes)  # a killed run and its successor for each job
    checkpoints = s3.list_objects_v2(
        Bucket=sandbox.names.bucket("checkpoints"), Prefix="departures/land-departures/"
    )
    assert any("/commits/" in item["Key"] for item in checkpoints["Contents"])


def test_summary_is_the_sum(sandbox, drill, outcomes):
    summary = demo.demo_summary(sandbox.environment, drill.tables)
    assert summary["lost"] == summary["duplicated"] == summary["dead_letters_altered"] == 0
    assert summary["produced"] == summary["landed"] == sum(len(o.ledger) for o in outcomes.values())
    assert summary["recovery_seconds"] > 0
    assert 0 < summary["latency_p50_seconds"] <= summary["latency_p95_seconds"]
    records = {job: each["latency_records"] for job, each in summary["jobs"].items()}
    assert all(0 < records[job] <= each.account.produced * 0.4 for job, each in outcomes.items())


def test_kafkas_own_tools_see_how_far_the_topic_was_read(sandbox, outcomes):
    topic = sandbox.names.stream("flights")
    group = sandbox.environment.jobs["flights"].queries["land-flights"].kafka.lag_group
    admin = AdminClient({"bootstrap.servers": sandbox.kafka.bootstrap})  # its futures die with it
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])
    told = asked[group].result(timeout=20).topic_partitions
    assert {each.topic for each in told} == {topic}
    assert sum(each.offset for each in told) == outcomes["flights"].account.produced


def _events(lines: LogLines) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            if not lines.cut_off:  # the drill kills drivers: the last line of such a log may be half written
                raise
        else:
            yield event


def test_every_spark_job_of_a_query_runs_in_its_pool(sandbox, outcomes, aws):
    """By Spark's event logs: the jobs that a batch's function starts, too."""
    names: dict[str, str] = {}
    pools: set[tuple[str, str]] = set()
    for log in find_event_logs(f"s3://{sandbox.names.bucket('event-logs')}", aws.client("s3")):
        for event in _events(LogLines(log)):
            if event["Event"].endswith("QueryStartedEvent"):
                names[event["runId"]] = event["name"]
            elif event["Event"] == "SparkListenerJobStart":
                run = event["Properties"].get("spark.jobGroup.id")
                pools.add((run, event["Properties"].get("spark.scheduler.pool")))
    of_queries = {(names[run], pool) for run, pool in pools if run in names}
    assert len(of_queries) >= 2 * len(outcomes)
    assert {pool for _, pool in of_queries} == set(names.values())
    assert all(name == pool for name, pool in of_queries)
