"""Erasure of a person's records: requested by a file beside the job's checkpoints, done by the running job beside its queries.

A matching landed row becomes an empty one of stage ``erased``, which keeps its identity, so the record does not land
again. Rows of other tables are deleted. Then each table's manifests are rewritten, and a commit without rows
(the *mark*) ends its old history. When every query that derives from it has read past the mark, the snapshots before it expire.

Each call does the steps that are possible now, so a killed job continues from there (``docs/design/erasure.md#steps``).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from ..checkpoints.checkpoint import Checkpoint
from ..launch import typed_json
from ..launch.erase_request_and_benchmark_schedule import ERASE_FOLDER, EraseRequest
from ..launch.settings import JobSettings
from ..record import batch_accounts, hadoop_files
from ..record.batch_accounts import EventReporter
from ..record.tables import Table, load_java_table
from .erase_condition import ErasureCondition, first_line_of_error
from .erase_old_snapshots import (
    expire_before_mark_and_count_files,
    has_query_read_past,
    remove_rest_and_commit_erasure_mark,
    snapshot_id_of_newest_mark,
)
from .erase_targets import ErasureTarget, targets_left_out_and_problems

RECORDS = "_erasures"
"""Folder beside those of the job's tables: one file per erasure, by job and id."""


@dataclass
class ErasureTask:
    """Maintenance task that processes an erasure request, a step at a time.

    Parameters
    ----------
    job
        Job whose tables are erased.
    report
        Gets events for erased tables and for each wait.
    """

    job: JobSettings
    report: EventReporter
    every: timedelta = timedelta(seconds=30)
    _waiting: list[str] = field(default_factory=list, repr=False)

    @property
    def task_name(self) -> str:
        """See :class:`etl.maintenance.table_maintenance.TableTask`."""
        return "erase"

    @property
    def request_folder(self) -> str:
        """Folder of the request (``request.json``) and of the answers by id."""
        return f"{self.job.checkpoints}/{ERASE_FOLDER}"

    def __call__(self, spark: SparkSession) -> None:
        """Look for a request, and do the steps that are possible now.

        Raises
        ------
        OSError, Py4JJavaError, CapturedException
            A step failed; the next call repeats it.
        """
        try:
            text = hadoop_files.read_text(spark, f"{self.request_folder}/request.json")
            request: EraseRequest = typed_json.read_typed(EraseRequest, json.loads(text), "request")
        except FileNotFoundError:
            return
        except ValueError as error:
            raise OSError(f"{self.request_folder}/request.json: {error}") from error
        answer = self._read_last_answer(spark, request)
        if answer["state"] in ("previewed", "refused"):
            if not request.apply:
                return
            answer = _new_answer(request)
        if answer["state"] != "done":
            condition = ErasureCondition(spark, request.where)
            result, left_out, problems = targets_left_out_and_problems(spark, self.job, condition)
            answer["left_out"] = left_out
            if problems:
                answer |= {"state": "refused", "problems": problems}
            elif request.apply and answer["state"] == "running":
                self._advance_all_tables(spark, condition, result, answer)
            else:
                # Whoever can write a request can leave out the command's preview.
                answer = _answer_with_match_counts(spark, condition, result, answer, self.job.erase_share)
                if request.apply and answer["wide"]:
                    answer |= {"state": "refused", "problems": answer["wide"]}
                elif request.apply and answer["state"] == "previewed":
                    answer = _new_answer(request)
                    self._advance_all_tables(spark, condition, result, answer)
            self._write_answer(spark, answer)
        if answer["state"] == "done":
            # The record first: the request is deleted only when everything is done.
            self._write_erasure_record_to_lake(spark, request, answer)
            hadoop_files.delete_if_exists(spark, f"{self.request_folder}/request.json")

    def _read_last_answer(self, spark: SparkSession, request: EraseRequest) -> dict[str, Any]:
        """Return the progress of an erasure, from the last answer written."""
        try:
            content: dict[str, Any] = json.loads(
                hadoop_files.read_text(spark, f"{self.request_folder}/{request.id}.json")
            )
        except (FileNotFoundError, ValueError):
            return _new_answer(request)
        return content

    def _write_answer(self, spark: SparkSession, answer: Mapping[str, Any]) -> None:
        hadoop_files.write_text(spark, f"{self.request_folder}/{answer['id']}.json", json.dumps(answer))

    def _advance_all_tables(
        self,
        spark: SparkSession,
        condition: ErasureCondition,
        targets: tuple[ErasureTarget, ...],
        answer: dict[str, Any],
    ) -> None:
        """Advance every table as far as possible now; landing tables first, because the others wait for them."""
        answer["state"] = "running"
        waiting: list[str] = []
        for target in targets:
            state = answer["tables"].setdefault(str(target.table), {"rows": 0, "step": "erase"})
            step = _TableErasureStep(self, spark, condition, target, state, answer)
            while state["step"] != "done":
                try:
                    reason = step.advance_or_reason_to_wait()
                except _TooManyMatchesError as error:
                    answer |= {"state": "refused", "problems": [str(error)]}
                    return
                self._write_answer(spark, answer)
                if reason is not None:
                    waiting.append(f"{target.table}: {reason}")
                    break
        if not waiting:
            waiting = _begin_again_if_rows_came_back(spark, condition, targets, answer)
        answer["waiting"] = waiting
        answer["state"] = "running" if waiting else "done"
        if waiting and waiting != self._waiting:
            at = batch_accounts.iso_text(batch_accounts.utc_now())
            self.report.emit("erasure_waits", erasure=answer["id"], why=waiting, at=at)
        self._waiting = waiting

    def _write_erasure_record_to_lake(
        self, spark: SparkSession, request: EraseRequest, answer: Mapping[str, Any]
    ) -> None:
        """Write the record of the erasure to the lake; the content is the same if a killed job repeats it."""
        record = {
            **{key: answer[key] for key in ("id", "begun_at", "tables")},
            "by": request.by,
            "asked_at": request.asked_at,
            "done_at": batch_accounts.iso_text(batch_accounts.utc_now()),
            "condition_sha256": hashlib.sha256(request.where.encode()).hexdigest(),
            "not_covered": [*request.left_out, *answer["left_out"]],
        }
        if request.keep_condition:
            record["condition"] = request.where
        locations = (str(load_java_table(spark, name).location()) for name in answer["tables"])
        for place in {location.rstrip("/").rpartition("/")[0] for location in locations}:
            url = f"{place}/{RECORDS}/{self.job.job}/{request.id}.json"
            hadoop_files.write_text(spark, url, json.dumps(record, indent=2))
        rows = {name: state["rows"] for name, state in answer["tables"].items()}
        begun = datetime.fromisoformat(answer["begun_at"])
        times = batch_accounts.batch_time_fields(begun, batch_accounts.utc_now())
        # The whole record again: a job can write to its log, but not change what stands in it.
        self.report.emit("erased", erasure=request.id, rows=rows, record=record, **times)


def _new_answer(request: EraseRequest) -> dict[str, Any]:
    return {
        "id": request.id,
        "state": "new",
        "begun_at": batch_accounts.iso_text(batch_accounts.utc_now()),
        "tables": {},
        "left_out": [],
        "waiting": [],
        "wide": [],
        "problems": [],
    }


def _begin_again_if_rows_came_back(
    spark: SparkSession,
    condition: ErasureCondition,
    targets: tuple[ErasureTarget, ...],
    answer: dict[str, Any],
) -> list[str]:
    """Put all tables back to the first step if one has erased rows again, and return the reasons.

    A replay or a backfill that had read them may have committed before the mark, and a query may have derived others from them.
    """
    begun = datetime.fromisoformat(answer["begun_at"])
    reasons = [
        f"{target.table}: erased rows were written again, so they are erased again"
        for target in targets
        if target.count_matches(spark, condition, arrived_before=begun).matching_count
    ]
    if reasons:
        for state in answer["tables"].values():
            state["step"] = "erase"
            state.pop("mark", None)
    return reasons


class _TooManyMatchesError(Exception):
    """A condition matches more of a table than an erasure may."""


def _describe_too_many_matches(name: str, matching: int, total: int, share: float) -> str | None:
    """Return what is wrong if so many rows of a table match: a person has few, and a wrong condition often matches many."""
    if matching <= share * total:
        return None
    return f"{name}: {matching:,} of {total:,} rows, more than {100 * share:.4g}%"


def _answer_with_match_counts(
    spark: SparkSession,
    condition: ErasureCondition,
    targets: tuple[ErasureTarget, ...],
    answer: dict[str, Any],
    share: float,
) -> dict[str, Any]:
    """Count the matching rows, without a change."""
    tables: dict[str, Any] = {}
    try:
        for target in targets:
            matches = target.count_matches(spark, condition)
            tables[str(target.table)] = {
                "kind": target.kind,
                "rows": matches.rows,
                "dead_letters": matches.letters,
                "of": matches.total,
                "files": matches.files,
                "snapshots": spark.table(f"{target.table}.snapshots").count() if target.kept else 0,
            }
    except (CapturedException, Py4JJavaError) as error:
        # Such as a text that is no number, which shows only when rows are read.
        return {**answer, "state": "refused", "problems": [f"{target.table}: {first_line_of_error(error)}"]}
    counts = {name: (each["rows"] + each["dead_letters"], each["of"]) for name, each in tables.items()}
    wide = [
        line
        for name, each in counts.items()
        if (line := _describe_too_many_matches(name, *each, share)) is not None
    ]
    return {**answer, "state": "previewed", "tables": tables, "wide": wide}


@dataclass
class _TableErasureStep:
    """Next step for one table: ``erase``, ``again`` (records of batches in flight), ``past`` (history), ``done``."""

    erasure: ErasureTask
    spark: SparkSession
    condition: ErasureCondition
    target: ErasureTarget
    state: dict[str, Any]
    answer: dict[str, Any]

    def advance_or_reason_to_wait(self) -> str | None:
        """Do the step, and return the reason to wait; None if the next step is possible at once."""
        if self.state["step"] == "erase":
            reason = self._unerased_source(self.target.sources)
            if reason is not None:
                return reason
            self._erase_matches()
            planned = {
                url: Checkpoint(url).planned_uncommitted_batch(self.spark) for url in self.target.writers
            }
            # A batch that had read the old records may still commit them; the next batch has none of them.
            self.state["in_flight"] = {url: n for url, n in planned.items() if n is not None}
            self.state["step"] = "again"
        elif self.state["step"] == "again":
            for url, number in self.state["in_flight"].items():
                done = Checkpoint(url).last_committed_batch(self.spark)
                if done is None or done < number:
                    return f"{url} has yet to commit batch {number}"
            self._erase_matches()
            self.state["mark"] = remove_rest_and_commit_erasure_mark(
                self.spark, self.target.table, self.answer["id"]
            )
            self.state["step"] = "past" if self.target.kept else "done"
        elif self.state["step"] == "past":
            for url in self.target.readers:
                if not has_query_read_past(self.spark, self.target.table, url, self.state["mark"]):
                    return f"{url} has yet to read past snapshot {self.state['mark']}"
            self.state["files_deleted"] = expire_before_mark_and_count_files(
                self.spark, self.target.table, self.state["mark"]
            )
            self.state["step"] = "done"
        return None

    def _unerased_source(self, sources: tuple[tuple[Table, str], ...]) -> str | None:
        """Return the landing table that is not erased yet, or that may still bring erased records to this one; None for none."""
        for landing, checkpoint in sources:
            # The answer has the mark of this job's own table: in the table, it may be of a pass before, or have expired.
            own = self.answer["tables"].get(str(landing))
            result = (
                snapshot_id_of_newest_mark(self.spark, landing, self.answer["id"])
                if own is None
                else own.get("mark")
            )
            if result is None:
                return f"{landing} is not erased yet"
            if not has_query_read_past(self.spark, landing, checkpoint, result):
                return f"{checkpoint} has yet to read past snapshot {result} of {landing}"
        return None

    def _erase_matches(self) -> None:
        """Erase the rows that match now; count them before, in case the job is killed between the commit and its note.

        Raises
        ------
        _TooManyMatchesError
            More match than may: an answer that says that the erasure is under way may be forged, as the request may.
        """
        matches = self.target.count_matches(self.spark, self.condition)
        count = matches.matching_count
        wide = _describe_too_many_matches(
            str(self.target.table), count, matches.total, self.erasure.job.erase_share
        )
        if wide is not None:
            raise _TooManyMatchesError(wide)
        self.state["rows"] += max(0, self.state.pop("under_way", 0) - count)
        if count:
            self.state["under_way"] = count
            self.erasure._write_answer(self.spark, self.answer)
            self.target.erase_matching_rows(self.spark, self.condition, self.answer["id"])
            del self.state["under_way"]
            self.state["rows"] += count
            snapshot = self.target.table.load_java_table(self.spark).currentSnapshot()
            self.state.setdefault("snapshots", []).append(int(snapshot.snapshotId()))
