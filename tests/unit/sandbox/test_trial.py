"""What a trial says of a landing table, also of one that got nothing."""

from __future__ import annotations

import pyarrow as pa

from millrace.cli.run.sandbox import _figures
from millrace.sandbox.environment_trial import LandedTable
from millrace.sandbox.ledger import Ledger, compare


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
