"""The classes of the launch document need no PySpark, and the core has one name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

ALONE = """
import pkgutil, sys
for name in ("boto3", "py4j", "pyarrow", "pyspark"):
    sys.modules[name] = None  # any import of it fails
from millrace.etl import launch
for each in pkgutil.walk_packages(launch.__path__, "millrace.etl.launch."):
    __import__(each.name)
from millrace.config import Names, load
from millrace.etl.launch import settings, typed_json
from millrace.infra.launch.launch_settings import job_settings
from millrace.sizing import plan

environment = load("prod")
for job in plan(environment).jobs.values():
    written = job_settings(environment, job, Names(environment, environment.account or "111122223333"))
    assert settings.parse_job_settings(typed_json.to_json_value(written)) == written
others = {name.split(".")[2] for name in sys.modules if name.startswith("millrace.etl.")}
print(sorted(others))
"""


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )


def test_an_environment_is_planned_and_its_jobs_written_without_pyspark() -> None:
    done = run(ALONE)
    assert done.stdout == "['launch']\n", done.stderr


def test_the_core_is_imported_by_one_name() -> None:
    done = run("import etl.launch.errors")
    assert done.returncode == 1
    assert "ImportError: import millrace.etl" in done.stderr
