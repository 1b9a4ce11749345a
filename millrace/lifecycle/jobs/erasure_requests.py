"""Erasure of a person's records: requests to the environment's running jobs, as files beside their checkpoints.

The jobs erase beside their streams (``etl/repair/erase_in_running_job.py``). This module writes the requests and reads the answers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from millrace.config import Environment, Names
from millrace.config.queries import DeriveQuery, DirectQuery, DirectRouteQuery
from millrace.config.sinks.base import SinkContext
from millrace.config.units import format_duration
from millrace.etl.launch.erase_request_and_benchmark_schedule import ERASE_FOLDER, EraseRequest
from millrace.lifecycle.account.deployed_environment import (
    MISSING_OBJECT,
    ignoring_not_found_errors,
    split_s3_url,
)
from millrace.lifecycle.aws_error_messages import AwsError, translating_aws_errors

PATIENCE_SECONDS = 180.0
"""A running job looks for a request every 30 s, between its other tasks."""

POLL_SECONDS = 2.0

Answers = dict[str, dict[str, Any]]
"""Answer of each job, by its name."""


@dataclass
class ErasureRequests:
    """Requests to the jobs of an environment, and their answers.

    Parameters
    ----------
    s3
        S3 client for the checkpoints.
    jobs
        Names of the jobs.
    """

    s3: Any
    names: Names
    jobs: Sequence[str]
    _versions: list[tuple[str, str, dict[str, str]]] = field(default_factory=list, repr=False)

    def write_requests(self, request: EraseRequest) -> None:
        """Write a request for every job; it replaces an earlier one."""
        body = json.dumps(asdict(request)).encode()
        for job in self.jobs:
            bucket, key = self._bucket_and_key(job, "request")
            with translating_aws_errors(f"cannot write s3://{bucket}/{key}"):
                done = self.s3.put_object(Bucket=bucket, Key=key, Body=body)
            if "VersionId" in done:
                self._versions.append((bucket, key, {"VersionId": done["VersionId"]}))

    def current_request(self) -> dict[str, Any] | None:
        """Return the request that is being applied; None without one."""
        requests = (self._read_json(job, "request") for job in self.jobs)
        return next((each for each in requests if each is not None and each["apply"]), None)

    def wait_for_answers(
        self,
        erasure: str,
        states: tuple[str, ...],
        progress: Callable[[str], None],
        *,
        poll_seconds: float = POLL_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> Answers:
        """Wait until every job's answer has one of some states.

        Parameters
        ----------
        progress
            Called with a line whenever the reason for the wait changes.
        patience_seconds
            Longest time without any answer of a job.

        Raises
        ------
        AwsError
            A job did not answer.
        """
        begun, before = time.monotonic(), ""
        while True:
            answers = {
                job: answer for job in self.jobs if (answer := self._read_json(job, erasure)) is not None
            }
            if not (open_ := [job for job in self.jobs if answers.get(job, {}).get("state") not in states]):
                return answers
            silent = [job for job in open_ if job not in answers]
            if silent and time.monotonic() - begun > patience_seconds:
                raise AwsError(
                    f"{', '.join(silent)} did not answer within {patience_seconds:.0f} s. Only a running job of this version "
                    f"can erase: see `millrace status --env {self.names.environment.name}`"
                )
            waits = [line for job in open_ for line in answers.get(job, {}).get("waiting", [])]
            now = "; ".join(waits) or f"waiting for {', '.join(open_)}"
            if now != before:
                progress(now)
                before = now
            time.sleep(poll_seconds)

    def delete_requests(self, erasure: str) -> None:
        """Delete the requests and answers of an erasure that is over, was only a preview, or is not wanted."""
        objects = (self._bucket_and_key(job, name) for job in self.jobs for name in ("request", erasure))
        # In a bucket with versions, a deletion without the version only hides the condition.
        for bucket, key, version in (*((*each, {}) for each in objects), *self._versions):
            with translating_aws_errors(f"cannot delete s3://{bucket}/{key}"):
                self.s3.delete_object(Bucket=bucket, Key=key, **version)
        self._versions.clear()

    def _read_json(self, job: str, name: str) -> dict[str, Any] | None:
        bucket, key = self._bucket_and_key(job, name)
        with (
            translating_aws_errors(f"cannot read s3://{bucket}/{key}"),
            ignoring_not_found_errors(*MISSING_OBJECT),
        ):
            return dict(json.loads(self.s3.get_object(Bucket=bucket, Key=key)["Body"].read()))
        return None

    def _bucket_and_key(self, job: str, name: str) -> tuple[str, str]:
        bucket, prefix = split_s3_url(self.names.checkpoints_url(job))
        return bucket, f"{prefix}/{ERASE_FOLDER}/{name}.json"


def places_not_erased(environment: Environment, names: Names, where: str) -> Iterator[str]:
    """Yield what an erasure does not reach, a sentence each, with what a person can do there.

    Parameters
    ----------
    where
        The condition.
    """
    for name in dict.fromkeys(s for _, _, query in environment.queries for s in query.source_stream_names):
        stream = environment.streams[name]
        yield (
            f"stream {name}: the source keeps its records ({format_duration(stream.retention)} by the environment file); those "
            "that no query has read yet, or that a producer sends again, land as new ones"
        )
    context = SinkContext(names)
    for job, one in environment.jobs.items():
        for query, each in one.queries.items():
            for end in each.sinks_by_place.values():
                if (by_hand := end.sink.manual_erasure_steps(where, context)) is not None:
                    yield f"{job}/{query}: {end.sink.target_key_and_name[1]}: {by_hand}"
                for reference in end.enrich:
                    yield f"{job}/{query}: reference table {reference.table}: only its owner changes it"
            if isinstance(each, DeriveQuery):
                if each.state is not None:
                    yield (
                        f"{job}/{query} keeps state in its checkpoint until its watermark has passed, and may write rows of it until then: "
                        "erase again afterwards, or begin with a new one: "
                        f"`millrace checkpoint reset {job} {query}`"
                    )
            elif isinstance(each, DirectQuery | DirectRouteQuery):
                yield (
                    f"{job}/{query} has no landing table: if its checkpoint is reset to an earlier time, the record "
                    "is written again while the source keeps it; then erase again"
                )
    storage = environment.storage
    if storage.upkeep is not None:
        age = format_duration(storage.upkeep.orphans)
        yield f"files of writes that failed, which no table names: deleted when they are {age} old"
    yield (
        "S3: where the lake's bucket keeps versions (ours does, 7 days), deleted files are there as older ones until then; "
        "copies and backups are yours"
    )
    yield (
        "logs: Spark's event logs hold the condition's values, and expire after "
        f"{format_duration(storage.event_log_retention)}"
    )
