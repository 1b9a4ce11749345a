"""Writes a synthetic history as an event log of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millrace.advisor.logs.application_history_model import Batch, BatchSource, History, Query, Stage

_LISTENER = "org.apache.spark.sql.streaming.StreamingQueryListener$"


def write(history: History, file: Path, offset: Callable[[int], object] | None = None) -> Path:
    """Write the log of an application that still runs; ``offset`` gives where batch n ends, if not Kafka's positions."""
    events = [
        {"Event": "SparkListenerLogStart", "Spark Version": history.spark_version},
        {
            "Event": "SparkListenerExecutorAdded",
            "Timestamp": _ms(history.started),
            "Executor ID": "1",
            "Executor Info": {"Total Cores": history.cores},
        },
        {"Event": "SparkListenerEnvironmentUpdate", "Spark Properties": {"spark.master": "local[2]"}},
        {
            "Event": "SparkListenerApplicationStart",
            "App Name": history.name,
            "App ID": history.app_id,
            "Timestamp": _ms(history.started),
        },
    ]
    for query in history.queries:
        named = {"id": query.id, "runId": query.run_id, "name": query.name}
        events.append({"Event": f"{_LISTENER}QueryStartedEvent", **named, "timestamp": _iso(history.started)})
        for batch in query.batches:
            events += _batch(query, batch)
            events.append(
                {"Event": f"{_LISTENER}QueryProgressEvent", "progress": named | _progress(batch, offset)}
            )
    file.write_text("".join(json.dumps(each, separators=(",", ":")) + "\n" for each in events))
    return file


def _batch(query: Query, batch: Batch) -> Iterator[dict[str, Any]]:
    for job in batch.jobs:
        infos = [
            {"Stage ID": s.id, "Stage Name": "start", "Number of Tasks": s.partitions} for s in job.stages
        ]
        yield {
            "Event": "SparkListenerJobStart",
            "Job ID": job.id,
            "Submission Time": _ms(_times(job.stages)[0]),
            "Stage Infos": infos,
            "Properties": {"spark.jobGroup.id": query.run_id, "streaming.sql.batchId": str(batch.id)},
        }
        for stage, info in zip(job.stages, infos, strict=True):
            tasks = stage.tasks
            for n in range(len(tasks)):
                yield {
                    "Event": "SparkListenerTaskEnd",
                    "Stage ID": stage.id,
                    "Stage Attempt ID": 0,
                    "Task End Reason": {"Reason": "Success"},
                    "Task Info": {
                        "Index": int(tasks.index[n]),
                        "Attempt": 0,
                        "Launch Time": _ms(tasks.launched[n]),
                        "Executor ID": "1",
                        "Finish Time": _ms(tasks.finished[n]),
                        "Failed": False,
                        "Speculative": False,
                    },
                    "Task Metrics": {
                        "Executor Run Time": round(float(tasks.run[n]) * 1e3),
                        "Executor CPU Time": round(float(tasks.cpu[n]) * 1e9),
                        "Input Metrics": {"Records Read": int(tasks.records_read[n]), "Bytes Read": 0},
                        "Shuffle Read Metrics": {
                            "Local Bytes Read": int(tasks.shuffle_bytes_read[n]),
                            "Total Records Read": int(tasks.shuffle_records_read[n]),
                        },
                    },
                }
            yield {
                "Event": "SparkListenerStageCompleted",
                "Stage Info": info
                | {
                    "Stage Attempt ID": 0,
                    "RDD Info": _rdds(stage),
                    "Submission Time": _ms(_times([stage])[0]),
                    "Completion Time": _ms(_times([stage])[1]),
                },
            }
        yield {
            "Event": "SparkListenerJobEnd",
            "Job ID": job.id,
            "Completion Time": _ms(_times(job.stages)[1]),
            "Job Result": {"Result": "JobSucceeded"},
        }


def _times(stages: Iterable[Stage]) -> tuple[float, float]:
    """From the first launch of their tasks to the last end."""
    tables = [each.tasks for each in stages]
    return min(float(each.launched.min()) for each in tables), max(
        float(each.finished.max()) for each in tables
    )


def _rdds(stage: Stage) -> list[dict[str, Any]]:
    """What a stage computes from what, as Spark 3.5 writes it of a stage behind a shuffle."""
    operator = "AQEShuffleRead" if stage.adaptive else "Exchange"
    made = {"WholeStageCodegen (2)": [1], operator: [0]}
    return [
        {
            "RDD ID": 2 - place,
            "Name": "ShuffledRowRDD" if place else "MapPartitionsRDD",
            "Scope": json.dumps({"id": str(place), "name": name}, separators=(",", ":")),
            "Parent IDs": parents,
            "Storage Level": {"Use Disk": False, "Use Memory": False},
            "Number of Partitions": stage.partitions,
        }
        for place, (name, parents) in enumerate(made.items())
    ]


def _progress(batch: Batch, offset: Callable[[int], object] | None) -> dict[str, Any]:
    return {
        "timestamp": _iso(batch.begun),
        "batchId": batch.id,
        "durationMs": {name: round(seconds * 1e3) for name, seconds in batch.parts.items()},
        "sources": [
            {
                "description": source.description,
                **_offsets(batch, source, offset),
                "numInputRows": source.rows,
            }
            for source in batch.sources
        ],
        "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
    }


def _offsets(
    batch: Batch, source: BatchSource, offset: Callable[[int], object] | None
) -> dict[str, str | None]:
    if offset is not None:
        start, end = (json.dumps(offset(number)) for number in (batch.id - 1, batch.id))
        return {"startOffset": start, "endOffset": end, "latestOffset": None}
    positions = {"startOffset": source.start, "endOffset": source.end, "latestOffset": source.latest}
    topics = {key.rpartition(":")[0] for key in source.end or ()} or {"t"}
    return {
        key: json.dumps(
            {
                topic: {k.rpartition(":")[2]: v for k, v in (of or {}).items() if k.startswith(f"{topic}:")}
                for topic in topics
            }
        )
        for key, of in positions.items()
    }


def _ms(seconds: float) -> int:
    return round(float(seconds) * 1e3)


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
