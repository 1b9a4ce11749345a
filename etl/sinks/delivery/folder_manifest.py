"""Manifests of batches that were committed to a folder of files: one small file for each batch, beside the data."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pyspark.sql import Column, Row, SparkSession
from pyspark.sql import functions as F

from ...record import hadoop_files
from ...record.errors import SinkError
from ..base import BatchIdentity

FOLDER = "_manifests"
"""Folder below the data; readers of Parquet ignore names that begin with an underscore."""

SCHEMA = (
    "run STRING, batch LONG, start STRING, end STRING, rows LONG, folder STRING, files ARRAY<STRING>, "
    "first LONG, last LONG"
)
"""Schema of a manifest, for Spark to read many of them at once."""

_CORRUPT = "_corrupt"
_WHOLE = (
    f"{_CORRUPT} IS NULL AND run IS NOT NULL AND batch IS NOT NULL AND folder IS NOT NULL AND files IS NOT NULL "
    "AND rows >= 0 AND (first IS NULL) = (last IS NULL)"
)
"""Condition for a complete manifest: Spark reads missing parts as nulls."""


@dataclass(frozen=True)
class BatchManifest:
    """One committed batch.

    Attributes
    ----------
    run, batch, start, end
        Its :class:`etl.sinks.base.BatchIdentity`.
    rows
        Number of rows written.
    folder, files
        Location, below the sink's path; empty if there were no rows.
    first, last
        Arrival of the oldest and the youngest row, in microseconds since 1970; None if no row has one, as rows of the second stream
        alone in an outer join.
    """

    run: str
    batch: int
    start: str
    end: str
    rows: int
    folder: str
    files: tuple[str, ...]
    first: int | None
    last: int | None


def batch_folder_name(run: str, batch: int) -> str:
    """Return the name of a batch's folder, which is also that of its manifest without the extension."""
    return f"{run}-{batch:012d}"


@dataclass(frozen=True)
class FolderManifests:
    """Manifests of one sink."""

    path: str

    @property
    def location(self) -> str:
        """URL of the folder of manifests."""
        return f"{self.path}/{FOLDER}"

    def manifest_url(self, place: BatchIdentity | BatchManifest) -> str:
        """Return the URL of a batch's manifest."""
        return f"{self.location}/{batch_folder_name(place.run, place.batch)}.json"

    def manifest_of_batch(self, spark: SparkSession, place: BatchIdentity) -> BatchManifest | None:
        """Return the manifest of a batch; None if it was not committed.

        Raises
        ------
        SinkError
            The manifest has the batch's number but other offsets, because the checkpoint was changed; or it is damaged.
        OSError
            It cannot be read.
        """
        url = self.manifest_url(place)
        try:
            content = json.loads(hadoop_files.read_text(spark, url))
            manifest = BatchManifest(**{**content, "files": tuple(content["files"])})
        except FileNotFoundError:
            return None
        except (KeyError, TypeError, ValueError) as error:
            raise SinkError(
                f"{url}, the list of files that batch {place.batch} wrote, cannot be read: {error}. Restore "
                "it, or delete it: the batch is then written again and replaces those files"
            ) from error
        if (manifest.start, manifest.end) != (place.start, place.end):
            raise SinkError(
                f"{self.path}: batch {place.batch} of checkpoint {place.run} is committed with offsets "
                f"{manifest.start} to {manifest.end}, but now has offsets {place.start} to {place.end}: the "
                "checkpoint was changed; restore it, or give the query a new one with `millrace checkpoint reset`"
            )
        return manifest

    def manifest_urls_of_other_writers(self, spark: SparkSession, run: str) -> list[str]:
        """Return the URLs of manifests that another checkpoint, or a replay, wrote."""
        return [
            f"{self.location}/{name}"
            for name in hadoop_files.list_names(spark, self.location)
            if name.endswith(".json") and not name.startswith(f"{run}-")
        ]

    def aggregate_manifests(self, spark: SparkSession, urls: Sequence[str], *wanted: Column) -> Row:
        """Compute aggregates over manifests, in one action that also checks that each of them is complete.

        Parameters
        ----------
        urls
            URLs of the manifests, at least one.
        wanted
            Aggregates over the columns of :data:`SCHEMA`, each with a name.

        Raises
        ------
        SinkError
            A manifest is damaged: the rows of its batch are unknown, and would be written twice or not be read.
        """
        read = spark.read.schema(f"{SCHEMA}, {_CORRUPT} STRING").option("columnNameOfCorruptRecord", _CORRUPT)
        rows = read.json([*urls]).withColumn("_url", F.input_file_name())
        broken = F.when(~F.coalesce(F.expr(_WHOLE), F.lit(False)), F.col("_url"))
        [aggregates] = rows.agg(
            F.count(F.lit(1)).alias("_count"), F.collect_set(broken).alias("_broken"), *wanted
        ).collect()
        damaged = {_manifest_file_name(url) for url in aggregates["_broken"]}
        if not damaged and aggregates["_count"] != len(urls):
            # A file without a line gives no row, and concatenated files give several.
            each = rows.groupBy("_url").count().collect()
            single = {_manifest_file_name(row["_url"]) for row in each if row["count"] == 1}
            damaged = {_manifest_file_name(url) for url in urls} - single
        if damaged:
            raise SinkError(
                f"{self.location}: these manifests of another checkpoint or a replay are damaged: "
                f"{', '.join(sorted(damaged))}. Restore them; without them, readers of the manifests miss "
                "the files in the folders batch=NAME, and a repeated record of these files is written again"
            )
        return aggregates

    def write_manifest(self, spark: SparkSession, manifest: BatchManifest) -> None:
        """Write a manifest, completely or not at all."""
        hadoop_files.write_text(spark, self.manifest_url(manifest), json.dumps(asdict(manifest)))


def _manifest_file_name(url: str) -> str:
    return url.rpartition("/")[2]


def data_files_in(spark: SparkSession, folder: str) -> Sequence[str]:
    """Return the names of the data files in a batch's folder."""
    return [name for name in hadoop_files.list_names(spark, folder) if not name.startswith(("_", "."))]
