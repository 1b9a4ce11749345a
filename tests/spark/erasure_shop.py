"""Orders of customers that are landed and derived, and what is left of one of them on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.etl.checkpoints.checkpoint import Checkpoint
from millrace.etl.launch.formats import JsonFormat
from millrace.etl.launch.settings import (
    DeriveSettings,
    JobSettings,
    LandSettings,
    MaintainedTableSettings,
    MaintenanceSettings,
    SourceRouteSettings,
)
from millrace.etl.launch.sinks import IcebergSinkSettings
from millrace.etl.queries import derive
from millrace.etl.queries.derive import DeriveBatchWriter
from millrace.etl.queries.transform import EnrichThenTransform
from millrace.etl.record import tables
from millrace.etl.record.envelope import CARRIED
from millrace.etl.record.tables import Table
from millrace.etl.repair.erase_in_running_job import ErasureTask
from millrace.etl.sinks.iceberg import IcebergSink
from tests.spark.source_batches import KAFKA, Events, frame, kafka_rows, lander, log_offsets

DDL = "customer STRING NOT NULL, amount INT NOT NULL"
ZOE = "zoe@example.org"
"""The largest of all values, so that bounds of files hold it."""

WHERE = f"customer = '{ZOE}'"


def order(number: int, customer: str | None = None) -> bytes:
    """Every fifth is Zoe's; another customer's address holds hers."""
    names = (ZOE, "amy@example.org", "my-zoe@example.org", "bob@example.org", "eve@example.org")
    return json.dumps({"customer": customer or names[number % 5], "amount": number}).encode()


def by_customer(rows: DataFrame) -> DataFrame:
    """Leaves the customer's name in another column, so that only identity tells."""
    return rows.select(*CARRIED, F.upper("customer").alias("buyer"), "amount")


class Shop:
    """A land query and a derive query with their checkpoints, and the job's erasure."""

    def __init__(self, spark: SparkSession, table: Callable[[str], Table], folder: Path) -> None:
        self.spark, self.folder, self.events = spark, folder, Events()
        self.landing, self.sink = table("landing"), table("sink")
        self.land_log = folder / "land-orders"
        self.next_batch, self.next_offset = 0, 0
        self.lander = self.new_lander()
        self.compose = EnrichThenTransform((), by_customer, "by_customer")
        tables.create_or_evolve_table(spark, self.sink, self.compose.checked_sink_schema(spark, self.landing))
        self.job = self._job()

    def new_lander(self, log: Path | None = None) -> Any:
        """As of a process that begins now."""
        return lander(self.spark, self.landing, Events(), checkpoint=log or self.land_log, ddl=DDL)

    def _job(self) -> JobSettings:
        names = [f"{t.database}.{t.name}" for t in (self.landing, self.sink)]
        route = SourceRouteSettings(None, None, KAFKA, JsonFormat(), "t.ddl", None, ())
        land = LandSettings("land-orders", (route,), "land", names[0], 1.0, None)
        settings = DeriveSettings("orders", names[0], (), None, IcebergSinkSettings(names[1]), 0.1, None)
        readers = (str(self.folder / "orders"),)
        upkeep = MaintenanceSettings(
            2**26,
            86400,
            7 * 86400,
            (MaintainedTableSettings(names[0], readers), MaintainedTableSettings(names[1], ())),
        )
        return JobSettings(
            1,
            "local",
            "shop",
            "sandbox",
            "lake",
            str(self.folder),
            3,
            None,
            1.0,  # the tables are small
            upkeep,
            {},
            (land, settings),
        )

    def rows(self, payloads: Sequence[bytes], first: int) -> DataFrame:
        """Records as the source hands them over, with their offsets; the key is the customer's."""
        keyed = ((row, bytes(row[7]).split(b'"')[3]) for row in kafka_rows(0, first, payloads))
        return frame(self.spark, [(*row[:4], bytearray(key), *row[5:]) for row, key in keyed])

    def land(self, payloads: Sequence[bytes], *, commit: bool = True) -> None:
        """A batch, planned, landed, and committed unless it is killed before."""
        number, first = self.next_batch, self.next_offset
        self.next_batch, self.next_offset = number + 1, first + len(payloads)
        log_offsets(self.land_log, number, {"flights-topic": {"0": self.next_offset}})
        self.lander(self.rows(payloads, first), number)
        if commit:
            self.commit(number)

    def commit(self, number: int) -> None:
        """Spark's note that a batch is done."""
        (self.land_log / "commits").mkdir(exist_ok=True)
        (self.land_log / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')

    def stream(self, trigger: str = "0 seconds") -> Any:
        """The derive query, running."""
        deriver = DeriveBatchWriter(
            self.job.queries[1],  # type: ignore[arg-type]
            self.landing,
            self.compose,
            IcebergSink(self.sink),
            None,
            Checkpoint(str(self.folder / "orders")),
            self.events.reporter,
        )
        return (
            derive.stream_landing_table(self.spark, self.landing)
            .writeStream.option("checkpointLocation", str(self.folder / "orders"))
            .foreachBatch(deriver)
            .trigger(processingTime=trigger)
            .start()
        )

    def derive(self) -> None:
        """Run the derive query over what is there, then end."""
        query = self.stream()
        try:
            query.processAllAvailable()
        finally:
            query.stop()

    def ask(self, where: str = WHERE, *, apply: bool, name: str = "e1", **more: Any) -> None:
        """Lay a request before the job."""
        place = self.folder / "_millrace" / "erase"
        place.mkdir(parents=True, exist_ok=True)
        asked = {"id": name, "where": where, "apply": apply, "by": "me", "asked_at": "now"}
        request = {**asked, "keep_condition": False, "left_out": [], **more}
        (place / "request.json").write_text(json.dumps(request))

    def step(self, name: str = "e1") -> dict[str, Any]:
        """What a job that has just begun does for it, and its answer."""
        ErasureTask(self.job, self.events.reporter)(self.spark)
        result: dict[str, Any] = json.loads(
            (self.folder / "_millrace" / "erase" / f"{name}.json").read_text()
        )
        return result

    def amounts(self, table: Table) -> list[int]:
        """Orders that a table has, Zoe's and those that are empty left out."""
        rows = self.spark.table(str(table)).where("amount IS NOT NULL").select("amount").collect()
        return sorted(r["amount"] for r in rows)


def everything_in(folder: Path) -> Iterator[tuple[str, str]]:
    """All text in the files of a table: cells, statistics, bounds in lists of files, metadata; each with its file."""
    for file in sorted(p for p in folder.rglob("*") if p.is_file()):
        if file.suffix == ".parquet":
            result = pq.ParquetFile(file)
            yield file.name, repr(result.read().to_pylist())
            groups = [result.metadata.row_group(n) for n in range(result.metadata.num_row_groups)]
            columns = [g.column(n) for g in groups for n in range(g.num_columns)]
            yield (
                file.name,
                repr(
                    [
                        (c.statistics.min, c.statistics.max)
                        for c in columns
                        if c.statistics and c.statistics.has_min_max
                    ]
                ),
            )
        elif file.suffix == ".avro":
            with file.open("rb") as opened:
                yield file.name, repr(list(fastavro.reader(opened)))
        elif not file.name.endswith(".crc"):
            yield file.name, file.read_text(errors="replace")


def of_zoe(folder: Path) -> list[str]:
    """Files that hold her address, beside that of who has hers in theirs; whatever the case."""
    return [
        name
        for name, text in everything_in(folder)
        if ZOE in text.lower().replace("my-zoe@example.org", "").replace("my-zoe@example.o", "")
    ]
