"""A trial compares an environment's tables, and refuses wrong options before it starts anything."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner, Result

from millrace.cli import app
from millrace.cli.run.sandbox import _files_by_stream, _landed_table_sentence
from millrace.config import ConfigurationError
from millrace.sandbox import environment_trial, operate_running_sandbox
from millrace.sandbox.programs.child_processes import SandboxError
from millrace.sandbox.programs.localstack import LocalStack
from millrace.sandbox.programs.run_launch_document_locally import SandboxSpark
from millrace.sandbox.records.ledger import Ledger, compare_tables_with_ledger
from millrace.sandbox.trial_results import DerivedTableComparison, LandingAfterKill, TableAfterTrial


def test_a_table_that_got_no_row_lost_what_was_sent() -> None:
    ledger = Ledger()
    ledger.add("t/0/0", b"{}", None)
    nothing = pa.table({name: pa.array([], pa.string()) for name in ("_id", "_error")} | {
        "_hash": pa.array([], pa.int64()), "_bytes": pa.array([], pa.binary()),
    })  # fmt: skip
    account = compare_tables_with_ledger(ledger, nothing, nothing["_id"])
    assert account.has_lost_or_doubled
    told = _landed_table_sentence(TableAfterTrial(0, None, {}, account))
    assert (
        told
        == "1 record sent, 0 rows, none while others had theirs; over a kill -9 1 lost, 0 doubled, 0 others"
    )


@pytest.mark.parametrize(
    ("comparison", "wrong", "told"),
    [
        (None, False, "not compared: its query skips earlier records, or has no landing table"),
        (DerivedTableComparison(reason="no module x"), False, "not compared: no module x"),
        (
            DerivedTableComparison(rows=5, pending=2, left_out=["at"]),
            False,
            "of 5 rows by one batch 0 lost, 0 doubled, 0 different, 0 others, 2 wait for the watermark; at differ in each run",
        ),
        (
            DerivedTableComparison(rows=5, lost=1, different=2, differing=["total"]),
            True,
            "of 5 rows by one batch 1 lost, 0 doubled, 2 different in total, 0 others",
        ),
    ],
)
def test_a_derived_table_is_judged_or_said_not_to_be(
    comparison: DerivedTableComparison | None, wrong: bool, told: str
) -> None:
    table = TableAfterTrial(3, 4.0, {}, None, comparison)
    assert table.is_wrong is wrong
    assert _landed_table_sentence(table) == f"3 rows, the first after 4 s; {told}"


def test_a_landing_table_says_how_it_went_on_after_the_kill() -> None:
    ledger = Ledger()
    account = compare_tables_with_ledger(
        ledger,
        pa.table({name: pa.array([], pa.string()) for name in ("_id", "_hash", "_error", "_bytes")}),
        pa.chunked_array([pa.array([], pa.string())]),
    )
    table = TableAfterTrial(0, 4.0, {}, account, after_kill=LandingAfterKill(13.6, 1.42, 3.27, 200))
    assert _landed_table_sentence(table).endswith(
        "0 others, the next commit after 14 s; then 1.4 s (p50) and 3.3 s (p95) from arrival to commit"
    )
    none_after = replace(table, after_kill=LandingAfterKill(13.6, math.nan, math.nan, 0))
    assert _landed_table_sentence(none_after).endswith("the next commit after 14 s")


def test_two_files_of_one_stream_are_a_question(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id\n1\n")
    assert _files_by_stream(tmp_path, ["orders", "clicks"]) == {"orders": tmp_path / "orders.csv"}
    (tmp_path / "orders.ddl").write_text("id BIGINT")
    with pytest.raises(ConfigurationError, match="one file for each stream"):
        _files_by_stream(tmp_path, ["orders", "clicks"])


ENVIRONMENT = """
project: shop
account: "123456789012"
streams:
  clicks: {kind: kinesis, traffic: {records_per_second: 100, record_size: 200B}}
  orders: {kind: kinesis, traffic: {records_per_second: 100, record_size: 200B}}
jobs:
  shop:
    engine: glue
    queries:
      land-clicks: {kind: land, source: clicks, table: clicks, schema: pipelines/shop.ddl}
      land-orders: {kind: land, source: orders, table: orders, schema: pipelines/shop.ddl}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in {
        "environments/dev.yaml": ENVIRONMENT,
        "pipelines/shop.ddl": "id BIGINT NOT NULL, city STRING\n",
        "orders.jsonl": '{"id": 1}\n{"id": "x"}\n',
        "more.jsonl": '{"id": 1}\n',
        "two/orders.csv": "id\n1\n",
        "two/orders.jsonl": '{"id": 1}\n',
        "empty/orders.jsonl": "\n",
        "none/other.jsonl": '{"id": 1}\n',
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["sandbox", "run", "--env", "dev", *arguments])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--job", "shops"), "one of shop"),
        (("--from", "absent.jsonl"), "does not exist"),
        (("--from", "more.jsonl"), "a file named after one of the streams clicks, orders"),
        (("--from", "none"), "a folder with a file named after clicks or orders"),
        (("--from", "two"), "one file for each stream; it has several: orders.csv, orders.jsonl"),
        (("--from", "empty/orders.jsonl"), "orders.jsonl has no records"),
        (("--rate", "0"), "--rate"),
    ],
)
def test_a_mistake_starts_nothing(
    project: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...], told: str
) -> None:
    monkeypatch.setattr(environment_trial, "run_trial", lambda *_, **__: pytest.fail("it began"))
    done = run(*arguments)
    if isinstance(done.exception, ConfigurationError):
        assert told in str(done.exception)
    else:
        assert (done.exit_code, told in " ".join(done.output.replace("│", " ").split())) == (2, True), (
            done.output
        )


@pytest.mark.parametrize("lost", [0, 1])
def test_what_is_kept_is_told_also_after_a_loss(
    project: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    table = TableAfterTrial(3, 4.0, {"id": 1}, None, DerivedTableComparison(rows=3 + lost, lost=lost))
    letter = {"_id": "clicks/7", "_stage": "decode", "_error": "not JSON", "_bytes": b"{" * 80}
    kept = []

    def trial(name: str, jobs: object, feeds: object, **options: object) -> dict[str, TableAfterTrial]:
        kept.append(options["keep"])
        return {"copied": table, "clicks": replace(table, letter=letter)}

    monkeypatch.setattr(environment_trial, "run_trial", trial)
    spark = SandboxSpark(stack=LocalStack("http://127.0.0.1:4566", "us-east-1", None), kafka="127.0.0.1:9092")
    monkeypatch.setattr(operate_running_sandbox, "spark_of_running_sandbox", lambda _: spark)
    done = run("--keep")
    assert (done.exit_code, kept) == (lost, [True])
    for part in (
        "copied: 3 rows",
        f"a dead letter: clicks/7, stage decode: not JSON; its bytes begin with {b'{' * 60!r}",
        "millrace replay shop --env dev --id clicks/7",
        "http://127.0.0.1:4566",
        "127.0.0.1:9092",
        "millrace sandbox stop",
    ):
        assert part in done.output
    assert "left running" not in run().output


def test_a_run_after_a_kept_one_says_that_its_tables_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    def ends(**_: object) -> None:
        raise SandboxError("here")

    monkeypatch.setattr(environment_trial, "stop_left_programs", lambda: ["kafka", "localstack"])
    monkeypatch.setattr(environment_trial, "running_localstack_and_kafka", ends)
    said: list[str] = []
    with pytest.raises(SandboxError, match="here"):
        environment_trial.run_trial("dev", ["shop"], {}, seconds=0, say=said.append, keep=True)
    assert (
        said[0]
        == "stopped kafka and localstack of an earlier run, with its tables; this run begins with empty ones"
    )
    assert "begins with empty tables" in " ".join(run("--help").output.replace("│", " ").split())
