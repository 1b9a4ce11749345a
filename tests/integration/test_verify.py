"""``millrace verify`` on LocalStack deploys a copy, kills its jobs, reshards, compares, and removes everything."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.sandbox.localstack_deployment import Sandbox
from millrace.sandbox.programs.toolchain import ROOT
from tests.unit.verify.smallest_environment import TINY

pytestmark = [pytest.mark.faults, pytest.mark.slow]

RECORDS = 300


@pytest.mark.timeout(900)
def test_a_small_environment_is_verified_and_leaves_nothing(sandbox: Sandbox, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_text(TINY.replace('account: "123456789012"\n', ""))  # that of LocalStack
    given = ["--records", str(RECORDS), "--rate", "40", "--kills", "1", "--reshards", "1"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "millrace",
            "verify",
            "--env",
            str(file),
            "--sandbox",
            "--yes",
            "--json",
            *given,
        ],
        cwd=ROOT,
        # The servers are there; a folder of its own keeps the two apart.
        env={
            **os.environ,
            "LOCALSTACK_ENDPOINT": sandbox.stack.endpoint,
            "MILLRACE_SANDBOX": str(tmp_path / "sandbox"),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-3000:]
    told = json.loads(done.stdout)
    assert (told["exact"], told["environment"], told["trouble"], told["remains"]) == (True, "small", [], [])
    (table,) = told["tables"]
    assert table["produced"] == table["landed"] >= RECORDS
    assert 0 < table["dead_letters"] == table["produced"] - table["derived"]
    (kill,) = told["kills"]
    assert kill["recovery_seconds"] > 0
    assert told["reshards"] == [{"from": 2, "to": 4}]
    # What it cost comes from what ran: two runs of two workers, a minute each at least.
    (dpu,) = [line for line in told["cost"]["items"] if line["name"] == "glue DPU"]
    assert dpu["usd"] >= 2 * 2 * 60 / 3600 * 0.44
    assert "in 2 runs" in dpu["why"]
    prefix = f"tiny-{told['name']}"
    stacks = sandbox.stack.client("cloudformation").describe_stacks()["Stacks"]
    # LocalStack continues telling of deleted ones.
    there = [stack["StackName"] for stack in stacks if stack["StackStatus"] != "DELETE_COMPLETE"]
    assert not [name for name in there if name.startswith(prefix)]
    assert any(name.startswith(sandbox.names.prefix) for name in there)
    buckets = {bucket["Name"] for bucket in sandbox.stack.client("s3").list_buckets()["Buckets"]}
    assert not [name for name in buckets if name.startswith(prefix)]
    assert sandbox.names.bucket("lake") in buckets
    assert not list((tmp_path / "sandbox" / "processes").glob("*.json"))
