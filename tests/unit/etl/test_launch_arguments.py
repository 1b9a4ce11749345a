"""Arguments and launch documents are accepted or refused with one message."""

from __future__ import annotations

import json
from typing import Any

import pytest

from millrace.etl.launch.entry_script_arguments import (
    ReplayRequest,
    ScriptArguments,
    parse_arguments,
    read_settings_of_document,
)
from millrace.etl.record.errors import StartError
from tests.launch_document_defaults import with_route

LAND: dict[str, Any] = {
    "kind": "land",
    "name": "land",
    "source": {
        "kind": "kafka",
        "name": "flights",
        "topic": "flights",
        "connection": "main",
        "start": "earliest",
        "records_per_batch": 1000,
        "retention_seconds": 3600,
        "reading": None,
    },
    "format": {"kind": "json"},
    "decompress_up_to": None,
    "redact": [],
    "rules": [],
    "schema": "pipelines/flights/schemas/flight.ddl",
    "table": "lake.flights",
    "trigger_seconds": 10,
    "repartition": None,
}
SETTINGS: dict[str, Any] = {
    "version": 1,
    "environment": "dev",
    "job": "flights",
    "engine": "glue",
    "catalog": "lake",
    "checkpoints": "s3://bucket/flights",
    "batch_retries": 3,
    "dead_letters_kept_seconds": None,
    "erase_share": 0.1,
    "upkeep": None,
    "run_every_seconds": None,
    "connections": {"main": {"cluster": "c", "bootstrap_servers": None, "authentication": "iam"}},
    "queries": [with_route(LAND)],
}


def document(**changes: Any) -> str:
    return json.dumps({"version": 1, "settings": SETTINGS | changes})


def given(*arguments: str) -> ScriptArguments:
    return parse_arguments(["--launch-document", "s3://b/d.json", *arguments])


def test_binds_and_engine_are_applied() -> None:
    arguments = given(
        "--engine", "sandbox", "--bind", "kafka.main.bootstrap=a:1,b:2", "--bind", "kinesis.endpoint=x=y"
    )
    assert dict(arguments.binds) == {"kafka.main.bootstrap": "a:1,b:2", "kinesis.endpoint": "x=y"}
    assert read_settings_of_document(document(), arguments).engine == "sandbox"


def test_glue_passes_its_own_arguments_on() -> None:
    arguments = given(
        "--JOB_NAME", "j", "--JOB_RUN_ID", "r", "--TempDir", "s3://t", "--enable-metrics", "true"
    )
    assert read_settings_of_document(document(), arguments).engine == "glue"
    with pytest.raises(StartError, match="unknown arguments: --JOB_NAME j"):
        read_settings_of_document(document(engine="emr"), arguments)


def test_a_replay_names_its_query_and_letters() -> None:
    assert given().replay is None
    assert given("--replay", "land").replay == ReplayRequest("land", (), None)
    arguments = given(
        "--replay", "land", "--id", "t/0/1,t/0/2", "t/0/1", "--id", "t/0/3", "--corrected", "s3://b/f"
    )
    assert arguments.replay == ReplayRequest("land", ("t/0/1", "t/0/2", "t/0/3"), "s3://b/f")


@pytest.mark.parametrize(
    "bad",
    [
        ["--bind", "x"],
        ["--bind", "=x"],
        ["--bind", "x="],
        ["--engine", "flink"],
        ["--id", "t/0/1"],
        ["--corrected", "s3://b/f"],
        ["--id", "t/0/1,,", "--replay", "land"],
    ],
)
def test_wrong_arguments_end_with_status_2(bad: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        given(*bad)
    assert ended.value.code == 2
    assert bad[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("{", (), "not JSON"),
        ("[]", (), "version None"),
        ('{"version": 2}', (), "version 2, but the job's code reads version 1"),
        (json.dumps({"version": 1}), (), "settings: expected an object"),
        (document(extra=1), (), "unknown keys extra"),
        (document(), ("--bind", "kafka.other.bootstrap=x"), "--bind kafka.other.bootstrap"),
        (document(), ("--bind", "kafka.main.password=x"), "--bind kafka.main.password"),
    ],
)
def test_a_document_that_does_not_fit_is_refused(text: str, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises(StartError, match=message):
        read_settings_of_document(text, given(*arguments))
