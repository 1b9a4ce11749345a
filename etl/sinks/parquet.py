"""Parquet sink: a folder of files for each batch, and a manifest that marks it as complete."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..commits.duplicate_look_up_bounds import DuplicateLookUp, RecordOutsideBoundError, older_than_condition
from ..launch.sinks import ParquetSinkSettings
from ..record import hadoop_files
from ..record.batch_accounts import ObservedFigures
from ..record.envelope import IDENTITY, datetime_of_micros
from ..record.errors import StartError
from ..record.job_run_context import JobRun
from .base import BatchIdentity, Refuse, Reread, WriteCounts
from .delivery.folder_manifest import FOLDER, BatchManifest, FolderManifests, batch_folder_name, data_files_in
from .iceberg import own_errors_unwrapped

_SHAPE = "_schema.txt"

_LATER = "replay"
"""Begins the folder's name of rows of no batch, or of a batch that was committed without them."""


def open_sink(settings: ParquetSinkSettings, _run: JobRun, _key: tuple[str, ...]) -> ParquetSink:
    """Make the sink, see :func:`etl.sinks.base.open_sink`."""
    return ParquetSink(settings)


@dataclass(frozen=True)
class ParquetSink:
    """A folder of Parquet files.

    Parameters
    ----------
    settings
        Path, and most files of a batch.
    """

    settings: ParquetSinkSettings
    acts_on_rdd: bool = False
    _others: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False, compare=False)

    @property
    def _manifests(self) -> FolderManifests:
        return FolderManifests(self.settings.path)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Store the columns of a new folder, or compare them with those of an existing one.

        Raises
        ------
        StartError
            The folder holds rows of another schema, files of another program, or cannot be read.
        """
        path = self.settings.path
        shape = {f.name: f.dataType.simpleString() for f in schema.fields}
        try:
            names = hadoop_files.list_names(spark, path)
            if FOLDER not in names:
                if any(not name.startswith(("_", ".")) for name in names):
                    raise StartError(
                        f"{path}: the folder holds files that Millrace did not write; name another folder"
                    )
                hadoop_files.write_text(spark, f"{path}/{FOLDER}/{_SHAPE}", _schema_text(shape))
            elif (text := hadoop_files.read_text(spark, f"{path}/{FOLDER}/{_SHAPE}")) != _schema_text(shape):
                raise StartError(
                    f"{path}: the folder holds rows with {text}, but this query writes rows with "
                    f"{_schema_text(shape)}; name another folder"
                )
        except OSError as error:
            raise StartError(f"{path}: {error}") from error

    def write(
        self,
        rows: DataFrame,
        place: BatchIdentity | None,
        refuse: Refuse,
        reread: Reread | None = None,
    ) -> WriteCounts:
        """Write a batch into its own folder, then its manifest.

        Guarantee, to readers of the files that the manifests name: exactly once per identity with one writer
        at a time, after any kill, retry or replay. A repeated batch without a manifest replaces
        the content of its folder. Of a committed one only rows that it did not hold are written, into a folder of
        their own: of a record that could not be decoded before its schema was corrected. Folder names have the id of the
        checkpoint, so after a reset, when batch numbers start again, nothing is skipped and nothing
        overwritten; records that an earlier checkpoint wrote are then left out by identity.

        Weaker than a table: Parquet has no transaction. A reader of the folder without the manifests sees a
        batch while it is written, and after a crash a part of one until the query has started again.
        """
        spark = rows.sparkSession
        committed = place is not None and self._manifests.manifest_of_batch(spark, place) is not None
        again = place is not None and place.landed_again
        if place is not None and not committed and not again:
            try:
                outside = self._condition_to_be_among_others(spark, place.run)
                return self._write_folder_and_manifest(rows, place, DuplicateLookUp(outside=outside))
            except RecordOutsideBoundError:
                rows = reread() if reread is not None else rows
        others = self._manifests.manifest_urls_of_other_writers(
            spark, place.run if place and not again else ""
        )
        if place is not None and committed and not again:
            others.append(self._manifests.manifest_url(place))
        whose = BatchIdentity(_LATER, uuid.uuid4().int % 10**12) if place is None or committed else place
        existing = self._existing_identities(rows, others)
        return self._write_folder_and_manifest(rows, whose, DuplicateLookUp(), existing=existing)

    def _condition_to_be_among_others(self, spark: SparkSession, run: str) -> Column | None:
        """Return the condition for rows that another checkpoint may have written; None if there are none.

        Rows of another checkpoint arrived up to a time: mostly the batch is younger, which is checked during the write. Of
        rows without an arrival (the second stream's alone, in an outer join) nothing bounds the look-up.
        """
        if run not in self._others:
            others = self._manifests.manifest_urls_of_other_writers(spark, run)
            wanted = (F.sum("rows").alias("rows"), F.max("last").alias("last"))
            self._others[run] = (
                self._manifests.aggregate_manifests(spark, others, *wanted).asDict() if others else {}
            )
        held = self._others[run]
        if not held.get("rows"):
            return None
        timeless = F.col("_arrived_at").isNull()
        if held["last"] is None:
            return timeless
        after = datetime_of_micros(held["last"]) + timedelta(microseconds=1)
        return timeless | older_than_condition("_arrived_at", after)

    def _existing_identities(self, rows: DataFrame, manifests: list[str]) -> DataFrame | None:
        """Return the identities in files that may hold a row of the batch; None if no file may."""
        spark = rows.sparkSession
        span = rows.select(
            F.expr("count_if(_arrived_at IS NULL)").alias("timeless"),
            F.expr("min(unix_micros(_arrived_at))").alias("first"),
            F.expr("max(unix_micros(_arrived_at))").alias("last"),
        ).first()
        if span is None or not manifests or not (span["timeless"] or span["first"] is not None):
            return None
        # Manifests do not show whether a batch has rows without an arrival; the files do.
        among = F.lit(bool(span["timeless"]))
        same = F.col("_arrived_at").isNull() & among
        if span["first"] is not None:
            among |= (F.col("first") <= span["last"]) & (F.col("last") >= span["first"])
            first, last = (F.expr(f"timestamp_micros({span[end]}L)") for end in ("first", "last"))
            same |= F.col("_arrived_at").between(first, last)
        files = _files_in_manifests(spark, self._manifests, manifests, among)
        return spark.read.parquet(*files).where(same).select(*IDENTITY) if files else None

    def _write_folder_and_manifest(
        self,
        rows: DataFrame,
        place: BatchIdentity,
        look_up: DuplicateLookUp,
        existing: DataFrame | None = None,
    ) -> WriteCounts:
        spark = rows.sparkSession
        name = batch_folder_name(place.run, place.batch)
        # Named like a partition by batch, so that readers find the files below the path.
        folder = f"{self.settings.path}/batch={name}"
        offered = ObservedFigures(F.count(F.lit(1)).alias("offered"))
        new = offered.observe(look_up.with_failure_outside_bound(rows))
        if existing is not None:
            new = new.join(existing, list(IDENTITY), "left_anti").select(
                *(F.col(f"`{c}`") for c in rows.columns)
            )
        # By a shuffle: with ``coalesce`` fewer files would mean fewer tasks for the transform, too.
        new = new.repartition(self.settings.files_per_batch)
        written = ObservedFigures(
            F.count(F.lit(1)).alias("rows"),
            F.expr("min(unix_micros(_arrived_at))").alias("first"),
            F.expr("max(unix_micros(_arrived_at))").alias("last"),
        )
        with own_errors_unwrapped(folder):
            written.observe(new).write.mode("overwrite").parquet(folder)
        figures = written.values()
        if not figures["rows"]:
            hadoop_files.delete_if_exists(spark, folder)  # files without a row
            if place.run == _LATER:
                return WriteCounts(offered.values()["offered"], 0)
        self._manifests.write_manifest(
            spark,
            BatchManifest(
                run=place.run,
                batch=place.batch,
                start=place.start,
                end=place.end,
                rows=figures["rows"],
                folder=f"batch={name}",
                files=tuple(data_files_in(spark, folder)),
                first=figures["first"],
                last=figures["last"],
            ),
        )
        return WriteCounts(offered.values()["offered"], figures["rows"])


def _schema_text(shape: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in shape.items())


def _files_in_manifests(
    spark: SparkSession, manifests: FolderManifests, urls: list[str], within: Column
) -> list[str]:
    """Return the files that manifests name, for manifests that meet a condition."""
    named = F.collect_list(F.when(within, F.struct("folder", "files"))).alias("named")
    batches = manifests.aggregate_manifests(spark, urls, named)["named"]
    return [f"{manifests.path}/{batch['folder']}/{file}" for batch in batches for file in batch["files"]]


def committed_files(spark: SparkSession, path: str) -> list[str]:
    """Return the files of all committed batches, for a reader that needs each record exactly once.

    Raises
    ------
    SinkError
        A manifest is damaged, so the files of its batch are unknown.
    """
    manifests = FolderManifests(path)
    urls = manifests.manifest_urls_of_other_writers(spark, "")
    return sorted(_files_in_manifests(spark, manifests, urls, F.lit(True))) if urls else []
