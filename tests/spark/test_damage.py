"""Files of a checkpoint that are cut short: what Spark wrote passes, each part of it is named, and there is a way out.

``python -m tests.faults.truncated`` starts whole jobs on them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl import damage, hadoop
from etl.errors import DamageError, StartError
from etl.supervise import Retries, Supervisor
from etl.tables import Table
from tests.spark.batches import frame, good, kafka_rows
from tests.spark.test_state import Pipeline

pytestmark = pytest.mark.faults

Names = Callable[[str], Table]


@pytest.fixture
def begun(spark: SparkSession, table: Names, tmp_path: Path) -> Pipeline:
    """Two batches of a derive query."""
    pipeline = Pipeline(spark, table, tmp_path, {"key": ["minute", "parity"]}, "by_minute")
    for number in range(2):
        pipeline.land(frame(spark, kafka_rows(0, 20 * number, [good(n) for n in range(20)])), number)
        pipeline.derive()
    return pipeline


def files(checkpoint: Path) -> list[Path]:
    """Those that the next start reads: the last two entries of the offset log, the last of the commit log, the id."""
    logs = [
        sorted((p for p in (checkpoint / log).iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))
        for log in ("offsets", "commits")
    ]
    return [checkpoint / "metadata", *logs[0][-2:], logs[1][-1]]


def test_every_part_of_a_file_is_told_from_the_whole(begun: Pipeline, spark: SparkSession) -> None:
    checkpoint = begun.folder / "derive-flights"
    damage.check(spark, str(checkpoint))
    for file in files(checkpoint):
        whole = file.read_bytes()
        file.with_name(f".{file.name}.crc").unlink()  # S3 keeps no sum beside a file
        # A commit's first line is all that there need be of it: what is behind it is a watermark, told again by the next.
        enough = (len("v1"), len("v1\n")) if file.parent.name == "commits" else ()
        lengths = {*range(5), *range(5, len(whole), 29), len(whole) - 1}
        for length in sorted(lengths.difference(enough)):
            file.write_bytes(whole[:length])
            with pytest.raises(DamageError, match=f"/{file.parent.name}/{file.name} is not what Spark wrote"):
                damage.check(spark, str(checkpoint))
        file.write_bytes(whole)
    damage.check(spark, str(checkpoint))


def test_a_sum_that_does_not_fit_is_damage_and_a_file_that_is_gone_is_none(
    begun: Pipeline, spark: SparkSession
) -> None:
    checkpoint = begun.folder / "derive-flights"
    identity, _, newest, commit = files(checkpoint)
    newest.write_bytes(newest.read_bytes().replace(b"1", b"2"))
    with pytest.raises(DamageError, match=f"{newest} is damaged: .*Checksum"):
        damage.check(spark, str(checkpoint))
    newest.write_bytes(b"\xff\xfe")
    newest.with_name(f".{newest.name}.crc").unlink()
    with pytest.raises(DamageError, match=f"{newest} is damaged: .*not UTF-8"):
        damage.check(spark, str(checkpoint))
    for file in (newest, commit, identity):
        file.unlink()
    damage.check(spark, str(checkpoint))
    damage.check(spark, f"{checkpoint}-that-is-not-there")


def test_an_entry_with_fewer_sources_than_the_one_before_is_a_part(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark would read it, and leave out a source's position."""
    (tmp_path / "offsets").mkdir()
    for batch, sources in enumerate(('{"a":1}\n{"b":1}', '{"a":2}')):
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{sources}")
    with pytest.raises(
        DamageError, match="offsets/1 is not what Spark wrote, or a part of it only: it ends after"
    ):
        damage.check(spark, str(tmp_path))


@pytest.mark.parametrize(
    ("entries", "damaged"),
    [
        (["shardId-000:4968"], False),
        (["shardId-000:4968", "shardId-000:49"], False),
        (["-", "shardId-000:4968"], False),
        (['-\n{"t":1}', 'shardId-000:4968\n{"t":2}'], False),
        (['{"a":1}', "shardId-000:4968"], True),
        (['{"a":1}', "-", "shardId-000:4968"], False),  # only the last two are looked at
        (['{"a":1'], True),
        (['["a"'], True),
        (['shardId-000:4968\n{"t":1}', 'shardId-000:4968\n{"t"'], True),
    ],
)
def test_positions_in_a_form_of_a_connectors_own_are_no_damage(
    spark: SparkSession, tmp_path: Path, entries: list[str], damaged: bool
) -> None:
    """Glue's connector is closed; the checks that rest on its positions are left out, and the job goes on."""
    (tmp_path / "offsets").mkdir()
    for batch, sources in enumerate(entries):
        (tmp_path / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{sources}")
    if damaged:
        with pytest.raises(DamageError, match=f"offsets/{len(entries) - 1} is not what Spark wrote"):
            damage.check(spark, str(tmp_path))
    else:
        damage.check(spark, str(tmp_path))
    (tmp_path / "offsets" / str(len(entries) - 1)).write_text(f'v1\n{{"batch\n{entries[-1]}')
    with pytest.raises(DamageError, match="is not what Spark wrote"):
        damage.check(spark, str(tmp_path))


@pytest.mark.parametrize(
    ("pattern", "way"),
    [
        ("derive-flights/metadata", "`millrace checkpoint reset flights derive-flights --env dev`"),
        ("derive-flights/offsets", "`millrace checkpoint reset flights derive-flights --env dev`"),
        ("derive-flights/commits", "deleting it is safe: batch "),
        ("_millrace/derive-flights.manifest.json", "delete it: the checkpoint is then continued as it is"),
    ],
)
def test_a_start_on_a_damaged_checkpoint_is_refused_once_with_the_way_out(
    begun: Pipeline, pattern: str, way: str
) -> None:
    file = begun.folder / pattern
    if file.is_dir():
        file = max((p for p in file.iterdir() if p.name.isdecimal()), key=lambda p: int(p.name))
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    with pytest.raises(StartError) as refused:
        begun.query()
    message = str(refused.value)
    assert str(file) in message
    assert way in message
    assert "\n" not in message
    if "deleting it" in way:
        file.unlink()
    else:
        file.write_bytes(whole)
    begun.derive()
    assert begun.rows() == begun.at_once()


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_state_that_is_cut_short_is_told_with_its_file(
    begun: Pipeline, spark: SparkSession, share: float
) -> None:
    """Spark tells of an end of file, and of which one not."""
    checkpoint = begun.folder / "derive-flights"
    damage.check_state(spark, str(checkpoint))
    deltas = list((checkpoint / "state" / "0" / "0").glob("*.delta"))
    file = max(deltas, key=lambda path: int(path.stem))
    whole = file.read_bytes()
    file.write_bytes(whole[: int(len(whole) * share)])
    file.with_name(f".{file.name}.crc").unlink()
    with pytest.raises(DamageError, match=f"{file} of the query's state is cut short"):
        damage.check_state(spark, str(checkpoint))
    begun.land(frame(spark, kafka_rows(0, 40, [good(n) for n in range(20)])), 2)
    # Looked for before the last attempt: most failures are over by then.
    retries = Retries(2, first_seconds=0.1)
    assert Supervisor(spark, begun.events.reporter, retries=retries).run([begun.query()]) == 1
    retried, failed = (event for event in begun.events.all() if event["event"] in ("failed", "retrying"))
    assert (retried["event"], "EOFException" in retried["error"]) == ("retrying", True)
    assert (failed["event"], failed["error_class"]) == ("failed", "DamageError")
    first = failed["error"].splitlines()[0]
    assert first.startswith(f"query derive-flights: the file {file} of the query's state is cut short")
    assert "`millrace checkpoint reset flights derive-flights --env dev`" in first
    file.write_bytes(whole)
    begun.derive()
    assert begun.rows() == begun.at_once()


def test_a_state_is_looked_at_for_what_an_error_says_and_not_for_its_stack() -> None:
    stack = (
        "\n\tat org.apache.spark.sql.execution.streaming.state.StateStoreRDD.compute(StateStoreRDD.scala:131)"
    )
    told = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 in stage 9.0 failed"
    for said, looked_at in (
        ("java.net.SocketTimeoutException: Read timed out", False),
        ("java.io.EOFException", True),
        ("Error reading delta file s3a://b/checkpoints/q/state/0/3/7.delta", True),
        (
            "org.json4s.ParserUtil$ParseException: unexpected eof\n"
            "\tat org.apache.spark.sql.execution.streaming.state.StateStore$.getStateStoreProvider(StateStore.scala:559)",
            True,
        ),
    ):
        assert damage.is_of_state(f"{told}: {said}{stack}\nDriver stacktrace:{stack}\n") is looked_at


def test_a_whole_state_is_listed_once_and_of_each_file_the_end_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is a call of S3's, of thousands; what lies before the last snapshot is not looked at."""
    whole, needed = b"LZ4Block" + bytes(30) + b"LZ4Block" + bytes(13), []
    for folder in ("0", "1", "1/left-keyToNumValues"):
        store = tmp_path / "state" / "0" / folder
        store.mkdir(parents=True)
        for name in ("1.delta", "2.snapshot", "2.delta", "3.delta"):
            (store / name).write_bytes(whole)
        needed += [str(store / name) for name in ("2.snapshot", "2.delta", "3.delta")]
    listed, read = [], []
    entries, read_part = hadoop.entries, hadoop.read_part
    monkeypatch.setattr(hadoop, "entries", lambda s, url: listed.append(url) or entries(s, url))
    monkeypatch.setattr(
        hadoop, "read_part", lambda s, url, *part: read.append(url) or read_part(s, url, *part)
    )
    damage.check_state(spark, str(tmp_path))
    assert sorted(read) == sorted(needed)
    assert sorted(listed) == sorted({str(Path(file).parent) for file in needed})


@pytest.mark.parametrize(
    ("name", "data", "whole"),
    [
        ("1.delta", b"LZ4Block" + bytes(30) + b"LZ4Block" + bytes(13), True),
        ("1.delta", b"LZ4Block" + bytes(30), False),
        ("1.delta", b"LZ4", False),
        ("1.changelog", b"\x28\xb5\x2f\xfd of another compression", True),
        ("1.changelog", b"", False),
        ("1.zip", b"PK\x03\x04" + bytes(9) + b"PK\x05\x06" + bytes(18), True),
        ("1.zip", b"PK\x03\x04" + bytes(90), False),
        ("1.zip", b"P", False),
        ("1.sst", b"", True),
    ],
)
def test_the_end_of_a_states_file_is_known_by_how_it_was_written(
    spark: SparkSession, tmp_path: Path, name: str, data: bytes, whole: bool
) -> None:
    store = tmp_path / "state" / "0" / "7"
    store.mkdir(parents=True)
    (store / name).write_bytes(data)
    if whole:
        damage.check_state(spark, str(tmp_path))
        return
    with pytest.raises(
        DamageError, match=f"state/0/7/{name} of the query's state is cut short: {len(data)} bytes"
    ):
        damage.check_state(spark, str(tmp_path))


def test_where_a_derive_query_began_is_written_anew(begun: Pipeline) -> None:
    """Iceberg reads it at every start, and needs it at none but the first."""
    file = begun.folder / "derive-flights" / "sources" / "0" / "offsets" / "0"
    for text in ("", '{"version":1,"snap'):
        file.write_text(text)
        file.with_name(".0.crc").unlink(missing_ok=True)
        begun.derive()
        assert json.loads(file.read_text())["scan_all_files"] is False
    assert begun.rows() == begun.at_once()
