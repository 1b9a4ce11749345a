"""Erasure of a person's records: asked for by a file beside the job's checkpoints, done by the running job beside its queries.

A landed row that matches stays as an empty one of stage ``erased``: with its identity it keeps the record from landing again,
and with nothing else. Rows of other tables go. Then each table's lists of files are rewritten, a commit without rows
(the *mark*) ends its past, and when every query that derives from it has read past the mark, all before it is expired.

Each call does what can be done now, so a job that was killed continues where it was (``docs/adr/0212-erasure.md``).
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
from ..launch.settings import JobSettings
from ..record import batch_accounts, hadoop_files
from ..record.batch_accounts import Reporter
from ..record.tables import Table
from .erase_condition import Condition, first_line
from .erase_history import expire_before_mark, has_read_past, mark_erasure, newest_mark, snapshots
from .erase_targets import Target, targets

FOLDER = "_millrace/erase"
"""Below the job's checkpoints: the request, and an answer for each id."""

RECORDS = "_erasures"
"""Beside the folders of the job's tables: what was erased, a file each, by job and id."""


@dataclass(frozen=True)
class EraseRequest:
    """What is asked for.

    Attributes
    ----------
    id
        Of the erasure, the same for all jobs.
    where
        Condition, SQL.
    apply
        Whether it is done; else it is only looked at.
    by, asked_at
        Who asked, and when, as the command knows it.
    keep_condition
        Whether the record has the condition beside its digest.
    left_out
        What the command knows that it does not reach, in sentences.
    """

    id: str
    where: str
    apply: bool
    by: str
    asked_at: str
    keep_condition: bool
    left_out: tuple[str, ...]


@dataclass
class Erasure:
    """Does what is asked for, a step at a time; a task of the job's maintenance.

    Parameters
    ----------
    job
        Whose tables.
    report
        Told what was erased and what is waited for.
    """

    job: JobSettings
    report: Reporter
    every: timedelta = timedelta(seconds=30)
    _waiting: list[str] = field(default_factory=list, repr=False)

    @property
    def name(self) -> str:
        """See :class:`etl.maintenance.table_services.TableTask`."""
        return "erase"

    @property
    def folder(self) -> str:
        """Where the request lies, as ``request.json``, and answers, each by its id."""
        return f"{self.job.checkpoints}/{FOLDER}"

    def __call__(self, spark: SparkSession) -> None:
        """Look for a request, and do of it what can be done now.

        Raises
        ------
        OSError, Py4JJavaError, CapturedException
            A step failed; it is done again with the next call.
        """
        try:
            text = hadoop_files.read_text(spark, f"{self.folder}/request.json")
            request: EraseRequest = typed_json.read(EraseRequest, json.loads(text), "request")
        except FileNotFoundError:
            return
        except ValueError as error:
            raise OSError(f"{self.folder}/request.json: {error}") from error
        answer = self._answer(spark, request)
        if answer["state"] in ("previewed", "refused"):
            if not request.apply:
                return
            answer = _new(request)
        if answer["state"] != "done":
            condition = Condition(spark, request.where)
            found, left_out, problems = targets(spark, self.job, condition)
            answer["left_out"] = left_out
            if problems:
                answer |= {"state": "refused", "problems": problems}
            elif request.apply:
                self._erase(spark, condition, found, answer)
            else:
                answer = _preview(spark, condition, found, answer)
            self._write(spark, answer)
        if answer["state"] == "done":
            # The record first: what is asked for is done as long as the request is there.
            self._keep(spark, request, answer)
            hadoop_files.delete(spark, f"{self.folder}/request.json")

    def _answer(self, spark: SparkSession, request: EraseRequest) -> dict[str, Any]:
        """How far an erasure is, by what was written last."""
        try:
            found: dict[str, Any] = json.loads(
                hadoop_files.read_text(spark, f"{self.folder}/{request.id}.json")
            )
        except (FileNotFoundError, ValueError):
            return _new(request)
        return found

    def _write(self, spark: SparkSession, answer: Mapping[str, Any]) -> None:
        hadoop_files.write_text(spark, f"{self.folder}/{answer['id']}.json", json.dumps(answer))

    def _erase(
        self, spark: SparkSession, condition: Condition, found: tuple[Target, ...], answer: dict[str, Any]
    ) -> None:
        """Bring every table on as far as it can be now; landing tables first, for the others wait for them."""
        answer["state"] = "running"
        waiting: list[str] = []
        for target in found:
            state = answer["tables"].setdefault(str(target.table), {"rows": 0, "step": "erase"})
            step = _Step(self, spark, condition, target, state, answer)
            while state["step"] != "done":
                reason = step.advance()
                self._write(spark, answer)
                if reason is not None:
                    waiting.append(f"{target.table}: {reason}")
                    break
        answer["waiting"] = waiting
        answer["state"] = "running" if waiting else "done"
        if waiting and waiting != self._waiting:
            at = batch_accounts.iso_text(batch_accounts.now())
            self.report.emit("erasure_waits", erasure=answer["id"], why=waiting, at=at)
        self._waiting = waiting

    def _keep(self, spark: SparkSession, request: EraseRequest, answer: Mapping[str, Any]) -> None:
        """Write down in the lake what was done; the same again where the job was killed in between."""
        record = {
            **{key: answer[key] for key in ("id", "begun_at", "tables")},
            "by": request.by,
            "asked_at": request.asked_at,
            "done_at": batch_accounts.iso_text(batch_accounts.now()),
            "condition_sha256": hashlib.sha256(request.where.encode()).hexdigest(),
            "not_covered": [*request.left_out, *answer["left_out"]],
        }
        if request.keep_condition:
            record["condition"] = request.where
        for place in {self._place(spark, name) for name in answer["tables"]}:
            url = f"{place}/{RECORDS}/{self.job.job}/{request.id}.json"
            hadoop_files.write_text(spark, url, json.dumps(record, indent=2))
        rows = {name: state["rows"] for name, state in answer["tables"].items()}
        begun = datetime.fromisoformat(answer["begun_at"])
        self.report.emit(
            "erased", erasure=request.id, rows=rows, **batch_accounts.batch_times(begun, batch_accounts.now())
        )

    def _place(self, spark: SparkSession, name: str) -> str:
        """The folder that a table's own lies in."""
        catalog, rest = name.split(".", 1)
        location = str(Table.of(catalog, rest).metadata(spark).location())
        return location.rstrip("/").rpartition("/")[0]


def _new(request: EraseRequest) -> dict[str, Any]:
    return {
        "id": request.id,
        "state": "new",
        "begun_at": batch_accounts.iso_text(batch_accounts.now()),
        "tables": {},
        "left_out": [],
        "waiting": [],
        "problems": [],
    }


def _preview(
    spark: SparkSession, condition: Condition, found: tuple[Target, ...], answer: dict[str, Any]
) -> dict[str, Any]:
    """Count what matches, changing nothing."""
    tables: dict[str, Any] = {}
    try:
        for target in found:
            matches = target.matches(spark, condition)
            tables[str(target.table)] = {
                "kind": target.kind,
                "rows": matches.rows,
                "dead_letters": matches.letters,
                "of": matches.total,
                "files": matches.files,
                "snapshots": snapshots(spark, target.table) if target.kept else 0,
            }
    except (CapturedException, Py4JJavaError) as error:
        # Such as a text that is no number, which shows when rows are read.
        return {**answer, "state": "refused", "problems": [f"{target.table}: {first_line(error)}"]}
    return {**answer, "state": "previewed", "tables": tables}


@dataclass
class _Step:
    """What is next for one table: ``erase``, ``again`` (what batches in flight brought), ``past`` (history), ``done``."""

    erasure: Erasure
    spark: SparkSession
    condition: Condition
    target: Target
    state: dict[str, Any]
    answer: dict[str, Any]

    def advance(self) -> str | None:
        """Do it, and return what must be waited for; None where the next one can be done at once."""
        if self.state["step"] == "erase":
            reason = self._behind(self.target.sources)
            if reason is not None:
                return reason
            self._remove()
            planned = {url: Checkpoint(url).planned(self.spark) for url in self.target.writers}
            # A batch that had read records before may commit them after; the next one has none from before.
            self.state["in_flight"] = {url: n for url, n in planned.items() if n is not None}
            self.state["step"] = "again"
        elif self.state["step"] == "again":
            for url, number in self.state["in_flight"].items():
                done = Checkpoint(url).committed(self.spark)
                if done is None or done < number:
                    return f"{url} has yet to commit batch {number}"
            self._remove()
            self.state["mark"] = mark_erasure(self.spark, self.target.table, self.answer["id"])
            self.state["step"] = "past" if self.target.kept else "done"
        elif self.state["step"] == "past":
            for url in self.target.readers:
                if not has_read_past(self.spark, self.target.table, url, self.state["mark"]):
                    return f"{url} has yet to read past snapshot {self.state['mark']}"
            self.state["files_deleted"] = expire_before_mark(
                self.spark, self.target.table, self.state["mark"]
            )
            self.state["step"] = "done"
        return None

    def _behind(self, sources: tuple[tuple[Table, str], ...]) -> str | None:
        """Which landing table is not erased yet, or may still bring erased records to this one; None for none."""
        for landing, checkpoint in sources:
            # Of a table of this job's the mark is noted, too: a job that stood still finds it forgotten in the table.
            noted = self.answer["tables"].get(str(landing), {}).get("mark")
            found = newest_mark(self.spark, landing, self.answer["id"]) or noted
            if found is None:
                return f"{landing} is not erased yet"
            if not has_read_past(self.spark, landing, checkpoint, found):
                return f"{checkpoint} has yet to read past snapshot {found} of {landing}"
        return None

    def _remove(self) -> None:
        """Erase what matches now; counted before, for a job that is killed between the commit and its note."""
        count = self.target.matches(self.spark, self.condition).matching
        self.state["rows"] += max(0, self.state.pop("under_way", 0) - count)
        if count:
            self.state["under_way"] = count
            self.erasure._write(self.spark, self.answer)
            self.target.erase(self.spark, self.condition, self.answer["id"])
            del self.state["under_way"]
            self.state["rows"] += count
            snapshot = self.target.table.metadata(self.spark).currentSnapshot()
            self.state.setdefault("snapshots", []).append(int(snapshot.snapshotId()))
