"""Contents and refusals of a release, and projects of earlier releases."""

from __future__ import annotations

import json
import subprocess
import zipfile
from pathlib import Path

import pytest

from millrace.config import load
from millrace.sandbox.programs import jars
from millrace.sizing import plan
from tests import release
from tests.golden import saved_project

ROOT = Path(__file__).parents[2]
KEPT = sorted(saved_project.FOLDER.glob("*-project.json"))


def test_a_project_of_every_release_is_kept() -> None:
    versions = {file.name.rpartition("-")[0] for file in saved_project.FOLDER.glob("*.tar.xz")}
    assert {file.name.removesuffix("-project.json") for file in KEPT} == versions


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.name.removesuffix("-project.json"))
def test_a_project_of_an_earlier_release_plans(file: Path, tmp_path: Path) -> None:
    made = plan(load("dev", root=saved_project.unpack(file, tmp_path)))
    assert made.jobs["orders"].queries.keys() == {"land-orders", "price-orders"}


def test_the_bill_has_every_package_and_every_jar() -> None:
    result = {
        component.purl.to_string()
        for component in release.bill_of_materials("9.9.9").components
        if component.purl
    }
    assert "pkg:pypi/boto3@" in "".join(result)
    pinned = [line for line in (ROOT / "requirements.txt").read_text().splitlines() if "==" in line]
    locked = {jar for each in jars.read_jar_lock_file().values() for jar in each}
    assert len(result) == len(pinned) + len(locked)
    assert all(component.hashes for component in release.bill_of_materials("9.9.9").components)


@pytest.mark.slow
def test_the_wheel_and_its_digests(tmp_path: Path) -> None:
    number = release.version()
    wheel, bill, sums = release.write(number, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        assert "millrace/etl/main.py" in archive.namelist()
    assert json.loads(bill.read_text())["specVersion"] == "1.4"
    listed = dict(reversed(line.split("  ", 1)) for line in sums.read_text().splitlines())
    assert listed.keys() == {wheel.name, bill.name, "job.zip, without pipelines/"}
    again = release.write(number, tmp_path / "again")[2].read_text().splitlines()
    # The same tree gives the same wheel and the same archive.
    assert [line for line in again if "sbom" not in line] == [
        line for line in sums.read_text().splitlines() if "sbom" not in line
    ]


def test_what_is_still_to_do_is_told_at_once(tmp_path: Path) -> None:
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    subprocess.run(["git", "tag", "v9.9.9"], cwd=tmp_path, check=True)
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## Unreleased\n")
    told = list(release.problems("9.9.9", tmp_path))
    assert [line.partition(":")[0] for line in told] == [
        "commit or remove what git does not have",
        "raise the version in pyproject.toml",
        "write the changelog's section",
        "run make golden, which keeps 9.9.9-derived.tar.xz, 9.9.9-routes.tar.xz, 9.9.9-topics.tar.xz, 9.9.9-project.json in tests/golden",
    ] or len(told) == 4
