"""This version continues from the checkpoints, state, manifests and tables of every release."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from millrace.etl.checkpoints import manifest
from millrace.sandbox.programs.kafka_broker import KafkaBroker
from tests.faults.in_process_job import PORTION
from tests.golden import release
from tests.spark.source_batches import Events

DERIVED, TOPICS, ROUTES = (sorted(release.ARCHIVES.glob(f"*-{kind}.tar.xz")) for kind in release.KINDS)


def version(archive: Path) -> str:
    return archive.name.rpartition("-")[0]


def test_the_releases_are_there() -> None:
    assert DERIVED
    assert TOPICS
    assert ROUTES


@pytest.mark.slow
@pytest.mark.parametrize(
    "archive",
    [*TOPICS, *ROUTES],
    ids=lambda each: each.name.partition(".tar")[0],
)
def test_a_topic_is_read_on_where_a_release_was(
    spark: SparkSession, broker: KafkaBroker, archive: Path
) -> None:
    routed = archive in ROUTES
    with release.place() as place:
        release.open_catalog(spark)
        # Sent again to the offsets that the release has read.
        jobs = (release.routed_jobs if routed else release.topic_jobs)(spark, broker)
        release.unpack(archive)
        kept = [
            manifest.parse_manifest(path.read_text())
            for path in place.glob(
                f"{'routes' if routed else 'topics'}/*/checkpoints/_millrace/*.manifest.json"
            )
        ]
        assert [held.core for held in kept] == [version(archive)] * len(jobs)
        for job in jobs:
            job.send()
            told = job.run()
            assert told.status == 0, told.message
            assert dict(job.wrong()) == {}
            batches = [each for each in job.events if each["event"] == "batch"]
            # What the release has read is not read again, and its checkpoint is no new one.
            assert sum(each["read"] for each in batches) == (2 * PORTION if routed else PORTION)
            assert all(each["batch"] > 0 for each in batches)
            assert [each for each in job.events if each["event"] == "adopted"] == []


@pytest.mark.parametrize("archive", DERIVED, ids=version)
def test_a_release_is_continued_without_a_loss_or_a_double(spark: SparkSession, archive: Path) -> None:
    events = Events()
    with release.place() as place:
        release.unpack(archive)
        release.open_catalog(spark)
        assert spark.table(str(release.LANDED)).count() == release.FIRST
        kept = {
            query: manifest.parse_manifest(
                (place / "checkpoints" / "_millrace" / f"{query}.manifest.json").read_text()
            )
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
        assert all(held.core == version(archive) for held in kept.values())
