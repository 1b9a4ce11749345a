"""Launch documents of small jobs, and the comparison of their tables with the ledger of sent records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace.etl.record.envelope import CARRIED
from millrace.sandbox.records.ledger import Ledger, compare_tables_with_ledger
from tests.launch_document_defaults import with_route

Rows = Callable[..., pa.Table]
"""Columns of a table of a job: ``rows("landed", "_id", "_hash")``."""

LANDED = ("_id", "_hash", "_error", "_bytes")
FIFTHS = 5
APART = 24
"""Records whose numbers are so far apart are a pair of the joining query, if they arrive within :data:`NEAR`."""

NEAR, DELAY = timedelta(seconds=10), timedelta(seconds=5)


def counted(rows: DataFrame) -> DataFrame:
    """Count records of each fifth of the numbers in each minute: what the stateful query keeps."""
    grouped = rows.groupBy(F.window("_arrived_at", "1 minute"), (F.col("n") % FIFTHS).alias("fifth"))
    return grouped.agg(F.count(F.lit(1)).alias("records"), F.sum("n").alias("total")).select(
        F.col("window.start").alias("minute"), "fifth", "records", "total"
    )


def last(rows: DataFrame) -> DataFrame:
    """Keep the key and number of a record; every seventh number deletes its key."""
    key = F.col("_key").cast("string").alias("key")
    return rows.select("_position", (F.col("n") % 7 == 6).alias("_deleted"), key, "n")


def paired(rows: DataFrame, others: DataFrame) -> DataFrame:
    """Join each record with the one whose number is lower by :data:`APART`; those without one are kept alone."""
    theirs = others.select("_joined_id", F.col("n").alias("other"), F.col("_arrived_at").alias("at"))
    seconds = F.expr(f"INTERVAL {NEAR.total_seconds():.0f} SECONDS")
    near = F.col("at").between(F.col("_arrived_at") - seconds, F.col("_arrived_at") + seconds)
    joined = rows.join(theirs, near & (F.col("other") == F.col("n") + APART), "right_outer")
    return joined.select(*CARRIED, "_joined_id", "n", "other")


def settings(
    name: str,
    queries: Sequence[Mapping[str, Any]],
    checkpoints: str,
    bootstrap: str | None,
    *,
    catalog: str = "lake",
    retries: int = 0,
) -> dict[str, Any]:
    """Settings of a job, whose Kafka queries read by the connection ``main``."""
    connection = {"cluster": None, "authentication": "none"}
    job: dict[str, Any] = {"version": 1, "environment": "faults", "job": name, "engine": "sandbox"}
    job |= {"catalog": catalog, "checkpoints": checkpoints, "batch_retries": retries}
    job |= {
        "dead_letters_kept_seconds": None,
        "erase_share": 0.1,
        "upkeep": None,
        "run_every_seconds": None,
        "queries": [with_route(query) for query in queries],
    }
    main = {"main": connection | {"bootstrap_servers": bootstrap}} if bootstrap else {}
    return job | {"connections": main}


def topic(name: str, records: int, *, label: str = "events", **reading: Any) -> dict[str, Any]:
    """Settings of a source: a topic from its beginning, with so many records in a batch at most; ``reading`` by its keys."""
    source: dict[str, Any] = {"kind": "kafka", "name": label, "topic": name, "connection": "main"}
    others = {"pattern": False, "headers": True, "null_payload": "dead_letter"} | dict.fromkeys(
        ("partitions", "partition_count", "min_records_per_batch", "max_delay_seconds", "start_offsets",
         "group_id_prefix", "lag_group", "min_partitions"),
    )  # fmt: skip
    return source | {
        "start": "earliest", "records_per_batch": records, "retention_seconds": 86_400,
        "reading": others | reading if reading else None,
    }  # fmt: skip


def stream(name: str, region: str) -> dict[str, Any]:
    """Settings of a source: a stream from its beginning."""
    source: dict[str, Any] = {"kind": "kinesis", "name": "events", "stream": name, "region": region}
    source |= {"start": "earliest", "records_per_shard": 10_000, "fetch_seconds": 1.0}
    source |= {"retention_seconds": 86_400, "consumer": None, "role": None}
    return source | {"records_per_batch": None}


def queries(
    kind: str,
    source: Mapping[str, Any],
    schema: Path,
    table: Callable[[str], str],
    *,
    sink: Mapping[str, Any] | None = None,
    trigger_seconds: float = 0,
    repartition: int | None = None,
) -> list[dict[str, Any]]:
    """Give the queries of a job.

    Parameters
    ----------
    kind
        ``land``, ``direct``, ``derive``, ``state`` (sums of a minute), ``join`` (of the table with itself) or ``latest`` (the last
        record of a key).
    source
        What it reads.
    table
        Name of ``landed``, ``out`` and ``letters``.
    sink
        In place of the table ``out``.
    """
    reading: dict[str, Any] = {
        "source": source,
        "format": {"kind": "json"},
        "redact": [],
        "rules": [],
        "schema": str(schema),
    }
    reading |= {"decompress_up_to": None, "repartition": repartition, "trigger_seconds": trigger_seconds}
    onward: dict[str, Any] = {"enrich": [], "transform": None, "trigger_seconds": trigger_seconds}
    onward |= {"sink": sink or {"kind": "iceberg", "table": table("out")}}
    if kind == "direct":
        return [{"kind": "direct", "name": "direct", **reading, **onward, "dead_letters": table("letters")}]
    land = {"kind": "land", "name": "land", **reading, "table": table("landed")}
    derive = {"kind": "derive", "name": "derive", **onward, "source_table": table("landed")}
    derive |= {"state": None, "dead_letters": None, "route": None, "latest_by": []}
    mark = {"time": "_arrived_at", "delay_seconds": 600, "ahead_seconds": 3600}
    state: dict[str, Any] = {
        "watermark": mark,
        "distinct": [],
        "key": [],
        "join": None,
        "output_mode": "update",
    }
    if kind == "state":
        derive |= {"state": state | {"key": ["minute", "fifth"]}, "transform": f"{__name__}:counted"}
    if kind == "join":
        mark["delay_seconds"] = DELAY.total_seconds()
        other = {"source_table": table("landed"), "watermark": mark, "route": None}
        derive |= {"state": state | {"join": other}, "transform": f"{__name__}:paired"}
    if kind == "latest":
        derive |= {"latest_by": ["key"], "transform": f"{__name__}:last"}
    return [land] if kind == "land" else [land, derive]


def wrong(kind: str, ledger: Ledger, rows: Rows) -> Counter[str]:
    """Hold a job's tables against what was sent: how much is lost, doubled, or otherwise not as it has to be."""
    account = compare_tables_with_ledger(
        ledger, *_direct(ledger, rows) if kind == "direct" else _landed(kind, rows)
    )
    result = Counter(
        lost=account.lost + account.derived_lost,
        doubled=account.duplicated + account.derived_duplicated,
        others=account.unknown + account.misjudged + account.altered,
    )
    if kind in COMPUTED:
        wanted, held = COMPUTED[kind](rows)
        result.update(results_missing=(wanted - held).total(), results_wrong=(held - wanted).total())
    return +result


def _landed(kind: str, rows: Rows) -> tuple[pa.Table, pa.ChunkedArray]:
    landed = rows("landed", *LANDED)
    good = landed.filter(pc.is_null(landed["_error"]))["_id"]
    return landed, rows("out", "_id")["_id"] if kind == "derive" else good


def _direct(ledger: Ledger, rows: Rows) -> tuple[pa.Table, pa.ChunkedArray]:
    """Of a direct query the good rows and its dead letters together; a good row says by its identity alone what it is."""
    letters, out = rows("letters", *LANDED), rows("out", "_id")["_id"]
    hashes = dict(zip(ledger.ids, ledger.hashes, strict=True))
    good = [(each, hashes.get(each, 0), None, None) for each in out.to_pylist()]
    both = [*zip(*(letters[name].to_pylist() for name in LANDED), strict=True), *good]
    kinds = (pa.string(), pa.int64(), pa.string(), pa.binary())
    landed = pa.table(
        [pa.array([row[at] for row in both], of) for at, of in enumerate(kinds)], names=list(LANDED)
    )
    return landed, out


def _good(rows: Rows, *columns: str) -> list[tuple[Any, ...]]:
    held = rows("landed", "_error", *columns)
    held = held.filter(pc.is_null(held["_error"]))
    return list(zip(*(held[name].to_pylist() for name in columns), strict=True))


def _sums(rows: Rows) -> tuple[Counter[Any], Counter[Any]]:
    wanted: dict[Any, tuple[int, int]] = {}
    for arrived, n in _good(rows, "_arrived_at", "n"):
        key = (arrived.replace(second=0, microsecond=0).timestamp(), n % FIFTHS)
        count, total = wanted.get(key, (0, 0))
        wanted[key] = (count + 1, total + n)
    held = rows("out", "minute", "fifth", "records", "total").to_pylist()
    result = Counter(
        ((row["minute"].timestamp(), row["fifth"]), (row["records"], row["total"])) for row in held
    )
    return Counter(wanted.items()), result


def _last(rows: Rows) -> tuple[Counter[Any], Counter[Any]]:
    """Records of a key are all of one partition."""
    wanted: dict[bytes, tuple[str, int]] = {}
    for key, position, n in _good(rows, "_key", "_position", "n"):
        wanted[key] = max(wanted.get(key, (position, n)), (position, n))
    held = rows("out", "key", "n").to_pylist()
    result = Counter((row["key"], row["n"]) for row in held)
    return Counter({(key.decode(), n): 1 for key, (_, n) in wanted.items() if n % 7 != 6}), result


def _pairs(rows: Rows) -> tuple[Counter[Any], Counter[Any]]:
    """A record comes out alone when the watermark has passed it: of the last ones some have, some have not."""
    landed: dict[int, tuple[str, datetime]] = {
        n: (i, at) for i, at, n in _good(rows, "_id", "_arrived_at", "n")
    }
    held, wanted = Counter(rows("out", "_id")["_id"].to_pylist()), Counter[str]()
    last_ = max(at for _, at in landed.values())
    for n, (identity, at) in landed.items():
        first = landed.get(n - APART)
        if first is not None and abs(at - first[1]) <= NEAR:
            wanted[f"{first[0]}+{identity}"] = 1
        elif at + NEAR + DELAY + timedelta(seconds=1) < last_ or held[identity]:
            wanted[identity] = 1
    return wanted, held


COMPUTED: Mapping[str, Callable[[Rows], tuple[Counter[Any], Counter[Any]]]] = {
    "state": _sums,
    "latest": _last,
    "join": _pairs,
}
"""By kind, what a plain computation over the landed records wants, and what the table of results holds."""
