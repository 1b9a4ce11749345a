"""Checkpoints of deployed jobs: their content, and how to archive them or copy them to another name.

Their layout is ``docs/design/checkpoints.md#manifest``; every change holds the job's lease
(``docs/design/run.md#one-writer``), so that no run starts in the meantime.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from millrace.config.aws.pagination import list_all
from millrace.config.aws.resource_names import Names
from millrace.etl.checkpoints.manifest import FORMAT, Manifest, parse_manifest
from millrace.etl.launch.lease_record import (
    FILE,
    FOLDER,
    LIVE_SECONDS,
    RENEW_SECONDS,
    describe_holder,
    new_record,
    next_generation,
    read_tag_record_and_age,
)
from millrace.etl.launch.typed_json import versioned_json
from millrace.lifecycle.account.deployed_environment import (
    MISSING_OBJECT,
    ignoring_not_found_errors,
    split_s3_url,
)

_LAST = "offsets"
"""Folder that is copied and deleted last: a checkpoint counts as started while it has offsets."""


class CheckpointRequestError(RuntimeError):
    """A request on a checkpoint that is not possible; the message says why."""


@dataclass(frozen=True)
class CheckpointContents:
    """Content of a query's checkpoint.

    Attributes
    ----------
    planned, committed
        Last batch that was planned, and that was committed; None where there is none.
    committed_at
        Time of that commit.
    positions
        Position at which each source continues, as the connector writes it; None for one without data yet.
    manifest
        Manifest of its writer; None if its owner deleted it.
    start
        Requested start of the query, until it has started.
    damaged
        Files that are incomplete or overwritten: URL and error of each.
    """

    query: str
    planned: int | None
    committed: int | None
    committed_at: datetime | None
    positions: tuple[Any, ...]
    manifest: Manifest | None
    start: str | None
    damaged: tuple[str, ...] = ()


@dataclass
class JobCheckpoints:
    """The checkpoints of one job.

    Parameters
    ----------
    job
        A job of the environment.
    """

    s3: Any
    names: Names
    job: str
    _renewed: float = field(default=0.0, repr=False)
    _lease: dict[str, Any] = field(default_factory=dict, repr=False)
    _etag: str = field(default="", repr=False)

    @property
    def bucket(self) -> str:
        """Bucket of the checkpoints."""
        return split_s3_url(self.names.checkpoints_url(self.job))[0]

    @property
    def prefix(self) -> str:
        """Prefix of the checkpoints in their bucket."""
        return split_s3_url(self.names.checkpoints_url(self.job))[1]

    def manifest_text(self, query: str) -> str | None:
        """Return the text of a query's manifest; None without one, or without its checkpoint.

        Invalid bytes become U+FFFD, so that its readers refuse it.
        """
        text = self._read_bytes(self._side_file_key(query, "manifest")) if self.has_batches(query) else None
        return None if text is None else text.decode(errors="replace")

    def has_batches(self, query: str) -> bool:
        """Check that a batch of a query was ever planned."""
        return has_batches_at(self.s3, f"s3://{self.bucket}/{self.prefix}/{query}")

    def read_contents(self, query: str) -> CheckpointContents:
        """Read the content of a query's checkpoint."""
        planned, committed = (self._last_batch_id(query, folder) for folder in (_LAST, "commits"))
        at: datetime | None = None
        positions: tuple[Any, ...] = ()
        damaged: list[str] = []
        if committed is not None:
            at = self.s3.head_object(Bucket=self.bucket, Key=f"{self.prefix}/{query}/commits/{committed}")[
                "LastModified"
            ]
            log = f"{self.prefix}/{query}/{_LAST}/{committed}"
            positions = self._read_parsed(log, _positions_in_log, damaged) or ()
        manifest = self._read_parsed(self._side_file_key(query, "manifest"), parse_manifest, damaged)
        start = None
        if planned is None:
            start = self._read_parsed(
                self._side_file_key(query, "start"),
                lambda text: str(_parse_json_object(text)["start"]),
                damaged,
            )
        return CheckpointContents(query, planned, committed, at, positions, manifest, start, tuple(damaged))

    def _read_parsed(self, key: str, parse: Callable[[str], Any], damaged: list[str]) -> Any:
        """Read an object; return None where there is none, or where it is damaged, which is noted."""
        text = self._read_bytes(key)
        try:
            return None if text is None else parse(text.decode())
        except (KeyError, ValueError) as error:
            damaged.append(f"s3://{self.bucket}/{key}: {error}")
            return None

    def current_writer(self) -> str | None:
        """Return the current writer of these checkpoints; None without one."""
        lease = self._read_etag_lease_and_age()
        if lease is None or lease[1].get("released") or lease[2] > LIVE_SECONDS + 1:
            return None
        return describe_holder(lease[1])

    @contextmanager
    def holding_lease(self, what: str) -> Iterator[None]:
        """Hold the lease, so that no run starts.

        Raises
        ------
        CheckpointRequestError
            A run holds it.
        """
        lease = self._read_etag_lease_and_age()
        if (holder := self.current_writer()) is not None:
            raise CheckpointRequestError(
                f"{holder} is writing the checkpoints of {self.job}; stop it first (`millrace stop --env "
                f"{self.names.environment.name} {self.job}`), or, if it was killed, wait {LIVE_SECONDS:.0f} s"
            )
        # No process ids: a run that finds this lease cannot tell that this command has ended, and waits.
        self._lease = new_record(what, "", {})
        self._lease["generation"] = 1 if lease is None else next_generation(lease[1])
        self._write_lease_or_raise({"IfNoneMatch": "*"} if lease is None else {"IfMatch": lease[0]})
        try:
            yield
        finally:
            self._lease["released"] = True
            self._write_lease_or_raise({"IfMatch": self._etag})

    def archive_checkpoint_and_return_url(self, query: str, *, start: str | None, moment: datetime) -> str:
        """Archive a query's checkpoint below ``_millrace/old``, so that it starts from the beginning.

        Parameters
        ----------
        start
            New start of its sources; None for that of its settings.
        moment
            Time for the archive's name.

        Returns
        -------
        str
            URL of the archive.
        """
        folder = f"{self.prefix}/{FOLDER}/old/{query}/{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        self._copy_folder(f"{self.prefix}/{query}", folder)
        self._copy_object_if_exists(self._side_file_key(query, "manifest"), f"{folder}/manifest.json")
        # The note exists before the checkpoint is deleted, and is read only after that.
        if start is None:
            self.s3.delete_object(Bucket=self.bucket, Key=self._side_file_key(query, "start"))
        else:
            self._write_object(
                self._side_file_key(query, "start"), json.dumps({"version": 1, "start": start})
            )
        self._delete_checkpoint(query)
        return f"s3://{self.bucket}/{folder}"

    def copy_checkpoint(self, query: str, to: JobCheckpoints, name: str, *, same_sink: bool) -> None:
        """Copy a checkpoint to another name, so that another query continues from it.

        Parameters
        ----------
        to
            Checkpoints of the job with the other query.
        same_sink
            Whether the other query writes to the same sink; the sink of any other is not checked.

        Raises
        ------
        CheckpointRequestError
            There is nothing to copy, it cannot be read, or the name is in use.
        """
        if not self.has_batches(query):
            raise CheckpointRequestError(
                f"{self.job}/{query} has no checkpoint in {self.names.checkpoints_url(self.job)}"
            )
        if to.has_batches(name):
            raise CheckpointRequestError(
                f"{to.job}/{name} already has a checkpoint; archive it with `millrace checkpoint reset`, or choose "
                "another name"
            )
        manifest = self.read_undamaged_contents(query).manifest
        to._delete_checkpoint(name)  # left by an interrupted copy
        self._copy_folder(f"{self.prefix}/{query}", f"{to.prefix}/{name}")
        if manifest is not None:
            manifest = replace(manifest, query=name)
            if not same_sink:
                manifest = replace(manifest, sinks={}, servers={}, routes={}, types={})
            to._write_object(to._side_file_key(name, "manifest"), versioned_json(manifest, FORMAT))
        self._copy_object_if_exists(self._side_file_key(query, "sources"), to._side_file_key(name, "sources"))

    def read_undamaged_contents(self, query: str) -> CheckpointContents:
        """Read the content of a query's checkpoint, and refuse one with a file that cannot be read.

        Raises
        ------
        CheckpointRequestError
            There is one; the message names each.
        """
        contents = self.read_contents(query)
        if contents.damaged:
            raise CheckpointRequestError(
                f"{self.job}/{query} is damaged, so no query can continue from it: {'; '.join(contents.damaged)}"
            )
        return contents

    # ---- objects ----

    def _side_file_key(self, query: str, kind: str) -> str:
        return f"{self.prefix}/{FOLDER}/{query}.{kind}.json"

    def _read_bytes(self, key: str) -> bytes | None:
        with ignoring_not_found_errors(*MISSING_OBJECT):
            return bytes(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        return None

    def _write_object(self, key: str, text: str) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=text.encode())

    def _object_keys(self, prefix: str) -> list[str]:
        objects = list_all(self.s3, "list_objects_v2", "Contents", Bucket=self.bucket, Prefix=f"{prefix}/")
        return sorted(
            (each["Key"] for each in objects), key=lambda key: (key.startswith(f"{prefix}/{_LAST}/"), key)
        )

    def _last_batch_id(self, query: str, log: str) -> int | None:
        names = (key.rpartition("/")[2] for key in self._object_keys(f"{self.prefix}/{query}/{log}"))
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _copy_folder(self, source: str, target: str) -> None:
        for key in self._object_keys(source):
            self._renew_lease()
            self._copy_object(key, f"{target}/{key.removeprefix(f'{source}/')}")

    def _copy_object(self, key: str, target: str) -> None:
        self.s3.copy_object(Bucket=self.bucket, Key=target, CopySource={"Bucket": self.bucket, "Key": key})

    def _copy_object_if_exists(self, key: str, target: str) -> None:
        """Copy an object as it is, whatever its bytes are."""
        with ignoring_not_found_errors(*MISSING_OBJECT):
            self._copy_object(key, target)

    def _delete_checkpoint(self, query: str) -> None:
        """Delete a checkpoint, its identity first: no job continues from one that is deleted in part."""
        first = f"{self.prefix}/{query}/metadata"
        keys = self._object_keys(f"{self.prefix}/{query}")
        for key in sorted(keys, key=lambda key: key != first):
            self._renew_lease()
            self.s3.delete_object(Bucket=self.bucket, Key=key)
        self.s3.delete_object(Bucket=self.bucket, Key=self._side_file_key(query, "manifest"))

    # ---- the lease ----

    def _read_etag_lease_and_age(self) -> tuple[str, dict[str, Any], float] | None:
        with ignoring_not_found_errors(*MISSING_OBJECT):
            return read_tag_record_and_age(self.s3, self.bucket, f"{self.prefix}/{FILE}")
        return None

    def _renew_lease(self) -> None:
        """Renew the lease during a long copy; do nothing without one, as for the copy's target in the same job."""
        if self._lease and time.monotonic() > self._renewed + RENEW_SECONDS:
            self._lease["renewals"] += 1
            self._write_lease_or_raise({"IfMatch": self._etag})

    def _write_lease_or_raise(self, condition: Mapping[str, str]) -> None:
        begun = time.monotonic()
        try:
            done = self.s3.put_object(
                Bucket=self.bucket,
                Key=f"{self.prefix}/{FILE}",
                Body=json.dumps(self._lease).encode(),
                **condition,
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict"):
                raise CheckpointRequestError(
                    f"a run of {self.job} has just begun and writes the checkpoints; stop it first (`millrace stop "
                    f"--env {self.names.environment.name} {self.job}`)"
                ) from error
            raise
        self._etag, self._renewed = str(done["ETag"]), begun


def has_batches_at(s3: Any, checkpoint: str) -> bool:
    """Check that a batch was ever planned on the checkpoint at a URL; before a first deployment there is not even its bucket."""
    bucket, prefix = split_s3_url(checkpoint)
    with ignoring_not_found_errors("NoSuchBucket"):
        objects = list_all(s3, "list_objects_v2", "Contents", Bucket=bucket, Prefix=f"{prefix}/{_LAST}/")
        return any(each["Key"].rpartition("/")[2].isdecimal() for each in objects)
    return False


def _positions_in_log(log: str) -> tuple[Any, ...]:
    """Return the positions in an entry of Spark's offset log: a version, a line of metadata, a line for each source."""
    lines = log.splitlines()
    if len(lines) < 3:
        raise ValueError(f"the entry of the offset log is incomplete: it ends after {len(lines)} lines")
    return tuple(None if line == "-" else json.loads(line) for line in lines[2:])


def _parse_json_object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value
