"""A backfill of a derived table adds missing rows beside its stream and doubles none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.commits.commit_batch_once import MOST_ATTEMPTS
from millrace.etl.launch.entry_script_arguments import BackfillRequest, parse_arguments
from millrace.etl.queries.transform import EnrichThenTransform
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.errors import ConflictError
from millrace.etl.record.tables import Table
from millrace.etl.repair.backfill_derived import STEP, DerivedTableBackfiller
from millrace.etl.sinks.iceberg import IcebergSink
from millrace.etl.sources.base import backfill_time_steps
from tests.spark.queries.test_derive import Pipeline
from tests.spark.source_batches import EPOCH, Events, frame, good, kafka_rows
from tests.spark.task_gate import TaskGate

Names = Callable[[str], Table]


def doubled(rows: DataFrame) -> DataFrame:
    """As the transform of the pipeline, mended: it leaves nothing out."""
    return rows.select(*CARRIED, "flight", (F.col("flight") * 2).alias("twice"))


@pytest.fixture
def pipe(spark: SparkSession, table: Names, tmp_path: Path) -> Pipeline:
    """Twelve flights, of which the transform at hand took eight; they arrive a second apart."""
    pipe = Pipeline(spark, table, tmp_path)
    pipe.land(frame(spark, kafka_rows(0, 0, [*(good(n) for n in range(12)), b"broken"])), 0)
    pipe.derive()
    assert pipe.written().count() == 8
    return pipe


def backfill(
    pipe: Pipeline,
    since: datetime,
    until: datetime,
    *,
    replaces: bool = False,
    transform: Callable[[DataFrame], DataFrame] = doubled,
) -> dict[str, Any]:
    events = Events()
    compose = EnrichThenTransform((), transform, "doubled")
    backfiller = DerivedTableBackfiller(
        "derive-flights", pipe.landing, compose, IcebergSink(pipe.sink), events.reporter
    )
    assert backfiller(pipe.spark, BackfillRequest("derive-flights", since, until, replaces)) == 0
    return events.last()


def flights(pipe: Pipeline) -> list[int]:
    return sorted(row["flight"] for row in pipe.written().collect())


ALL = (EPOCH - timedelta(hours=1), EPOCH + timedelta(hours=2))


def test_only_what_is_missing_is_written_and_a_second_time_nothing(pipe: Pipeline) -> None:
    said = backfill(pipe, *ALL)
    assert (said["event"], said["read"], said["written"], said["duplicates"]) == ("backfilled", 12, 4, 8)
    assert flights(pipe) == list(range(12))
    assert backfill(pipe, *ALL)["written"] == 0
    assert flights(pipe) == list(range(12))
    # And the stream continues, on its own checkpoint.
    pipe.land(frame(pipe.spark, kafka_rows(0, 13, [good(13)])), 1)
    pipe.derive()
    assert flights(pipe) == [*range(12), 13]


@pytest.mark.slow
def test_what_lies_outside_of_the_range_is_left_alone(pipe: Pipeline) -> None:
    arrived = sorted(row["_arrived_at"] for row in pipe.spark.table(str(pipe.landing)).collect())
    since, until = (moment.astimezone(UTC) for moment in (arrived[0], arrived[4]))
    said = backfill(pipe, since, until)
    assert said["read"] == 4  # the end is not part of it
    assert flights(pipe) == [0, 1, 2, 3, *(n for n in range(4, 12) if n % 3)]


@pytest.mark.slow
def test_rows_are_replaced_where_that_is_asked_for(pipe: Pipeline) -> None:
    pipe.spark.sql(f"UPDATE {pipe.sink} SET twice = -1 WHERE flight < 6")  # noqa: S608 - our own names
    said = backfill(pipe, *ALL, replaces=True)
    assert (said["read"], said["written"], said["replaced"]) == (12, 12, 8)
    assert {row["flight"]: row["twice"] for row in pipe.written().collect()} == {n: 2 * n for n in range(12)}
    assert backfill(pipe, *ALL, replaces=True)["replaced"] == 12
    assert flights(pipe) == list(range(12))


@pytest.mark.slow
def test_rows_are_replaced_in_files_that_hold_other_hours_too(pipe: Pipeline) -> None:
    # Twelve flights in the hour, and twelve in the next one: of one file as a batch has them, and compacted.
    late = [
        (*row[:6], row[6] + timedelta(hours=1), row[7])
        for row in kafka_rows(0, 20, [good(n) for n in range(20, 32)])
    ]
    early = kafka_rows(0, 13, [good(n) for n in range(13, 19)])
    pipe.land(frame(pipe.spark, [*early, *late]).coalesce(1), 1)
    pipe.derive()
    since, until = EPOCH, EPOCH + timedelta(hours=1)
    before = {row["flight"] for row in pipe.written().where(F.col("_arrived_at") >= F.lit(until)).collect()}
    for _ in range(2):
        pipe.spark.sql(f"UPDATE {pipe.sink} SET twice = -1")  # noqa: S608 - our own names
        backfill(pipe, since, until, replaces=True)
        rows = {row["flight"]: row["twice"] for row in pipe.written().collect()}
        assert len(rows) == pipe.written().count()
        assert rows == {n: 2 * n for n in (*range(12), *range(13, 19))} | dict.fromkeys(before, -1)
        pipe.spark.sql(
            f"CALL lake.system.rewrite_data_files(table => '{pipe.sink}', options => map('rewrite-all', 'true'))"
        )


def doubled_behind(gate: TaskGate) -> Callable[[DataFrame], DataFrame]:
    """As :func:`doubled`, and takes its time, as a call of a model or a large join does."""
    return lambda rows: doubled(gate.waiting(rows, "flight"))


@pytest.fixture
def behind(spark: SparkSession, table: Names, tmp_path: Path) -> Pipeline:
    """Twelve flights that the derive query has yet to read."""
    pipe = Pipeline(spark, table, tmp_path, transform=doubled)
    pipe.land(frame(spark, kafka_rows(0, 0, [good(n) for n in range(12)])).coalesce(1), 0)
    return pipe


@pytest.mark.slow
@pytest.mark.parametrize("replaces", [False, True])
def test_rows_that_the_stream_writes_meanwhile_are_written_once(
    behind: Pipeline, tmp_path: Path, replaces: bool
) -> None:
    gate = TaskGate(tmp_path)
    event = gate.while_it_waits(
        lambda: backfill(behind, *ALL, replaces=replaces, transform=doubled_behind(gate)), behind.derive
    )
    assert (event["read"], event["written"]) == (12, 12 if replaces else 0)
    assert event["replaced"] == (12 if replaces else 0)
    assert flights(behind) == list(range(12))


@pytest.mark.slow
def test_rows_that_land_and_are_derived_during_a_step_are_not_replaced_by_nothing(
    behind: Pipeline, tmp_path: Path
) -> None:
    gate = TaskGate(tmp_path)

    def land_and_derive() -> None:
        behind.land(frame(behind.spark, kafka_rows(0, 12, [good(n) for n in range(12, 18)])).coalesce(1), 1)
        behind.derive()

    event = gate.while_it_waits(
        lambda: backfill(behind, *ALL, replaces=True, transform=doubled_behind(gate)), land_and_derive
    )
    assert (event["read"], event["replaced"]) == (18, 18)
    assert flights(behind) == list(range(18))


@pytest.mark.slow
def test_rows_that_land_and_are_derived_before_their_step_are_not_replaced_by_nothing(
    behind: Pipeline,
) -> None:
    def land_an_hour_later(first: int, batch: int) -> None:
        rows = kafka_rows(0, first, [good(n) for n in range(first, first + 6)])
        later = [(*row[:6], row[6] + timedelta(hours=1), row[7]) for row in rows]
        behind.land(frame(behind.spark, later).coalesce(1), batch)
        behind.derive()

    land_an_hour_later(12, 1)
    batches = iter([2])

    def beside(rows: DataFrame) -> DataFrame:
        for batch in batches:
            land_an_hour_later(18, batch)
        return doubled(rows)

    backfill(behind, *ALL, replaces=True, transform=beside)
    behind.derive()
    assert flights(behind) == list(range(24))


@pytest.mark.slow
@pytest.mark.parametrize("replaces", [False, True])
def test_rows_that_a_backfill_writes_during_a_batch_are_written_once(
    spark: SparkSession, table: Names, tmp_path: Path, replaces: bool
) -> None:
    gate = TaskGate(tmp_path)
    pipe = Pipeline(spark, table, tmp_path / "checkpoint", transform=doubled_behind(gate))
    pipe.land(frame(spark, kafka_rows(0, 0, [good(n) for n in range(12)])).coalesce(1), 0)
    gate.while_it_waits(pipe.derive, lambda: backfill(pipe, *ALL, replaces=replaces))
    assert pipe.accounts() == [(12, 12, 0, 0)]
    assert flights(pipe) == list(range(12))


@pytest.mark.slow
@pytest.mark.parametrize("replaces", [False, True])
def test_a_step_that_others_always_overtake_fails_and_writes_nothing(
    behind: Pipeline, replaces: bool
) -> None:
    attempts = count(100)

    def overtaken(rows: DataFrame) -> DataFrame:
        # The snapshot of the attempt is known, and its look-up is still to come.
        other = rows.where("flight = 0").withColumn("flight", F.lit(next(attempts)))
        behind.compose(other.withColumn("_id", F.lit("other"))).writeTo(str(behind.sink)).append()
        return doubled(rows)

    with pytest.raises(ConflictError, match="added rows of the same time"):
        backfill(behind, *ALL, replaces=replaces, transform=overtaken)
    assert flights(behind) == [*range(100, 100 + MOST_ATTEMPTS)]


@pytest.mark.slow
def test_rows_of_other_hours_do_not_disturb_a_step(behind: Pipeline) -> None:
    later = [
        (*row[:6], row[6] + timedelta(hours=5), row[7])
        for row in kafka_rows(0, 20, [good(n) for n in range(20, 24)])
    ]
    behind.derive()
    attempts = []

    def beside(rows: DataFrame) -> DataFrame:
        attempts.append(1)
        behind.land(frame(behind.spark, later), len(attempts))
        behind.derive()
        return doubled(rows)

    backfill(behind, *ALL, replaces=True, transform=beside)
    assert (len(attempts), flights(behind)) == (1, [*range(12), *range(20, 24)])


@pytest.mark.slow
def test_an_hour_in_which_nothing_landed_is_left_as_it_is(pipe: Pipeline) -> None:
    before = EPOCH - timedelta(days=3)
    said = backfill(pipe, before, before + timedelta(hours=2), replaces=True)
    assert (said["read"], said["replaced"]) == (0, 0)
    assert len(flights(pipe)) == 8


def test_steps_make_up_the_range() -> None:
    since = datetime(2026, 11, 21, 8, 40, tzinfo=UTC)
    result = list(
        backfill_time_steps(
            BackfillRequest("q", since, since + timedelta(hours=2, minutes=30)), STEP, whole=True
        )
    )
    assert [(a.hour, a.minute, b.hour, b.minute) for a, b in result] == [
        (8, 40, 9, 0),
        (9, 0, 10, 0),
        (10, 0, 11, 0),
        (11, 0, 11, 10),
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ["--since", "2026-11-21T08:00:00Z"],
        ["--replace"],
        ["--backfill", "q"],
        ["--backfill", "q", "--since", "2026-11-21T08:00:00Z"],
        ["--backfill", "q", "--since", "2026-11-21T08:00:00Z", "--until", "2026-11-21T08:00:00Z"],
        ["--backfill", "q", "--since", "2026-11-21T08:00:00", "--until", "2026-11-21T09:00:00Z"],
        ["--backfill", "q", "--since", "yesterday", "--until", "2026-11-21T09:00:00Z"],
        [
            "--backfill",
            "q",
            "--replay",
            "q",
            "--since",
            "2026-11-21T08:00:00Z",
            "--until",
            "2026-11-21T09:00:00Z",
        ],
    ],
)
def test_what_is_no_range_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse_arguments(["--launch-document", "s3://b/d.json", *arguments])
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err


def test_a_range_is_read_whatever_its_zone() -> None:
    given = [
        "--backfill",
        "q",
        "--since",
        "2026-11-21T09:00:00+01:00",
        "--until",
        "2026-11-21T09:00:00Z",
        "--replace",
    ]
    request = parse_arguments(["--launch-document", "s3://b/d.json", *given]).backfill
    assert request == BackfillRequest(
        "q", datetime(2026, 11, 21, 8, tzinfo=UTC), datetime(2026, 11, 21, 9, tzinfo=UTC), replace=True
    )
    assert request is not None
    assert not replace(request, replace=False).replace
