"""What PySpark's worker does at the start of each task, after the first one that runs the core's code."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

from millrace.etl.services import python_task_start
from millrace.sandbox.programs.toolchain import ROOT

PROGRAM = """
import importlib, sys, zipimport
from {module} import skip_reading_zip_directories

sys.path.insert(0, sys.argv[1])
import shipped
read, real = [], zipimport._read_directory
zipimport._read_directory = lambda archive: read.append(archive) or real(archive)
importlib.invalidate_caches()
before = read.count(sys.argv[1])
skip_reading_zip_directories()
importlib.invalidate_caches()
import shipped.later
print(before, read.count(sys.argv[1]) - before, shipped.later.VALUE)
"""


def test_the_directories_of_archives_are_read_once(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "job.zip", "w") as archive:
        archive.writestr("shipped/__init__.py", "")
        archive.writestr("shipped/later.py", "VALUE = 7")
    program = PROGRAM.format(module=python_task_start.__name__)
    ran = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "job.zip")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout.split() == ["1", "0", "7"]
