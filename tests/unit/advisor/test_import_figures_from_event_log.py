"""Log of an imported job: from its own run, with offsets of exactly the imported topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from millrace.advisor.existing.environment_of_imported_job import environment_document
from millrace.advisor.existing.imported_job_event_log import ImportLogFigures, read_log_figures
from millrace.advisor.existing.read_job_to_import import RunningJob
from millrace.advisor.existing.stream_candidates_of_program import ImportedStreamSettings
from millrace.advisor.forecasts.query_twin import twin_of_query
from millrace.advisor.logs import event_logs
from millrace.advisor.logs.application_history_model import BatchSource, History, Query
from millrace.advisor.logs.event_log_to_history import read_history
from millrace.advisor.logs.event_logs import find_event_logs
from millrace.config import ConfigurationError
from tests.unit.advisor.event_log_writer import write
from tests.unit.advisor.event_logs_with_known_costs import Truth, history, run

TRUTH = Truth(swing=0.4, seconds=300.0)


def reading(topics: Mapping[str, str], truth: Truth = TRUTH) -> History:
    """A history of queries by their ids, each on one topic."""
    [made] = history([truth]).queries

    def on(query: str, topic: str) -> Query:
        batches = []
        for batch in made.batches:
            [source] = batch.sources
            moved = {
                key: {
                    f"{topic}:{each.rpartition(':')[2]}": at
                    for each, at in (getattr(source, key) or {}).items()
                }
                for key in ("start", "end", "latest")
            }
            described = source.description.replace("[t]", f"[{topic}]")
            batches.append(replace(batch, sources=(replace(source, description=described, **moved),)))
        return replace(made, id=query, run_id=f"run of {query}", batches=tuple(batches))

    return replace(history([truth]), queries=tuple(on(*each) for each in topics.items()))


def job(name: str, kind: str = "kafka", run: str = "", *, pattern: bool = False) -> RunningJob:
    said = ImportedStreamSettings(kind, name, {}, None, pattern=pattern)  # type: ignore[arg-type]
    return RunningJob("glue:orders", "123456789012", "us-east-1", {"engine": "glue"}, said, run=run)


def taken(folder: Path, topics: Mapping[str, str], found: RunningJob) -> ImportLogFigures:
    return read_log_figures(str(write(reading(topics), folder / "local-1")), found)


def test_offsets_are_those_of_exactly_the_topic(tmp_path: Path) -> None:
    found = taken(tmp_path, {"1": "orders_v2", "2": "orders", "3": "all.orders"}, job("orders"))
    last = reading({"2": "orders"}).queries[0].batches[-1]
    assert found.offsets == {int(key.rpartition(":")[2]): at for key, at in last.sources[0].end.items()}
    assert found.notes[0].startswith(f"offsets of batch {last.id}, which ended at 2023-11-14T")


def edited(place: Path, edit: Callable[[int, dict[str, Any]], None]) -> Path:
    """Change each progress in a log; ``edit`` takes the batch's number and the progress."""
    lines = []
    for line in place.read_text().splitlines():
        event = json.loads(line)
        if "progress" in event:
            edit(event["progress"]["batchId"], event["progress"])
        lines.append(json.dumps(event, separators=(",", ":")))
    place.write_text("\n".join(lines) + "\n")
    return place


NO_CALENDAR = ["58692-11-03T14:13:20.000Z", "+58692-11-03T14:13:20.000Z", "-0001-01-01T00:00:00.000Z", 7]


@pytest.mark.parametrize("watermark", NO_CALENDAR)
def test_the_time_of_a_watermark_costs_no_batch(watermark: object, tmp_path: Path) -> None:
    """Records set it: one with milliseconds in the place of seconds moves it to the year 58692."""
    whole = taken(tmp_path, {"1": "orders"}, job("orders"))
    place = edited(
        tmp_path / "local-1",
        lambda batch, seen: batch > 2 and seen.update(eventTime={"watermark": watermark}),
    )
    assert read_log_figures(str(place), job("orders")).offsets == whole.offsets
    [query] = read_history(find_event_logs(str(place))[0]).queries
    assert [each.has_watermark for each in query.batches] == [each.id > 2 for each in query.batches]


def _arrivals(values: list[object]) -> dict[str, object]:
    fields = [{"name": "oldest"}, {"name": "youngest"}]
    return {"millrace_arrivals": {"values": values, "schema": {"fields": fields}}}


@pytest.mark.parametrize(
    "values", [[-1, 1700000000000], [1700000000000000, 1700000000000001], ["NaN", "NaN"], [None, None]]
)
def test_impossible_times_of_producers_cost_no_batch(values: list[object], tmp_path: Path) -> None:
    place = write(reading({"1": "orders"}), tmp_path / "local-1")
    whole = read_history(find_event_logs(str(place))[0]).queries[0].batches
    edited(place, lambda _, seen: seen.update(observedMetrics=_arrivals(values)))
    found = read_history(find_event_logs(str(place))[0]).queries[0].batches
    assert [replace(each, jobs=()) for each in found] == [replace(each, jobs=()) for each in whole]


def test_positions_that_are_times_of_another_connector_cost_no_batch(tmp_path: Path) -> None:
    place = write(reading({"1": "orders"}), tmp_path / "local-1")

    def positions(_: int, seen: dict[str, Any]) -> None:
        seen["sources"][0] |= {"startOffset": {"t": {"0": 0}}, "endOffset": {"t": {"0": 1700000000 * 10**9}}}

    whole = read_history(find_event_logs(str(place))[0])
    found = read_history(find_event_logs(str(edited(place, positions)))[0])
    assert (len(found.queries[0].batches), found.unread) == (len(whole.queries[0].batches), 0)
    assert [each.records for each in found.queries[0].batches] == [
        each.rows for each in whole.queries[0].batches
    ]


@pytest.mark.parametrize("damage", ["short", "long"])
@pytest.mark.parametrize("back", [1, 2, 3])
def test_offsets_are_not_those_of_the_last_batch_where_later_lines_are_unread(
    back: int, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = write(reading({"1": "orders"}), tmp_path / "local-1")
    lines = place.read_text().splitlines()
    progress = [n for n, line in enumerate(lines) if "QueryProgressEvent" in line]
    exact = read_log_figures(str(place), job("orders"))
    monkeypatch.setattr(event_logs, "LONGEST_LINE", 20_000)
    lines[progress[-back]] = '{"Event":"' + ("y" * 30_000 if damage == "long" else "")
    place.write_text("\n".join(lines) + "\n")
    found = read_log_figures(str(place), job("orders"))
    if back > 1:  # the last batch is read
        assert found.offsets == exact.offsets
        return
    last = reading({"1": "orders"}).queries[0].batches[-2].id
    assert (found.offsets, found.twin is None) == (None, False)
    assert found.notes == (
        f"no offsets are taken from the log: 1 of its lines after batch {last} could not be read, and may be later batches",
    )


def test_offsets_of_a_log_that_ends_in_the_middle_say_so(tmp_path: Path) -> None:
    place = write(reading({"1": "orders"}), tmp_path / "local-1")
    assert "middle" not in read_log_figures(str(place), job("orders")).notes[0]
    place.write_text(place.read_text()[:-100])
    found = read_log_figures(str(place), job("orders"))
    assert found.notes[0].endswith("; the log ends in the middle, so a later batch may be missing")


@pytest.mark.parametrize("topic", ["orders_v2", "test", "est5", "t"])
def test_a_log_of_another_topic_is_refused_even_if_it_has_one_query(topic: str, tmp_path: Path) -> None:
    with pytest.raises(
        ConfigurationError, match=r"a batch that reads test5; its batches read KafkaV2\[Subscribe"
    ):
        taken(tmp_path, {"1": topic}, job("test5"))


def test_offsets_that_belong_to_several_are_not_taken(tmp_path: Path) -> None:
    two = taken(tmp_path, {"1": "orders", "2": "orders"}, job("orders"))
    assert (two.offsets, two.twin is None) == (None, False)
    assert two.notes == (
        "no offsets are taken from the log: several of its queries read orders, each from offsets of its own",
    )
    pattern = taken(tmp_path, {"1": "shop.orders"}, job(r"shop\..*", pattern=True))
    assert (pattern.offsets, pattern.notes[0].endswith("a pattern of topics has offsets by topic")) == (
        None,
        True,
    )


def test_a_stream_of_kinesis_gives_its_speed(tmp_path: Path) -> None:
    [query] = history([replace(TRUTH, offsets=False)]).queries
    place = write(replace(history([TRUTH]), queries=(query,)), tmp_path / "local-1")
    found = read_log_figures(str(place), job("arn:aws:kinesis:us-east-1:123456789012:stream/t", "kinesis"))
    assert (found.offsets, found.twin is None) == (None, False)
    with pytest.raises(ConfigurationError, match="a batch that reads te; its batches read"):
        read_log_figures(str(place), job("te", "kinesis"))


def test_the_log_is_the_runs_own_and_not_the_newest(tmp_path: Path) -> None:
    for name in ("jr_1", "jr_1_attempt_1", "jr_2"):
        write(reading({name: "orders"}), tmp_path / name)
    assert find_event_logs(str(tmp_path))[0].name == "jr_2"
    assert read_log_figures(str(tmp_path), job("orders", run="jr_1")).offsets
    with pytest.raises(
        ConfigurationError,
        match="the event log of run jr_3, the latest of glue:orders; no log in this place belongs to that run",
    ):
        read_log_figures(str(tmp_path), job("orders", run="jr_3"))
    with pytest.raises(
        ConfigurationError,
        match="a place with one event log: glue:orders has no run, so it is unknown which of the 3 logs",
    ):
        read_log_figures(str(tmp_path), job("orders"))


def shared(truth: Truth, names: Mapping[str, int], *, kind: str = "kafka") -> History:
    """A history of one query on several topics, or streams, each with so many of its partitions."""
    [query] = history([truth]).queries
    topics = [topic for topic, parts in names.items() for _ in range(parts)]
    numbers = [number for parts in names.values() for number in range(parts)]

    def sources(source: BatchSource) -> tuple[BatchSource, ...]:
        if kind == "kinesis":
            return tuple(
                replace(source, description=f"KinesisSource[{each}]", rows=source.rows * parts // len(topics))
                for each, parts in names.items()
            )
        moved = {
            key: {
                f"{topics[n]}:{numbers[n]}": at for n, at in enumerate((getattr(source, key) or {}).values())
            }
            for key in ("start", "end", "latest")
        }
        return (replace(source, description=f"KafkaV2[Subscribe[{', '.join(names)}]]", **moved),)

    batches = tuple(replace(each, sources=sources(each.sources[0])) for each in query.batches)
    return replace(history([truth]), queries=(replace(query, batches=batches),))


SHARED = {"orders": 1, "payments": 5, "refunds": 2}


@pytest.mark.parametrize("topic", SHARED)
def test_a_topic_of_several_has_its_own_rate_limit_and_partitions(topic: str, tmp_path: Path) -> None:
    truth = replace(TRUTH, limit=9000, waiting=200_000)
    found = read_log_figures(str(write(shared(truth, SHARED), tmp_path / "local-1")), job(topic))
    whole = read_log_figures(str(write(reading({"1": "all"}, truth), tmp_path / "local-2")), job("all")).twin
    assert found.twin is not None
    assert whole is not None
    share = SHARED[topic] / truth.partitions
    assert found.twin.records.sum() == whole.records.sum()  # the costs are those of the query
    assert found.twin.fit_batch_durations(2) == whole.fit_batch_durations(2)
    assert found.twin.limit == pytest.approx(9000 * share, rel=0.01)
    assert (found.twin.partitions, set(found.offsets or {})) == (SHARED[topic], set(range(SHARED[topic])))
    if topic != "orders":  # what waits is in the first partition
        assert found.twin.records_per_second == pytest.approx(truth.limit / truth.trigger * share, rel=0.3)


def test_the_rates_of_several_topics_are_those_of_their_own_offsets(tmp_path: Path) -> None:
    place = str(write(shared(TRUTH, SHARED), tmp_path / "local-1"))
    rates = {}
    for topic in SHARED:
        twin = read_log_figures(place, job(topic)).twin
        assert twin is not None
        rates[topic] = twin.records_per_second
    assert sum(rates.values()) == pytest.approx(TRUTH.rate, rel=0.08)
    assert rates["payments"] / sum(rates.values()) == pytest.approx(5 / 8, rel=0.05)


def test_a_topic_without_records_in_the_log_takes_no_figures_of_the_others(tmp_path: Path) -> None:
    found = read_log_figures(
        str(write(shared(replace(TRUTH, hot=1.0), SHARED), tmp_path / "local-1")), job("refunds")
    )
    assert found.twin is None
    assert found.offsets is not None


def test_a_stream_of_several_has_its_own_rate(tmp_path: Path) -> None:
    truth = replace(TRUTH, offsets=False)
    place = str(write(shared(truth, {"orders": 2, "payments": 6}, kind="kinesis"), tmp_path / "local-1"))
    twin = read_log_figures(place, job("payments", "kinesis")).twin
    assert twin is not None
    assert twin.records_per_second == pytest.approx(truth.rate * 6 / 8, rel=0.08)


def test_offsets_of_a_part_of_the_partitions_are_not_taken(tmp_path: Path) -> None:
    found = job("orders")
    said = replace(found.program, partitions=(0, 1))
    taken_ones = taken(tmp_path, {"1": "orders"}, replace(found, program=said))
    assert (taken_ones.offsets, taken_ones.twin is None) == (None, False)
    assert taken_ones.notes == ("no offsets are taken from the log: it reads the partitions 0, 1 of orders",)


@pytest.mark.parametrize("seed", range(12))
def test_the_log_of_a_light_load_gives_no_speed_by_chance(seed: int) -> None:
    """Its tasks take a second whatever they read, so a few percent of noise hide what a record costs."""
    truth = Truth(
        cores=4, partitions=4, wave=1.0, per_record=2e-4, rate=200, sigma=0.2, seconds=600, seed=seed
    )
    rate = _rate_of_log(truth)
    # A tenth above the truth is left to chance; all seconds of the tasks for their records is the plain bound below.
    records = sum(each.records for each in run(truth)[0].batches)
    seconds = sum(float(stage.tasks.run.sum()) for each in run(truth)[0].batches for stage in each.stages)
    assert 0.8 * records / seconds < rate["records_per_second_per_core"] < 1.1 / truth.per_record
    assert rate["basis"] == "assumed"


def test_the_log_of_records_that_cost_nothing_gives_the_speed_of_whole_tasks() -> None:
    rate = _rate_of_log(Truth(wave=1.0, per_record=0.0, sigma=0.0))
    assert (rate["records_per_second_per_core"], rate["basis"]) == (pytest.approx(1250, rel=0.1), "assumed")


def _rate_of_log(truth: Truth) -> dict[str, Any]:
    made = history([truth])
    document = environment_document(
        job("orders"), env="moved", project="p", schema=None, start="", rate=None, record_size="1KiB",
        twin=twin_of_query(made, made.queries[0]), offsets={0: 1},
    )  # fmt: skip
    [section] = document["jobs"].values()
    return dict(section["rate"])
