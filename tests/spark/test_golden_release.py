"""This version goes on from what every release has left: its checkpoints with their state, manifests and tables."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from etl import manifest
from tests.golden import release
from tests.spark.batches import Events

RELEASES = sorted(release.ARCHIVES.glob("*.tar.xz"))


def test_the_releases_are_there() -> None:
    assert RELEASES


@pytest.mark.parametrize("archive", RELEASES, ids=lambda path: path.name.removesuffix(".tar.xz"))
def test_a_release_is_continued_without_a_loss_or_a_double(spark: SparkSession, archive: Path) -> None:
    events = Events()
    with release.place() as place:
        release.unpack(archive)
        release.open_catalog(spark)
        assert spark.table(str(release.LANDED)).count() == release.FIRST
        kept = {
            query: manifest.read((place / "checkpoints" / "_millrace" / f"{query}.manifest.json").read_text())
            for query in ("rows", "totals")
        }
        release.land(spark, release.FIRST, release.MORE, 1)
        release.derive(spark, events)
        assert release.wrong(spark) == []
        assert spark.table(str(release.LANDED)).count() == release.MORE
        batches = [each for each in events.all() if each["event"] == "batch" and each["written"]]
        # Later batches of the same checkpoints, not batch 0 of new ones.
        assert {each["query"] for each in batches} == {"rows", "totals"}
        assert all(each["batch"] > 0 for each in batches)
        assert [each for each in events.all() if each["event"] == "adopted"] == []
        assert all(held.core == archive.name.removesuffix(".tar.xz") for held in kept.values())
