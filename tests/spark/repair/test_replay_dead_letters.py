"""A replay lands each dead letter once, under an identity of its own, with its times and position."""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from millrace.etl.formats.decoding.decoder_per_topic import DELETE, TombstoneAsDeleteDecoder
from millrace.etl.formats.decoding.redact import RedactingDecoder
from millrace.etl.formats.json import JsonDecoder
from millrace.etl.formats.schema_files import parse_ddl_schema
from millrace.etl.launch.entry_script_arguments import ReplayRequest
from millrace.etl.launch.settings import JobSettings, parse_job_settings
from millrace.etl.record import hadoop_files
from millrace.etl.record.errors import StartError
from millrace.etl.record.job_run_context import JobRun
from millrace.etl.record.tables import Table
from millrace.etl.repair import one_off_commands
from millrace.etl.repair.replay_dead_letters import DeadLetterReplayer, read_corrected_payloads
from millrace.sandbox.programs import jars
from tests.faults import small_job_documents
from tests.spark.source_batches import DDL, Events, frame, good, kafka_rows, lander

Names = Callable[[str], Table]

TEXT_FOR_INT = b'{"carrier":"AA","flight":"7"}'
PAYLOADS = [good(0), TEXT_FOR_INT, b"{broken", None, b'{"carrier":"BB","flight":"8"}', good(5)]
WIDER = DDL.replace("flight INT", "flight STRING")


class Landed:
    """A landing table with four dead letters in six records, and its replays."""

    def __init__(self, spark: SparkSession, table: Names, *, payloads: Sequence[bytes | None] = PAYLOADS):
        self.spark, self.table, self.events = spark, table("landing"), Events()
        self.write = lander(spark, self.table, Events())
        self.write(frame(spark, kafka_rows(0, 0, payloads)), 0)

    def replay(
        self, *ids: str, corrected: Path | None = None, source: str | tuple[str, ...] = "flights"
    ) -> int:
        decoder = JsonDecoder(parse_ddl_schema(self.spark, DDL, "test.ddl"))
        replayer = DeadLetterReplayer("land-flights", self.table, self.events.reporter, source, decoder)
        return replayer(self.spark, ReplayRequest("land-flights", ids, str(corrected) if corrected else None))

    def figures(self) -> tuple[int, ...]:
        return tuple(self.events.last()[k] for k in ("letters", "good", "bad", "already", "landed"))

    def rows(self) -> dict[str, Row]:
        rows = self.spark.table(str(self.table)).collect()
        result = {r["_id"]: r for r in rows}
        assert len(result) == len(rows), "an identity is there twice"
        return result

    def snapshots(self) -> int:
        return self.spark.table(f"{self.table}.snapshots").count()


def letter(n: int) -> str:
    return f"flights-topic/0/{n}"


def corrections(path: Path, **lines: bytes | str) -> Path:
    """``_1="text"`` as payload, ``_1=b"bytes"`` as Base64, of record 1 and so on."""
    with path.open("w") as file:
        for name, payload in lines.items():
            identity = letter(int(name[1:]))
            if isinstance(payload, str):
                file.write(json.dumps({"id": identity, "payload": payload}) + "\n")
            else:
                encoded = base64.b64encode(payload).decode()
                file.write(json.dumps({"id": identity, "payload_base64": encoded}) + "\n")
    return path


@pytest.mark.slow
def test_what_is_still_bad_with_the_same_bytes_lands_nothing(spark: SparkSession, table: Names) -> None:
    landed = Landed(spark, table)
    for _ in range(2):
        assert landed.replay() == 0
        assert landed.figures() == (4, 0, 4, 0, 0)
    assert landed.snapshots() == 1


def test_corrected_letters_land_with_the_envelope_of_the_original(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landed = Landed(spark, table)
    fixed = corrections(
        tmp_path / "fixed", _1='{"carrier":"É\u2028","flight":7}', _2=good(2), _3=good(3), _4="{still bad"
    )
    assert landed.replay(corrected=fixed) == 0
    event = landed.events.last()
    assert (event["event"], event["query"], event["unknown_ids"]) == ("replayed", "land-flights", [])
    assert landed.figures() == (4, 3, 1, 0, 4)
    rows = landed.rows()
    assert len(rows) == 10
    for n, flight in ((1, 7), (2, 2), (3, 3)):
        again, first = rows[letter(n) + "#replay"], rows[letter(n)]
        assert (again["flight"], again["_error"], again["_stage"], again["_bytes"]) == (
            flight,
            None,
            None,
            None,
        )
        kept = ("_source", "_shard", "_position", "_key", "_headers", "_arrived_at")
        assert [again[c] for c in kept] == [first[c] for c in kept]
        assert again["_landed_at"] > first["_landed_at"]
        assert again["_hash"] != first["_hash"]
        assert first["_error"] is not None
    assert rows[letter(1) + "#replay"]["carrier"] == "É\u2028"
    assert (bytes(rows[letter(4) + "#replay"]["_bytes"]), rows[letter(4) + "#replay"]["_stage"]) == (
        b"{still bad",
        "decode",
    )


@pytest.mark.slow
def test_a_letter_without_bytes_is_no_null_payload(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    """A null payload is the delete of its key; a letter whose bytes were withheld is none, until somebody corrects it."""
    landed = Landed(spark, table, payloads=[])
    redacting = RedactingDecoder(landed.write.decoder, ("carrier",))
    landed.write.decoder = redacting
    landed.write(frame(spark, kafka_rows(0, 0, [good(0), b'["AA", 3]', None, b'["BB", 4]'])), 0)
    decoder = TombstoneAsDeleteDecoder(redacting)
    replayer = DeadLetterReplayer("land-flights", landed.table, landed.events.reporter, "flights", decoder)
    assert replayer(spark, ReplayRequest("land-flights")) == 0
    assert landed.figures() == (3, 1, 2, 0, 1)
    deletes = [name for name, row in landed.rows().items() if row["_stage"] == DELETE]
    assert deletes == [letter(2) + "#replay"]
    fixed = corrections(tmp_path / "fixed", _1=good(1))
    assert replayer(spark, ReplayRequest("land-flights", (), str(fixed))) == 0
    assert landed.figures() == (1, 1, 0, 0, 1)


@pytest.mark.slow
def test_a_second_replay_doubles_nothing_and_goes_on_with_what_is_bad(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landed = Landed(spark, table)
    fixed = corrections(tmp_path / "fixed", _1=good(7), _2="worse")
    landed.replay(corrected=fixed)
    assert landed.figures() == (2, 1, 1, 0, 2)
    # The same file again: one is good, the other says nothing new.
    landed.replay(corrected=fixed)
    assert landed.figures() == (2, 0, 1, 1, 0)
    # All of them, with the bytes that each has now.
    landed.replay()
    assert landed.figures() == (4, 0, 3, 1, 0)
    # A replay that was bad is corrected: named by its own identity or by the record's.
    (tmp_path / "next").write_text(json.dumps({"id": letter(2) + "#replay", "payload": "worse still"}))
    assert landed.replay(corrected=tmp_path / "next") == 0
    assert landed.figures() == (1, 0, 1, 0, 1)
    landed.replay(corrected=corrections(tmp_path / "last", _2=good(2)))
    assert landed.figures() == (1, 1, 0, 0, 1)
    landed.replay(corrected=corrections(tmp_path / "late", _2=good(9)))
    assert landed.figures() == (1, 0, 0, 1, 0)
    rows = landed.rows()
    family = [rows[letter(2) + suffix] for suffix in ("", "#replay", "#replay2", "#replay3")]
    assert [r["_bytes"] and bytes(r["_bytes"]) for r in family] == [
        b"{broken",
        b"worse",
        b"worse still",
        None,
    ]
    assert [r["flight"] for r in family] == [None, None, None, 2]
    assert len(rows) == 6 + 1 + 3


@pytest.mark.slow
def test_a_schema_that_now_takes_them_makes_letters_good(spark: SparkSession, table: Names) -> None:
    """As a job does it whose schema was altered: the table has the wider column, the letters their bytes."""
    landed = Landed(spark, table)
    spark.sql(f"ALTER TABLE {landed.table} DROP COLUMN flight")
    spark.sql(f"ALTER TABLE {landed.table} ADD COLUMN flight STRING")
    decoder = JsonDecoder(parse_ddl_schema(spark, WIDER, "wider.ddl"))
    replayer = DeadLetterReplayer("land-flights", landed.table, landed.events.reporter, "flights", decoder)
    for figures in ((4, 2, 2, 0, 2), (4, 0, 2, 2, 0)):
        assert replayer(spark, ReplayRequest("land-flights")) == 0
        assert landed.figures() == figures
    rows = landed.rows()
    assert [rows[letter(n) + "#replay"]["flight"] for n in (1, 4)] == ["7", "8"]
    originals = {n: rows[letter(n)]["_hash"] for n in (1, 4)}
    assert {n: rows[letter(n) + "#replay"]["_hash"] for n in (1, 4)} == originals


@pytest.mark.slow
def test_only_the_letters_that_were_named_and_unknown_ones_are_listed(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landed = Landed(spark, table)
    assert landed.replay(letter(2), letter(3)) == 0
    assert landed.figures() == (2, 0, 2, 0, 0)
    # A good record is no dead letter.
    assert landed.replay(letter(2), letter(0), "nobody/0/1", letter(2) + "#replay") == 1
    assert landed.figures() == (1, 0, 1, 0, 0)
    assert landed.events.last()["unknown_ids"] == [letter(0), "nobody/0/1"]
    fixed = corrections(tmp_path / "fixed", _1=good(1), _2=good(2), _77=good(3))
    assert landed.replay(letter(1), letter(4), corrected=fixed) == 1
    assert landed.figures() == (1, 1, 0, 0, 1)
    assert landed.events.last()["unknown_ids"] == [letter(4)]
    assert landed.replay(corrected=fixed) == 1
    assert landed.figures() == (2, 1, 0, 1, 1)
    assert landed.events.last()["unknown_ids"] == [letter(77)]
    assert landed.replay("x", source="flights") == 1
    assert landed.figures() == (0, 0, 0, 0, 0)


def test_letters_of_another_stream_in_the_same_table_are_left_alone(
    spark: SparkSession, table: Names
) -> None:
    landed = Landed(spark, table)
    assert landed.replay(letter(1), source="other") == 1
    assert landed.events.last()["unknown_ids"] == [letter(1)]
    assert landed.replay(source="other") == 0
    assert landed.figures() == (0, 0, 0, 0, 0)


@pytest.mark.slow
def test_letters_of_two_clusters_with_one_identity_are_two(
    spark: SparkSession, table: Names, tmp_path: Path
) -> None:
    landed = Landed(spark, table, payloads=[b"{broken"])
    mirrored = [(row[0], "mirror", *row[2:]) for row in kafka_rows(0, 0, [TEXT_FOR_INT])]
    landed.write(frame(spark, mirrored), 1)
    both = ("flights", "mirror")
    assert landed.replay(letter(0), source=both) == 0
    assert landed.figures() == (2, 0, 2, 0, 0)
    fixed = corrections(tmp_path / "fixed", _0=good(1))
    with pytest.raises(StartError, match=r"0/0 is a dead letter of several streams \(flights, mirror\)"):
        landed.replay(corrected=fixed, source=both)
    assert landed.replay(corrected=fixed, source="mirror") == 0
    assert landed.figures() == (1, 1, 0, 0, 1)
    # That of the other one is not done with it.
    assert landed.replay(source=both) == 0
    assert landed.figures() == (2, 0, 1, 1, 0)


def test_an_empty_table_and_one_without_letters(spark: SparkSession, table: Names) -> None:
    clean = Landed(spark, table, payloads=[good(1)])
    assert clean.replay() == 0
    assert clean.figures() == (0, 0, 0, 0, 0)
    landing = table("empty")
    write = lander(spark, landing, clean.events)
    replayer = DeadLetterReplayer("q", landing, clean.events.reporter, "flights", write.decoder)
    assert replayer(spark, ReplayRequest("q")) == 0
    assert replayer(spark, ReplayRequest("q", ("x",))) == 1
    assert clean.events.last()["unknown_ids"] == ["x"]


@pytest.mark.slow
def test_replay_while_the_job_lands(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    landed = Landed(spark, table, payloads=[b"bad %d" % n for n in range(20)])
    fixed = corrections(tmp_path / "fixed", **{f"_{n}": good(n) for n in range(20)})
    errors: list[BaseException] = []

    def stream() -> None:
        try:
            for batch in range(1, 6):
                landed.write(frame(spark, kafka_rows(0, batch * 20, [good(n) for n in range(20)])), batch)
        except BaseException as error:
            errors.append(error)

    writer = threading.Thread(target=stream)
    writer.start()
    for _ in range(3):
        landed.replay(corrected=fixed)
    writer.join()
    assert errors == []
    assert [tuple(e[k] for k in ("good", "already", "landed")) for e in landed.events.all()] == [
        (20, 0, 20),
        (0, 20, 0),
        (0, 20, 0),
    ]
    rows = landed.rows()
    assert len(rows) == 120 + 20
    assert sum(r["_error"] is None for r in rows.values()) == 120


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file has no lines"),
        ("{", "line 1: Expecting property name"),
        (
            '{"id":"a","payload":"x"}\n[]',
            "line 2: a line must be an object with id and either payload or payload_base64",
        ),
        ('{"id":"a"}', "line 1: the line has the keys id; a line must be"),
        (
            '{"id":"a","payload":"x","payload_base64":"eA=="}',
            "keys id, payload, payload_base64; a line must be",
        ),
        ('{"id":1,"payload":"x"}', "all of them strings"),
        ('{"id":"a","payload":{"carrier":"AA"}}', "all of them strings"),
        ('{"id":"a","payload_base64":"%%"}', "payload_base64: "),
        ('{"id":"a","payload":"\\ud800"}', "half of a surrogate pair"),
        (
            '{"id":"a","payload":"x"}\n\n{"id":"a#replay2","payload":"y"}',
            "line 3: identity a#replay2 occurs a second time",
        ),
    ],
)
def test_corrected_payloads_that_cannot_be_read_are_refused(
    spark: SparkSession, tmp_path: Path, text: str, message: str
) -> None:
    file = tmp_path / "corrected.jsonl"
    file.write_text(text)
    with pytest.raises(StartError, match=f"^--corrected {re.escape(str(file))}: .*{re.escape(message)}"):
        read_corrected_payloads(spark, str(file))


def test_a_file_that_is_missing_or_not_text_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StartError, match=f"^--corrected: no such file: {tmp_path}/none"):
        read_corrected_payloads(spark, str(tmp_path / "none"))
    (tmp_path / "latin").write_bytes(b'{"id":"a","payload":"\xe9"}')
    with pytest.raises(StartError, match="latin is not UTF-8 text \\(byte 21"):
        read_corrected_payloads(spark, str(tmp_path / "latin"))
    assert hadoop_files.read_bytes(spark, str(tmp_path / "latin"))[21] == 0xE9


def job(table: Table, schema: Path) -> dict[str, Any]:
    source = small_job_documents.topic("flights-topic", 10, label="flights")
    (land,) = small_job_documents.queries(
        "land", source, schema, lambda _: f"{table.database}.{table.name}", trigger_seconds=1
    )
    main = {"cluster": "nowhere", "bootstrap_servers": None, "authentication": "iam"}
    settings = small_job_documents.settings("flights", [land | {"name": "land-flights"}], "/nowhere", None)
    return settings | {"connections": {"main": main}}


def settings_of(table: Table, schema: Path) -> JobSettings:
    schema.write_text(DDL)
    return parse_job_settings(job(table, schema))


def test_a_replay_of_nothing_is_refused(spark: SparkSession, table: Names, tmp_path: Path) -> None:
    landing, events = table("landing"), Events()
    settings = settings_of(landing, tmp_path / "test.ddl")
    with pytest.raises(
        StartError,
        match="--replay other: the job has no query with dead letters of this name; it has: land-flights",
    ):
        one_off_commands.make_replayer(JobRun(spark, settings, {}, events.reporter), "other")
    with pytest.raises(StartError, match=f"--replay land-flights: table {landing} does not exist"):
        one_off_commands.make_replayer(JobRun(spark, settings, {}, events.reporter), "land-flights")
    lander(spark, landing, events)
    assert one_off_commands.make_replayer(
        JobRun(spark, settings, {}, events.reporter), "land-flights"
    ).source == ("flights",)
    (tmp_path / "test.ddl").write_text(DDL + ", gate STRING")
    with pytest.raises(StartError, match="lacks gate string"):
        one_off_commands.make_replayer(JobRun(spark, settings, {}, events.reporter), "land-flights")


@pytest.mark.slow
def test_the_entry_script_replays_and_ends(
    spark: SparkSession, table: Names, tmp_path: Path, warehouse: Path
) -> None:
    landed = Landed(spark, table)
    document = tmp_path / "launch.json"
    (tmp_path / "test.ddl").write_text(DDL)
    document.write_text(json.dumps({"version": 1, "settings": job(landed.table, tmp_path / "test.ddl")}))
    fixed = corrections(tmp_path / "fixed", _1=good(7), _2=good(8), _9=good(9))
    catalog = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "hadoop", ".warehouse": str(warehouse)}
    conf = {f"spark.sql.catalog.lake{k}": v for k, v in catalog.items()}
    conf |= {
        "spark.jars": str(next(jar for jar in jars.jar_files("sandbox") if jar.name.startswith("iceberg-")))
    }
    conf |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    conf |= {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.master": "local[1]"}
    options = " ".join(f"--conf {k}={v}" for k, v in conf.items())
    environment = os.environ | {"PYSPARK_SUBMIT_ARGS": f"{options} pyspark-shell"}
    # A JVM of its own, not the one of these tests.
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "millrace.etl.main", "--launch-document", str(document)]
    ended = subprocess.run(
        [*command, "--replay", "land-flights", "--corrected", str(fixed)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert ended.returncode == 1, ended.stderr
    (line,) = ended.stdout.splitlines()
    event = json.loads(line)
    assert (event["event"], event["job"], event["unknown_ids"]) == ("replayed", "flights", [letter(9)])
    assert [event[k] for k in ("letters", "good", "bad", "already", "landed")] == [2, 2, 0, 0, 2]
    assert landed.rows().keys() >= {letter(1) + "#replay", letter(2) + "#replay"}
