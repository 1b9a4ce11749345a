"""Parquet files: a folder for each batch, and a manifest that says that it is whole."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ..launch.sink_kinds import JobContext, SinkSettings
from ..record import hadoop_files
from ..record.batch_accounts import ObservedFigures
from ..record.envelope import IDENTITY, datetime_of_micros
from ..record.errors import StartError
from ..record.lookup_bounds import EVERYTHING, Bound, OutsideBoundError
from .base import Again, BatchPlace, Refuse, WriteCounts
from .delivery.folder_manifest import FOLDER, Manifest, Manifests, files_in, name_of
from .iceberg import separating_own_errors

_SHAPE = "_schema.txt"


@dataclass(frozen=True)
class ParquetSinkSettings(SinkSettings):
    """A folder of Parquet files.

    Attributes
    ----------
    files_per_batch
        Into how many files a batch goes at most: the plan's volume by the size of file that is wanted.
    """

    NAMED_BY = "path"
    kind: Literal["parquet"]
    path: str
    files_per_batch: int

    def open(self, context: JobContext) -> ParquetSink:
        """As of the base."""
        return ParquetSink(self)


@dataclass(frozen=True)
class ParquetSink:
    """A folder of Parquet files.

    Parameters
    ----------
    settings
        Its path, and into how many files a batch goes at most.
    """

    settings: ParquetSinkSettings
    acts_on_rdd: bool = False
    _horizons: dict[str, datetime | None] = field(default_factory=dict, repr=False, compare=False)

    @property
    def _manifests(self) -> Manifests:
        return Manifests(self.settings.path)

    def prepare(self, spark: SparkSession, schema: StructType) -> None:
        """Note the columns of a new folder, or compare them with those of the one that is there.

        Raises
        ------
        StartError
            It holds rows of another shape, files of somebody else's, or cannot be read.
        """
        path = self.settings.path
        shape = {f.name: f.dataType.simpleString() for f in schema.fields}
        try:
            found = hadoop_files.names(spark, path)
            if FOLDER not in found:
                if any(not name.startswith(("_", ".")) for name in found):
                    raise StartError(
                        f"{path}: the folder holds files that Millrace did not write; name another folder"
                    )
                hadoop_files.write_text(spark, f"{path}/{FOLDER}/{_SHAPE}", _text(shape))
            elif (held := hadoop_files.read_text(spark, f"{path}/{FOLDER}/{_SHAPE}")) != _text(shape):
                raise StartError(
                    f"{path}: it holds rows of {held}, not of {_text(shape)}; name another folder"
                )
        except OSError as error:
            raise StartError(f"{path}: {error}") from error

    def write(
        self,
        rows: DataFrame,
        place: BatchPlace | None,
        refuse: Refuse,
        again: Again | None = None,
    ) -> WriteCounts:
        """Write a batch into a folder of its own, then its manifest.

        Guarantee, to whoever reads the files that the manifests name: exactly once per identity with one writer
        at a time, whatever is killed, retried or replayed. A batch that comes again uncommitted takes the place of
        what is in its folder; one that is committed is not written again. Folders bear the id of the
        checkpoint, so that after a reset, when numbers begin again, nothing is skipped and nothing
        overwritten; records that an earlier checkpoint wrote are then left out by identity.

        Weaker than a table: Parquet has no transaction. Whoever reads the folder without the manifests sees a
        batch while it is written, and after a crash a part of one until the query has started again.
        """
        spark = rows.sparkSession
        whose = place or BatchPlace("replay", uuid.uuid4().int % 10**12)
        if place is not None and self._manifests.of(spark, place) is not None:
            counted = ObservedFigures(F.count(F.lit(1)).alias("offered"))
            counted.observe(rows).agg(F.count(F.lit(1))).collect()
            return WriteCounts(counted.values()["offered"], 0)
        horizon = self._horizon(spark, whose.run) if place else _EVER
        if horizon is None:
            return self._write(rows, whose, EVERYTHING)
        if horizon is not _EVER:
            # What another checkpoint wrote arrived up to the horizon: mostly the batch is younger, which is
            # checked while it is written.
            try:
                return self._write(
                    rows, whose, Bound.since("_arrived_at", horizon + timedelta(microseconds=1))
                )
            except OutsideBoundError:
                rows = again() if again is not None else rows
        return self._write(rows, whose, EVERYTHING, known=self._known(rows, whose.run if place else ""))

    def _horizon(self, spark: SparkSession, run: str) -> datetime | None:
        """Arrival of the youngest row that another checkpoint wrote; None where none did."""
        if run not in self._horizons:
            others = self._manifests.written_by_others(spark, run)
            last = None
            if others:
                last = self._manifests.aggregate(spark, others, F.max("last").alias("last"))["last"]
            self._horizons[run] = None if last is None else datetime_of_micros(last)
        return self._horizons[run]

    def _known(self, rows: DataFrame, run: str) -> DataFrame | None:
        """Identities in files of other checkpoints that may hold a row of the batch; None where no file may."""
        spark = rows.sparkSession
        span = rows.select(
            F.expr("min(unix_micros(_arrived_at))").alias("first"),
            F.expr("max(unix_micros(_arrived_at))").alias("last"),
        ).first()
        others = self._manifests.written_by_others(spark, run)
        if span is None or span["first"] is None or not others:
            return None
        within = (F.col("first") <= span["last"]) & (F.col("last") >= span["first"])
        files = _files(spark, self._manifests, others, within)
        return spark.read.parquet(*files).select(*IDENTITY) if files else None

    def _write(
        self, rows: DataFrame, place: BatchPlace, bound: Bound, known: DataFrame | None = None
    ) -> WriteCounts:
        spark = rows.sparkSession
        name = name_of(place.run, place.batch)
        # As a partition by batch, so that readers find the files below the path.
        folder = f"{self.settings.path}/batch={name}"
        offered = ObservedFigures(F.count(F.lit(1)).alias("offered"))
        new = offered.observe(bound.guard(rows))
        if known is not None:
            new = new.join(known, list(IDENTITY), "left_anti").select(*rows.columns)
        # By a shuffle: fewer files by ``coalesce`` would be fewer tasks for the transform, too.
        new = new.repartition(self.settings.files_per_batch)
        written = ObservedFigures(
            F.count(F.lit(1)).alias("rows"),
            F.expr("min(unix_micros(_arrived_at))").alias("first"),
            F.expr("max(unix_micros(_arrived_at))").alias("last"),
        )
        with separating_own_errors(folder):
            written.observe(new).write.mode("overwrite").parquet(folder)
        figures = written.values()
        if not figures["rows"]:
            hadoop_files.delete(spark, folder)  # files without a row
        self._manifests.commit(
            spark,
            Manifest(
                run=place.run,
                batch=place.batch,
                start=place.start,
                end=place.end,
                rows=figures["rows"],
                folder=f"batch={name}",
                files=tuple(files_in(spark, folder)),
                first=figures["first"],
                last=figures["last"],
            ),
        )
        return WriteCounts(offered.values()["offered"], figures["rows"])


def _text(shape: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in shape.items())


def _files(spark: SparkSession, manifests: Manifests, urls: list[str], within: Column) -> list[str]:
    """Files that some manifests name, as far as a condition holds for these."""
    named = F.collect_list(F.when(within, F.struct("folder", "files"))).alias("named")
    found = manifests.aggregate(spark, urls, named)["named"]
    return [f"{manifests.path}/{batch['folder']}/{file}" for batch in found for file in batch["files"]]


_EVER: Any = datetime.max.replace(tzinfo=UTC)
"""A horizon that no batch lies behind: every file may hold one of its rows."""


def committed_files(spark: SparkSession, path: str) -> list[str]:
    """Files of all committed batches: what a reader reads who wants each record exactly once.

    Raises
    ------
    SinkError
        A manifest is damaged, so that the files of its batch are not known.
    """
    manifests = Manifests(path)
    urls = manifests.written_by_others(spark, "")
    return sorted(_files(spark, manifests, urls, F.lit(True))) if urls else []
