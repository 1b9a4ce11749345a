"""``millrace sandbox run`` starts two jobs, of which one reads the other's table, and both write rows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.sandbox.programs.toolchain import ROOT

# The reader comes first: whoever begins before the table is there, waits for it.
ENVIRONMENT = """\
project: elsewhere
region: eu-central-1
streams:
  clicks:
    kind: kinesis
    traffic: {records_per_second: 50, record_size: 300B}
jobs:
  pages:
    engine: glue
    latency: 120s
    queries:
      pages:
        kind: derive
        source: clicks_landed
        sink: {kind: iceberg, table: clicks_copied}
  clicks:
    engine: glue
    latency: 60s
    queries:
      land-clicks:
        kind: land
        source: clicks
        table: clicks_landed
        schema: pipelines/clicks/schemas/click.ddl
"""


@pytest.mark.slow
def test_jobs_of_another_region_that_share_a_table_start_together(tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.yaml"
    file.write_text(ENVIRONMENT)
    sandbox = tmp_path / "sandbox"
    done = subprocess.run(
        [sys.executable, "-m", "millrace", "sandbox", "run", "--env", file, "--seconds", "1"],
        cwd=ROOT,
        env={**os.environ, "MILLRACE_SANDBOX": str(sandbox)},
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    told = re.search(
        r"clicks_landed: ([\d,]+) records? sent, ([\d,]+) rows?, .*kill -9 0 lost, 0 doubled, 0 others",
        done.stdout,
    )
    assert told, done.stdout
    assert told[1] == told[2] != "0"
    assert "clicks_copied: " in done.stdout
    for run in ("clicks-1", "clicks-2"):
        assert '"landed"' in (sandbox / f"jobs/{run}/driver.log").read_text()
        assert "eu-central-1" in (sandbox / f"jobs/{run}/spark.properties").read_text()
    assert '"waiting_for_table"' in (sandbox / "jobs/pages-1/driver.log").read_text()
