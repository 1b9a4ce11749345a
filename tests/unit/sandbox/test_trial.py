"""What a trial says of a landing table, also of one that got nothing."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from millrace.cli.run.sandbox import _figures, _files
from millrace.config import ConfigurationError
from millrace.sandbox.environment_trial import DerivedComparison, LandedTable
from millrace.sandbox.records.ledger import Ledger, compare


def test_a_table_that_got_no_row_lost_what_was_sent() -> None:
    ledger = Ledger()
    ledger.add("t/0/0", b"{}", None)
    nothing = pa.table({name: pa.array([], pa.string()) for name in ("_id", "_error")} | {
        "_hash": pa.array([], pa.int64()), "_bytes": pa.array([], pa.binary()),
    })  # fmt: skip
    account = compare(ledger, nothing, nothing["_id"])
    assert account.lost_or_doubled
    told = _figures(LandedTable(0, None, {}, account))
    assert (
        told
        == "1 record sent, 0 rows, none while others had theirs; over a kill -9 1 lost, 0 doubled, 0 others"
    )


@pytest.mark.parametrize(
    ("comparison", "wrong", "told"),
    [
        (None, False, "not compared: its query skips earlier records, or has no landing table"),
        (DerivedComparison(reason="no module x"), False, "not compared: no module x"),
        (
            DerivedComparison(rows=5, pending=2, left_out=["at"]),
            False,
            "of 5 rows by one batch 0 lost, 0 doubled, 0 different, 0 others, 2 wait for the watermark; at differ in each run",
        ),
        (
            DerivedComparison(rows=5, lost=1, different=2, differing=["total"]),
            True,
            "of 5 rows by one batch 1 lost, 0 doubled, 2 different in total, 0 others",
        ),
    ],
)
def test_a_derived_table_is_judged_or_said_not_to_be(
    comparison: DerivedComparison | None, wrong: bool, told: str
) -> None:
    table = LandedTable(3, 4.0, {}, None, comparison)
    assert table.wrong is wrong
    assert _figures(table) == f"3 rows, the first after 4 s; {told}"


def test_two_files_of_one_stream_are_a_question(tmp_path: Path) -> None:
    (tmp_path / "orders.csv").write_text("id\n1\n")
    assert _files(tmp_path, ["orders", "clicks"]) == {"orders": tmp_path / "orders.csv"}
    (tmp_path / "orders.ddl").write_text("id BIGINT")
    with pytest.raises(ConfigurationError, match="one file for each stream"):
        _files(tmp_path, ["orders", "clicks"])
