"""``millrace erase`` removes the records of one person from the deployed tables, and no others."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from pyiceberg.expressions import EqualTo
from typer.testing import CliRunner

from millrace.cli import app
from millrace.sandbox import operate_running_sandbox


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_tail_number_is_erased_beside_the_running_jobs(sandbox, outcomes, monkeypatch):
    place = operate_running_sandbox.sandbox_deployment(sandbox.spark, sandbox.environment)
    monkeypatch.setattr(operate_running_sandbox, "running_sandbox_deployment", lambda _: place)
    monkeypatch.setattr(operate_running_sandbox, "spark_of_running_sandbox", lambda _: sandbox.spark)
    catalog = sandbox.spark.catalog(sandbox.names.warehouse_url)
    flights = outcomes["flights"]

    def rows(table, **filtered):
        scanned = catalog.load_table(table).scan(selected_fields=("_id",), **filtered)
        return Counter(scanned.to_arrow()["_id"].to_pylist())

    landed = catalog.load_table(flights.landed_table)
    tails = Counter(landed.scan(selected_fields=("tailnum",)).to_arrow()["tailnum"].to_pylist())
    tails.pop(None)
    tail = tails.most_common()[len(tails) // 2][0]
    hers = rows(flights.landed_table, row_filter=EqualTo("tailnum", tail))
    before, derived = rows(flights.landed_table), rows(flights.derived_table)

    def run(*options):
        done = CliRunner().invoke(
            app, ["erase", "--env", "local", "--where", f"tailnum = '{tail}'", *options]
        )
        assert done.exit_code == 0, (done.output, done.stderr, done.exception)
        return json.loads(done.stdout)

    done = run("--yes", "--json")
    result = {each["table"].rpartition(".")[2]: each for each in done["tables"]}
    assert done["state"] == "done"
    assert result[flights.landed_table.rpartition(".")[2]]["rows"] >= hers.total()
    # The landed rows are there, and empty; what was made of them is gone, and of no other.
    assert rows(flights.landed_table) == before
    assert rows(flights.landed_table, row_filter=EqualTo("tailnum", tail)).total() == 0
    left = rows(flights.derived_table)
    assert derived - left == Counter({i: n for i, n in derived.items() if i in hers})
    assert any("kafka" in line or "flights" in line for line in done["not_covered"])
    bucket = sandbox.names.bucket("lake")
    listed = place.client("s3").list_objects_v2(Bucket=bucket)["Contents"]
    assert [k["Key"] for k in listed if f"/_erasures/flights/{done['erasure']}.json" in k["Key"]]
    preview = run("--json")
    assert all(each["rows"] == 0 for each in preview["tables"])
