"""Check of a job's checkpoints at start by their manifests; a start that would misread a checkpoint is refused."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql.types import StructType

from ..checkpoints import manifest, manifest_changes
from ..checkpoints.checkpoint import Checkpoint
from ..checkpoints.manifest import Manifest, ManifestError
from ..checkpoints.manifest_changes import ManifestChange
from ..checkpoints.stateful_operators_in_plan import describe_stateful_operators
from ..commits.commit_batch_once import RUN
from ..commits.snapshot_history import commits_set_back
from ..formats.schema_files import read_job_file
from ..launch import typed_json
from ..launch.lease_record import FOLDER
from ..launch.parse_start_position import start_time
from ..launch.settings import DeriveSettings, JobSettings, QuerySettings
from ..record import hadoop_files
from ..record.envelope import datetime_of_micros
from ..record.errors import StartError
from ..record.job_run_context import JobRun
from ..record.ready_query import ReadyQuery
from ..sinks.delivery.keyed_rows import type_in_identity
from ..sources import recreated_source_check
from ..sources.recreated_source_check import StreamIdentities


class CheckpointCheck:
    """Manifests of a job's queries."""

    def __init__(self, run: JobRun) -> None:
        self._run, self._spark, self._job, self._report = run, run.spark, run.job, run.report
        self._origins: dict[str, StreamIdentities] = {}
        self._folder = f"{run.job.checkpoints}/{FOLDER}"
        self._old: dict[str, Manifest | None] = {}
        self._new: dict[str, Manifest] = {}

    def check_all_and_apply_resets(self) -> JobSettings:
        """Compare every query with the checkpoint that it would continue from, before anything is read.

        Returns
        -------
        JobSettings
            Settings of the job, with another start for queries that are to start at a time
            (``millrace checkpoint reset``).

        Raises
        ------
        StartError
            A checkpoint was written by another query, connector or layout of state, or has lost its id; or a
            topic or stream was made again. The message names each of them, the change and the remedy.
        """
        file_names = set(hadoop_files.list_names(self._spark, self._folder))
        wrong: list[str] = []
        queries = []
        for query in self._job.queries:
            try:
                queries.append(self._check_query_and_apply_reset(query, file_names))
            except StartError as error:
                wrong.append(str(error))
        if wrong:
            raise StartError("\n".join(wrong))
        return dataclasses.replace(self._job, queries=tuple(queries))

    def refuse_other_state_or_types(self, query: DeriveSettings, rows: DataFrame, result: StructType) -> None:
        """Compare a query's plan with what the checkpoint was written by, before a table is made or altered for its results.

        Parameters
        ----------
        result
            Columns of the transform's result.

        Raises
        ------
        StartError
            Its state has another layout, or a column of its key or order another type.
        """
        name, columns = query.name, {*query.key, query.latest_order}
        new, old = self._new[name], self._old[name]
        if new.state is not None:
            new = dataclasses.replace(new, operators=describe_stateful_operators(rows))
        types = {f.name: type_in_identity(f.dataType) for f in result.fields if f.name in columns}
        new = self._new[name] = dataclasses.replace(new, types=types)
        if old is not None:
            self._refuse_incompatible_changes(name, manifest_changes.find_changes(old, new))

    def query_that_updates_manifest(self, query: ReadyQuery) -> ReadyQuery:
        """Return a built query that keeps its checkpoint's manifest current.

        A checkpoint without a manifest gets one now. The manifest of another version is replaced after this version's
        first batch, so a version that completes no batch leaves no trace.
        """
        origin = self._origins.get(query.name)
        if origin is not None:
            handle = HandlerWithFirstBatchAction(query.handle, before=origin.check_before_first_batch)
            query = dataclasses.replace(query, check=partial(origin, query.check), handle=handle)
        new, old = self._new[query.name], self._old[query.name]
        if old is None:
            self._write_manifest(new)
            return query
        if new.state is not None and old.state is not None:
            # The checkpoint keeps these two; so the next version reports the difference again.
            state = dataclasses.replace(
                new.state, partitions=old.state.partitions, provider=old.state.provider
            )
            new = dataclasses.replace(new, state=state)
        if old == new:
            return query
        return dataclasses.replace(
            query, handle=HandlerWithFirstBatchAction(query.handle, after=partial(self._write_manifest, new))
        )

    def _check_query_and_apply_reset(self, query: QuerySettings, file_names: set[str]) -> QuerySettings:
        location = f"{self._job.checkpoints}/{query.name}"
        self._new[query.name] = new = manifest.make_manifest(
            self._job,
            query,
            spark=self._spark.version,
            conf=lambda key: self._spark.conf.get(key, None),
            schema_text=lambda path: read_job_file(self._spark, path),
        )
        begun = Checkpoint(location).has_planned_batch(self._spark)
        if begun and "metadata" not in hadoop_files.list_names(self._spark, location):
            raise StartError(
                f"query {query.name}: the checkpoint {location} lacks its file `metadata`: without it Spark would "
                "give the query a new id, and sinks would take repeated batches for new ones; restore the file, or "
                + manifest_changes.advice_for_changes(self._job.environment, self._job.job, query.name)
            )
        self._old[query.name] = old = (
            self._read_manifest(query.name)
            if begun and _manifest_file_name(query.name) in file_names
            else None
        )
        differences = () if old is None else manifest_changes.find_changes(old, new)
        self._refuse_incompatible_changes(query.name, differences)
        self._check_source_identities(query, begun)
        if begun:
            self._refuse_tables_set_back(query, Checkpoint(location), old)
        if not begun:
            return (
                self._query_starting_at_reset_time(query)
                if _reset_start_file_name(query.name) in file_names
                else query
            )
        if old is None:
            self._report.emit("adopted", query=query.name, checkpoint=location)
        for change in differences:
            self._report.emit("changed", query=query.name, change=str(change))
        return query

    def _refuse_tables_set_back(
        self, query: QuerySettings, checkpoint: Checkpoint, old: Manifest | None
    ) -> None:
        """Refuse a checkpoint whose rows a table no longer has: an earlier snapshot was restored, or the table was dropped."""
        run, created = checkpoint.id_and_creation_time(self._spark)
        landings: tuple[str, ...] = ()
        keyed, read = False, set[int]()
        if isinstance(query, DeriveSettings):
            landings, keyed = query.landing_tables, bool(query.key)
            offsets = checkpoint.committed_source_offsets(self._spark) or ()
            read = {int(offset["snapshot_id"]) for offset in offsets if offset}

        def is_of_checkpoint(commit: Row, table: str) -> bool:
            if table in landings:
                return commit["snapshot_id"] in read
            owner = commit["summary"].get(RUN)
            if owner is None:  # a merge names no run
                return keyed and commit["at"] >= created * 1_000_000
            return bool(owner.partition("/")[0] == run)

        written = set() if old is None else {each.partition(" by ")[0] for each in old.sinks.values()}
        for name in sorted(manifest.lake_tables_of_query(query)):
            table = self._run.table(name)
            if table.exists(self._spark):
                commits = commits_set_back(self._spark, table)
                lost = [each["at"] for each in commits if is_of_checkpoint(each, name)]
                if not lost:
                    continue
                what = f"was set back to an earlier snapshot, without the query's rows of {datetime_of_micros(max(lost)):%Y-%m-%d %H:%M:%S}Z; restore that snapshot, or"
            elif f"iceberg {name}" in written:
                what = "was dropped; restore the table, or"
            else:
                continue
            raise StartError(
                f"query {query.name}: table {name} {what} "
                + manifest_changes.advice_for_changes(self._job.environment, self._job.job, query.name)
            )

    def _check_source_identities(self, query: QuerySettings, begun: bool) -> None:
        url = f"{self._folder}/{query.name}.sources.json"
        identities = recreated_source_check.stream_identities(self._run, query, url, begun=begun)
        if identities is not None:
            identities.check_at_start()
            self._origins[query.name] = identities

    def _refuse_incompatible_changes(self, query: str, differences: tuple[ManifestChange, ...]) -> None:
        wrong = manifest_changes.incompatible_changes(differences)
        if wrong:
            raise StartError(
                f"query {query} cannot continue from its checkpoint {self._job.checkpoints}/{query}: "
                + "; ".join(map(str, wrong))
                + "; "
                + manifest_changes.advice_for_changes(self._job.environment, self._job.job, query, wrong)
            )

    def _read_manifest(self, query: str) -> Manifest:
        url = f"{self._folder}/{_manifest_file_name(query)}"
        try:
            return manifest.parse_manifest(hadoop_files.read_text(self._spark, url))
        except (ManifestError, OSError) as error:
            # A checkpoint without a manifest would be continued unchecked.
            raise StartError(
                f"query {query}: the checkpoint's manifest {url} cannot be read: {error}; restore it, or delete it if "
                "the query's sources, sink and state settings have not changed since its last run: the checkpoint is "
                "then continued as it is"
            ) from error

    def _query_starting_at_reset_time(self, query: QuerySettings) -> QuerySettings:
        """Return a query whose checkpoint was reset to a time: its sources start there, not where the document says."""
        url = f"{self._folder}/{_reset_start_file_name(query.name)}"
        try:
            at = str(json.loads(hadoop_files.read_text(self._spark, url))["start"])
            moment = start_time(at)
        except (KeyError, OSError, TypeError, ValueError) as error:
            again = f"`millrace checkpoint reset {self._job.job} {query.name} --env {self._job.environment} --at TIME`"
            raise StartError(
                f"query {query.name}: {url}, which holds its start time after a reset, cannot be read: {error}; write it again with {again}"
            ) from error
        if isinstance(query, DeriveSettings):
            raise StartError(
                f"query {query.name}: {url} sets a start time, but a derive query always starts with all landed "
                "records; delete the file"
            )
        self._report.emit("begins_at", query=query.name, at=at if moment is None else moment.isoformat())
        routes: Any = tuple(
            dataclasses.replace(r, source=_source_starting_at(r.source, at)) for r in query.routes
        )
        return dataclasses.replace(query, routes=routes)

    def _write_manifest(self, new: Manifest) -> None:
        url = f"{self._folder}/{_manifest_file_name(new.query)}"
        hadoop_files.write_text(self._spark, url, typed_json.versioned_json(new, manifest.FORMAT))
        # A query that is built again after a failure is compared with it.
        self._old[new.query] = new


class HandlerWithFirstBatchAction:
    """Handler that runs an action before or after its first batch."""

    def __init__(
        self,
        handle: Any,
        *,
        before: Callable[[], None] | None = None,
        after: Callable[[], None] | None = None,
    ) -> None:
        self.handle, self._before, self._after = handle, before, after

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write a batch."""
        if self._before is not None:
            self._before()
            self._before = None
        self.handle(batch, batch_id)
        if self._after is not None:
            self._after()
            self._after = None


def _manifest_file_name(query: str) -> str:
    return f"{query}.manifest.json"


def _reset_start_file_name(query: str) -> str:
    return f"{query}.start.json"


def _source_starting_at(source: Any, start: str) -> Any:
    reading = getattr(source, "reading", None)
    if reading is not None:
        # Start offsets would take precedence over the time.
        return dataclasses.replace(
            source, start=start, reading=dataclasses.replace(reading, start_offsets=None)
        )
    return dataclasses.replace(source, start=start)
