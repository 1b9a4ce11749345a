"""Options of a program's reader: each becomes a key, has no effect, or is named in a note."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from millrace.advisor.existing.stream_candidates_of_program import ImportedStreamSettings, StreamAnswers
from millrace.cli.plan.existing.import_plans import environment_yaml, text_and_plans_with_fitted_sla
from millrace.config import load
from tests.unit.advisor.settings_of_program import ARN, settings_of_program
from tests.unit.advisor.test_job_import import ROOT
from tests.unit.advisor.test_program_reader import KAFKA, imported
from tests.unit.advisor.test_program_triggers import INSTEAD

WRITE = ".load().writeStream.trigger(processingTime='10 seconds').start()"


def of_kafka(options: dict[str, object], topics: str = "orders") -> ImportedStreamSettings:
    return settings_of_program(f"{KAFKA}.option('subscribe', {topics!r}).options(**{options!r}){WRITE}")


def land_query(said: ImportedStreamSettings, partitions: int | None = 1) -> dict[str, Any]:
    [job] = imported(said, partitions)["jobs"].values()
    return dict(next(iter(job["queries"].values())))


KEYS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "tasks": ({"minPartitions": 64}, {"min_partitions": 64}),
    "least": ({"minOffsetsPerTrigger": "500", "maxTriggerDelay": "5s"}, {"min_records_per_batch": 500, "max_delay": "5s"}),
    "Spark's default delay": ({"minOffsetsPerTrigger": 500}, {"min_records_per_batch": 500, "max_delay": "15m"}),
    "milliseconds": ({"minOffsetsPerTrigger": 500, "maxTriggerDelay": "2000"}, {"min_records_per_batch": 500, "max_delay": "2000ms"}),
    "minutes": ({"minOffsetsPerTrigger": 500, "maxTriggerDelay": "2min"}, {"min_records_per_batch": 500, "max_delay": "2m"}),
    "a delay of nothing": ({"maxTriggerDelay": "5m"}, {}),
    "headers": ({"includeHeaders": "TRUE"}, {"headers": True}),
    "no headers": ({"includeHeaders": False}, {"headers": False}),
    "group": ({"groupIdPrefix": "shop-readers"}, {"group_id_prefix": "shop-readers"}),
    "no effect": ({"startingOffsets": "earliest", "failOnDataLoss": "true", "kafka.isolation.level": "read_committed"}, {}),
}  # fmt: skip


@pytest.mark.parametrize("which", KEYS)
def test_an_option_with_a_key_becomes_it(which: str) -> None:
    options, keys = KEYS[which]
    said = of_kafka(options)
    assert said.notes == ()
    assert land_query(said).get("kafka", {}) == keys


@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"failOnDataLoss": "false"}, "line 1: its failOnDataLoss is false (line 1), and lost records always stop a job here"),
        ({"kafka.isolation.level": "read_uncommitted", "kafka.group.id": "g", "maxBytesPerTrigger": "10m"},
         "line 1: this file has no key for kafka.isolation.level, kafka.group.id, maxbytespertrigger"),
        ({"groupIdPrefix": "shop readers"}, "line 1: its groupIdPrefix shop readers is no value of kafka.group_id_prefix and is left out"),
        ({"minPartitions": "many"}, f"its minPartitions many is no number: {INSTEAD}"),
    ],
)  # fmt: skip
def test_an_option_without_a_key_is_named_in_a_note(options: dict[str, object], note: str) -> None:
    said = of_kafka(options)
    assert said.notes == (note,)
    assert "kafka" not in land_query(said)


def test_an_option_that_is_computed_is_told() -> None:
    said = settings_of_program(
        f"{KAFKA}.option('subscribe', 'orders').option('minPartitions', tasks()){WRITE}"
    )
    assert said.notes == (f"its minPartitions is tasks() (line 1): {INSTEAD}",)
    wait = settings_of_program(
        f"{KAFKA}.option('subscribe', 'orders').option('minOffsetsPerTrigger', 9).option('maxTriggerDelay', delay()){WRITE}"
    )
    assert wait.notes == ("its maxTriggerDelay is delay() (line 1): it is left out",)
    assert "kafka" not in land_query(wait)
    more = settings_of_program(
        f"spark.readStream.format('kinesis').option('streamName', 'orders').options(**options()){WRITE}"
    )
    assert more.notes == ("line 1: this file has no key for what options() gives",)


def test_options_of_kinesis_are_told() -> None:
    text = (
        f"f = glue.create_data_frame.from_options('kinesis', {{'streamARN': '{ARN}/orders', 'classification': 'json', 'inferSchema': 'true',"
        "'startingPosition': 'TRIM_HORIZON', 'maxFetchTimeInMs': '5000', 'maxFetchRecordsPerShard': 1000, 'awsSTSRoleARN': 'arn:aws:iam::111122223333:role/x',"
        f"'fanoutConsumerARN': '{ARN}/orders/consumer/x:1'}})\n"
        "glue.forEachBatch(frame=f, batch_function=g, options={'windowSize': '10 seconds'})"
    )
    said = settings_of_program(text)
    assert said.notes[1:] == (
        "line 1: this file has no key for maxfetchtimeinms",
        "it reads by enhanced fan-out: fan_out: true in the land query keeps that",
    )
    assert land_query(said)["records_per_batch"] == 1000  # of --partitions 1
    [stream] = imported(said)["streams"].values()
    assert stream["read_role"] == "arn:aws:iam::111122223333:role/x"


def test_a_limit_of_qubole_counts_for_each_shard() -> None:
    said = settings_of_program(
        f"spark.readStream.format('kinesis').option('streamName', 'orders').option('kinesis.executor.maxFetchRecordsPerShard', 700){WRITE}"
    )
    assert said.notes == ()
    assert land_query(said)["records_per_batch"] == 700
    open_limit = land_query(said, partitions=None)["records_per_batch"]
    assert open_limit == "(open) 700 for each shard, and their number is open; give it with --partitions N"


@pytest.mark.parametrize("answers", [StreamAnswers(), StreamAnswers(topic="payments")])
def test_a_limit_of_all_topics_is_none_of_each(answers: StreamAnswers) -> None:
    text = (
        f"{KAFKA}.option('subscribe', 'orders,payments,refunds').option('maxOffsetsPerTrigger', 9000)"
        f".option('minPartitions', 30){WRITE}"
    )
    said = settings_of_program(text, answers=answers)
    assert f"line 1: its maxOffsetsPerTrigger 9000 is of all its topics together: {INSTEAD}" in said.notes
    assert f"line 1: its minPartitions 30 is of all its topics together: {INSTEAD}" in said.notes
    [job] = imported(said)["jobs"].values()
    for query in job["queries"].values():
        assert not {"records_per_batch", "kafka"} & set(query)


def test_a_limit_of_alternatives_is_that_of_one_topic() -> None:
    text = f"t = 'orders' if f() else 'payments'\n{KAFKA}.option('subscribe', t).option('maxOffsetsPerTrigger', 9000){WRITE}"
    assert (
        land_query(settings_of_program(text, answers=StreamAnswers(topic="orders")))["records_per_batch"]
        == 9000
    )


def test_a_part_of_the_partitions_is_told() -> None:
    text = "".join(
        f"{KAFKA}.option('assign', '{{\"orders\": {parts}}}').load().filter('a').writeStream.format('iceberg').toTable('{name}')\n"
        for parts, name in (("[0, 1]", "a"), ("[2, 5]", "b"))
    )
    said = settings_of_program(text)
    assert [each.name for each in said.settings_of_all_streams] == ["orders"]
    assert [each.name for each in said.written] == ["a", "b"]
    assert said.partitions == (0, 1, 2, 5)
    assert (
        "line 1: it reads the partitions 0, 1, 2, 5 of orders, and this file reads all of them: `millrace split` divides a topic among jobs"
    ) in said.notes
    assert "kafka" not in land_query(said)


def planned(
    tmp_path: Path, options: dict[str, object], rate: float = 1.0
) -> tuple[dict[str, Any], list[str]]:
    made = imported(of_kafka(options))
    made["project"] = "moved"
    made["streams"]["orders"] |= {"partitions": 4}
    made["streams"]["orders"]["traffic"]["records_per_second"] = rate
    (tmp_path / "environments").mkdir()
    schema = tmp_path / next(iter(made["jobs"].values()))["queries"]["land-orders"]["schema"]
    schema.parent.mkdir(parents=True)
    schema.write_bytes((ROOT / schema.relative_to(tmp_path)).read_bytes())
    text, plans, notes = text_and_plans_with_fitted_sla(
        "moved", environment_yaml(made), tmp_path, latency_is_given=False
    )
    assert set(plans) == {"today", "computed"}
    (tmp_path / "environments" / "moved.yaml").write_text(text)
    [job] = load("moved", tmp_path).jobs.values()
    return job.queries["land-orders"].model_dump(exclude_unset=True), notes


def test_a_wait_beyond_the_default_sla_stays(tmp_path: Path) -> None:
    query, notes = planned(tmp_path, {"minOffsetsPerTrigger": 5, "maxTriggerDelay": "5m"})
    assert query["kafka"]["min_records_per_batch"] == 5
    assert [each.partition(",")[0] for each in notes] == ["latency is 16m"]


@pytest.mark.parametrize("more", [{}, {"includeHeaders": "false"}])
@pytest.mark.parametrize(
    ("options", "note"),
    [
        ({"minOffsetsPerTrigger": 10**9, "maxTriggerDelay": "5s"}, "today's kafka.min_records_per_batch 1000000000 and kafka.max_delay 5s is left"),
        ({"minPartitions": 3}, "today's kafka.min_partitions 3 is left"),
    ],
)  # fmt: skip
def test_an_option_that_the_plan_refuses_is_left_to_it(
    options: dict[str, object], note: str, more: dict[str, object], tmp_path: Path
) -> None:
    query, notes = planned(tmp_path, {**options, **more})
    assert query.get("kafka", {}) == ({"headers": False} if more else {})
    assert notes[0].startswith(note)


def test_a_wait_that_does_not_go_with_the_limit_leaves_the_limit(tmp_path: Path) -> None:
    waits = {"minPartitions": 64, "minOffsetsPerTrigger": 50000, "maxTriggerDelay": "5m"}
    query, [note] = planned(tmp_path, {**waits, "maxOffsetsPerTrigger": 90000}, rate=300.0)
    assert (query["records_per_batch"], "kafka" in query) == (90000, False)
    assert note.startswith(
        "today's kafka.min_partitions 64 and kafka.min_records_per_batch 50000 and kafka.max_delay 5m is left"
    )
    assert "; latency is 2m, as today's trigger and limit need it" in note
