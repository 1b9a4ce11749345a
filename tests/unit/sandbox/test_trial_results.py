"""Figures of a trial's tables, from tables of an Iceberg catalog."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from millrace.sandbox.trial_results import example_dead_letter, example_row, landing_after_kill

SCHEMA = pa.schema(
    [
        ("_id", pa.string()),
        ("_stage", pa.string()),
        ("_error", pa.string()),
        ("_bytes", pa.binary()),
        ("_arrived_at", pa.timestamp("us", "UTC")),
        ("_landed_at", pa.timestamp("us", "UTC")),
        ("city", pa.string()),
    ]
)


@pytest.fixture
def landed(tmp_path: Path) -> Iterator[Table]:
    catalog = SqlCatalog("lake", uri=f"sqlite:///{tmp_path}/c.db", warehouse=f"file://{tmp_path}")
    catalog.create_namespace("lake")
    yield catalog.create_table("lake.landed", schema=SCHEMA)
    catalog.engine.dispose()


def append(table: Table, *ages: float, bad: bytes | None = None) -> None:
    """Commit one batch, whose records arrived so many seconds before it."""
    now = datetime.now(UTC)
    table.append(
        pa.Table.from_pylist(
            [
                {
                    "_id": f"s/{age}",
                    "_stage": None if bad is None else "decode",
                    "_error": None if bad is None else "not JSON",
                    "_bytes": bad,
                    "_arrived_at": now - timedelta(seconds=age),
                    "_landed_at": now,
                    "city": "Chur",
                }
                for age in ages
            ],
            schema=SCHEMA,
        )
    )


def test_age_is_measured_of_what_arrived_after_the_recovery(landed: Table) -> None:
    append(landed, 500.0, 400.0)
    append(landed, *(n / 10 for n in range(1, 201)), 90.0)
    result = landing_after_kill(landed, 4.5, datetime.now(UTC) - timedelta(seconds=60))
    assert (result.recovery_seconds, result.records) == (4.5, 200)
    # The commit follows the stamp of its batch by less than this.
    assert 10.0 <= result.p50_seconds < 14.0
    assert 19.0 <= result.p95_seconds < 23.0


def test_no_record_after_the_recovery_has_no_age(landed: Table) -> None:
    append(landed, 5.0)
    result = landing_after_kill(landed, 4.5, datetime.now(UTC))
    assert result.records == 0
    assert math.isnan(result.p50_seconds)
    assert math.isnan(result.p95_seconds)


def test_an_example_of_dead_letters_has_bytes_where_one_has_some(landed: Table) -> None:
    append(landed, 1.0)
    assert example_dead_letter(landed) is None
    assert example_row(landed) == {"city": "Chur"}
    append(landed, 2.0, bad=b"")
    append(landed, 3.0, bad=b"{")
    letter = example_dead_letter(landed)
    assert letter == {"_id": "s/3.0", "_stage": "decode", "_error": "not JSON", "_bytes": b"{"}
