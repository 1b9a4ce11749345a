"""Environments drawn at random: sources, engines, kinds of queries, routes and states that a file may ask for."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Document = dict[str, Any]

SCHEMA = "pipelines/clicks/schemas/click.ddl"
SIZES = {100: "100B", 400: "400B", 900: "900B", 1024: "1KiB", 4096: "4KiB", 102_400: "100KiB"}
EXISTING = "arn:aws:kafka:us-east-1:111122223333:cluster/main/12345678-1234-1234-1234-123456789012-1"


def milliseconds(low: float, high: float) -> st.SearchStrategy[str]:
    """Durations, short ones as often as long ones."""
    return _log(low, high).map(lambda seconds: f"{round(seconds * 1000)}ms")


def _log(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(0, 1).map(lambda part: low * (high / low) ** part)


@st.composite
def _stream(draw: st.DrawFn, kafka: Document) -> Document:
    size = draw(st.sampled_from(sorted(SIZES)))
    traffic = {
        "records_per_second": round(draw(_log(1, 200 if size > 10_000 else 50_000)), 1),
        "peak_factor": draw(st.sampled_from([1, 1, 1.5, 2, 5])),
        "record_size": SIZES[size],
        "basis": "measured",
    }
    if not kafka or draw(st.booleans()):
        return {
            "kind": "kinesis",
            "mode": draw(st.sampled_from(["provisioned", "on-demand"])),
            "traffic": traffic,
        }
    topic: Document = {"kind": "kafka", "cluster": "main", "traffic": traffic}
    if "existing" in kafka["main"] and draw(st.booleans()):
        topic |= {"existing": True, "partitions": draw(st.sampled_from([1, 6, 12, 30, 100]))}
    return topic


def _derived(draw: st.DrawFn, name: str, tables: list[str]) -> Document:
    """A derive query of the last table, some of them joined with another table of the job."""
    query: Document = {
        "kind": "derive",
        "source": tables[-1],
        "sink": {"kind": "iceberg", "table": f"derived_{name}"},
    }
    watermark = {"time": "_arrived_at", "delay": "10m"}
    if len(tables) > 1 and draw(st.booleans()):
        query["transform"] = "pipelines.clicks.transforms:matched"
        query["state"] = {"watermark": watermark, "join": {"source": tables[0], "watermark": watermark}}
    return query


@st.composite
def documents(draw: st.DrawFn, *, rated: bool = False) -> Document:
    """Documents of environments; with ``rated``, each job has a rate."""
    clusters = [
        {},
        {"main": {"kind": "msk", "tier": "standard"}},
        {"main": {"kind": "msk", "tier": "express"}},
        {"main": {"kind": "msk"}},
        {"main": {"kind": "msk", "existing": EXISTING}},
    ]
    kafka: Document = draw(st.sampled_from(clusters))
    streams: Document = {}
    jobs: Document = {}
    for number in range(draw(st.sampled_from([1, 1, 1, 2, 3]))):
        queries: Document = {}
        tables: list[str] = []
        for place in range(draw(st.sampled_from([1, 1, 2, 3]))):
            name = f"{number}{place}"
            stream_name = f"stream-{name}"
            if streams and draw(st.integers(0, 4)) == 0:
                stream_name = draw(st.sampled_from(sorted(streams)))
            else:
                streams[stream_name] = draw(_stream(kafka))
            stream = streams[stream_name]
            kind = draw(st.sampled_from(["land", "derive", "direct"]))
            if kind == "direct" and stream["kind"] == "kafka":
                queries[f"direct-{name}"] = {
                    "kind": "direct",
                    "source": stream_name,
                    "schema": SCHEMA,
                    "dead_letters": f"dead_{name}",
                    "sink": {"kind": "iceberg", "table": f"direct_{name}"},
                }
                continue
            source = {"source": stream_name, "schema": SCHEMA}
            read = (
                {"kind": "route", "routes": {"all": source}}
                if draw(st.booleans())
                else {"kind": "land", **source}
            )
            queries[f"land-{name}"] = {**read, "table": f"landed_{name}"}
            tables.append(f"landed_{name}")
            for again in range(draw(st.integers(1, 2)) if kind == "derive" else 0):
                queries[f"derive-{name}{again}"] = _derived(draw, f"{name}{again}", tables)
        jobs[f"job-{number}"] = job = {
            "engine": draw(st.sampled_from(["glue", "emr"])),
            "latency": draw(milliseconds(15, 7200)),
            "queries": queries,
        }
        if rated or draw(st.booleans()):
            job["rate"] = {
                "records_per_second_per_core": round(draw(_log(500, 20_000))),
                "batch_overhead": draw(milliseconds(0.3, 4)),
                "basis": "measured",
            }
        if draw(st.sampled_from([True, False, False, False])):
            job["scaling"] = "fixed"
        if draw(st.sampled_from([True, False, False, False])):
            job["catch_up"] = {"outage": draw(st.sampled_from(["1m", "15m"])), "within": "2h"}
        if draw(st.integers(0, 5)) == 0:
            job["memory"] = draw(
                st.sampled_from([{"state": "8GiB"}, {"state": "100GiB"}, {"tables": "2GiB"}])
            )
        if draw(st.sampled_from([True, False, False, False])):
            job["run_every"] = draw(st.sampled_from(["5m", "30m"]))
            job["latency"] = draw(milliseconds(1800, 14_400))
        elif draw(st.sampled_from([True, False, False])):
            job["run"] = "auto"
    return {
        "name": "drawn",
        "project": "drawn",
        "region": "us-east-1",
        "account": "111122223333",
        "streams": streams,
        "jobs": jobs,
        **({"kafka": kafka} if kafka else {}),
    }
