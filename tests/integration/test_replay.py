"""``millrace replay`` decodes dead letters of a deployed job again and doubles no good row."""

from __future__ import annotations

import base64
import json
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from millrace.sandbox import operate_running_sandbox
from millrace.sandbox.programs.child_processes import SandboxError
from tests.integration.conftest import JobOutcome

QUERY = "land-flights"


@pytest.fixture(scope="module")
def letter(outcomes: dict[str, JobOutcome]) -> tuple[str, bytes]:
    ledger = outcomes["flights"].ledger
    return next(
        (i, p)
        for i, p, dirt in zip(ledger.ids, ledger.payloads, ledger.dirt, strict=True)
        if dirt == "retyped" and p
    )


@pytest.mark.timeout(240)
@pytest.mark.slow
def test_a_corrected_letter_lands_once(sandbox, outcomes, letter, tmp_path):
    identity, payload = letter
    mended = json.loads(payload)
    (spoiled,) = (name for name, value in mended.items() if value == "no such value")
    mended[spoiled] = 7
    corrected = tmp_path / "corrected.jsonl"
    encoded = base64.b64encode(json.dumps(mended).encode()).decode()
    corrected.write_text(json.dumps({"id": identity, "payload_base64": encoded}) + "\n")
    arguments = ["--id", identity, "--corrected", corrected.as_uri()]
    first, second = (
        operate_running_sandbox.replay_dead_letters_locally(
            sandbox.spark, sandbox.environment, "flights", QUERY, arguments
        )
        for _ in range(2)
    )
    assert (first["letters"], first["good"], first["bad"]) == (1, 1, 0)
    assert (second["good"], second["already"]) == (0, 1)
    catalog = sandbox.spark.catalog(sandbox.names.warehouse_url)
    table = catalog.load_table(outcomes["flights"].landed_table)
    rows = table.scan(selected_fields=("_id", "_error", spoiled)).to_arrow()
    counts = Counter(rows["_id"].to_pylist())
    assert max(counts.values()) == 1
    replayed = [row for row in rows.to_pylist() if row["_id"].startswith(f"{identity}#")]
    assert [(row["_error"], row[spoiled]) for row in replayed] == [(None, 7)]
    assert rows.num_rows == outcomes["flights"].account.landed + 1


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_unknown_letter_is_named(sandbox, outcomes):
    outcome = operate_running_sandbox.replay_dead_letters_locally(
        sandbox.spark, sandbox.environment, "flights", QUERY, ["--id", "flights/0/999999999"]
    )
    assert outcome["unknown_ids"] == ["flights/0/999999999"]
    assert outcome["letters"] == 0


def test_an_environment_that_is_not_kept_is_told(sandbox):
    with pytest.raises(SandboxError, match="is not running in the sandbox"):
        operate_running_sandbox.spark_of_running_sandbox(sandbox.environment)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_range_goes_through_the_transform_again(sandbox, outcomes):
    """All that the drill landed, in place of what its stream had derived: the same rows, each once."""
    catalog = sandbox.spark.catalog(sandbox.names.warehouse_url)

    def derived():
        table = catalog.load_table(outcomes["flights"].derived_table)
        return Counter(table.scan(selected_fields=("_id",)).to_arrow()["_id"].to_pylist())

    before = derived()
    now = datetime.now(UTC)
    bounds = ["--since", (now - timedelta(hours=1)).isoformat(), "--until", now.isoformat()]
    outcome = operate_running_sandbox.run_job_once_locally(
        sandbox.spark,
        sandbox.environment,
        "flights",
        "backfill",
        ["--backfill", "flights-weather", *bounds, "--replace"],
        "backfilled",
    )
    assert outcome["replaced"] == before.total()
    # The corrected letter was derived by no stream, as none runs any more: the backfill takes it along.
    after = derived()
    assert outcome["written"] == after.total() == outcome["read"]
    assert max(after.values()) == 1
    assert before.keys() <= after.keys()
