"""Checkpoints of deployed jobs: what they hold, put aside, copied, carried to another name.

Their layout is ``docs/adr/0311-checkpoint-manifests.md``; whoever changes one holds the job's lease
(``docs/adr/0310-one-writer.md``), so that no run begins meanwhile.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from millrace.config.names import Names
from millrace.lifecycle.deployed import split_url

FOLDER = "_millrace"
LIVE_SECONDS = 30.0
"""As the core's lease has it (``etl/job/lease.py``; a test holds the two together)."""

_RENEW_SECONDS = 10.0
_LAST = "offsets"
"""Copied and deleted last: a checkpoint counts as begun as long as it has some."""


class CheckpointError(RuntimeError):
    """What was asked of a checkpoint cannot be; says why."""


@dataclass(frozen=True)
class CheckpointContents:
    """What a query's checkpoint holds.

    Attributes
    ----------
    planned, committed
        Last batch that was planned, and that was committed; None where there is none.
    committed_at
        When that was.
    positions
        Where each source continues, as the connector writes it; None for one without data yet.
    manifest
        Of who wrote it; None where a release before manifests did.
    start
        Where the query was told to begin, while it has not begun.
    damaged
        Files that are cut short or overwritten: URL and what is wrong with each.
    """

    query: str
    planned: int | None
    committed: int | None
    committed_at: datetime | None
    positions: tuple[Any, ...]
    manifest: Mapping[str, Any] | None
    start: str | None
    damaged: tuple[str, ...] = ()


@dataclass
class Checkpoints:
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
        """Where they lie."""
        return split_url(self.names.checkpoints(self.job))[0]

    @property
    def prefix(self) -> str:
        """Below which they lie."""
        return split_url(self.names.checkpoints(self.job))[1]

    def manifest(self, query: str) -> str | None:
        """Text of a query's manifest; None where there is none or no checkpoint that it is of.

        Bytes that are no text stand as U+FFFD, so that whoever reads it refuses it.
        """
        found = self._bytes(self._beside(query, "manifest")) if self.begun(query) else None
        return None if found is None else found.decode(errors="replace")

    def begun(self, query: str) -> bool:
        """Whether a batch of a query was ever planned."""
        return self._last(query, _LAST) is not None

    def read_contents(self, query: str) -> CheckpointContents:
        """Read what a query's checkpoint holds."""
        planned, committed = (self._last(query, folder) for folder in (_LAST, "commits"))
        at: datetime | None = None
        positions: tuple[Any, ...] = ()
        damaged: list[str] = []
        if committed is not None:
            at = self.s3.head_object(Bucket=self.bucket, Key=f"{self.prefix}/{query}/commits/{committed}")[
                "LastModified"
            ]
            log = f"{self.prefix}/{query}/{_LAST}/{committed}"
            positions = self._parsed(log, _positions, damaged) or ()
        manifest = self._parsed(self._beside(query, "manifest"), _manifest, damaged)
        start = None
        if planned is None:
            start = self._parsed(
                self._beside(query, "start"), lambda text: str(_object(text)["start"]), damaged
            )
        return CheckpointContents(query, planned, committed, at, positions, manifest, start, tuple(damaged))

    def _parsed(self, key: str, parse: Callable[[str], Any], damaged: list[str]) -> Any:
        """Read an object; None where there is none, or where it is damaged, which is noted."""
        found = self._bytes(key)
        try:
            return None if found is None else parse(found.decode())
        except (KeyError, ValueError) as error:
            damaged.append(f"s3://{self.bucket}/{key}: {error}")
            return None

    def holder(self) -> str | None:
        """Who writes these checkpoints now; None where nobody does."""
        found = self._look()
        if found is None or found[1].get("released") or found[2] > LIVE_SECONDS + 1:
            return None
        return f"run {found[1].get('run', '?')} on {found[1].get('host', '?')}"

    @contextmanager
    def holding_lease(self, what: str) -> Iterator[None]:
        """Hold the lease, so that no run begins.

        Raises
        ------
        CheckpointError
            A run holds it.
        """
        found = self._look()
        holder = self.holder()
        if holder is not None:
            raise CheckpointError(
                f"{holder} is writing the checkpoints of {self.job}; stop it first (`millrace stop --env "
                f"{self.names.environment.name} {self.job}`), or, if it was killed, wait {LIVE_SECONDS:.0f} s"
            )
        self._lease = {
            "version": 1,
            "holder": uuid.uuid4().hex,
            "run": what,
            "host": socket.gethostname(),
            "boot": "",
            "processes": {str(os.getpid()): ""},
            "generation": 1 if found is None else int(found[1].get("generation", 0)) + 1,
            "renewals": 0,
            "released": False,
        }
        self._put({"IfNoneMatch": "*"} if found is None else {"IfMatch": found[0]})
        try:
            yield
        finally:
            self._lease["released"] = True
            self._put({"IfMatch": self._etag})

    def archive(self, query: str, *, start: str | None, moment: datetime) -> str:
        """Let a query start from the beginning; what it had is kept below ``_millrace/old``.

        Parameters
        ----------
        start
            Where its sources begin then; None as its settings say.
        moment
            For the name of what is kept.

        Returns
        -------
        str
            URL of what was kept.
        """
        kept = f"{self.prefix}/{FOLDER}/old/{query}/{moment.astimezone(UTC):%Y%m%dT%H%M%SZ}"
        self._copy(f"{self.prefix}/{query}", kept)
        self._copy_if_there(self._beside(query, "manifest"), f"{kept}/manifest.json")
        # The note is there before the checkpoint is gone, and is not read before.
        if start is None:
            self.s3.delete_object(Bucket=self.bucket, Key=self._beside(query, "start"))
        else:
            self._write(self._beside(query, "start"), json.dumps({"version": 1, "start": start}))
        self._delete(query)
        return f"s3://{self.bucket}/{kept}"

    def copy(self, query: str, to: Checkpoints, name: str, *, same_sink: bool) -> None:
        """Copy a checkpoint to another name, from which a query of it continues.

        Parameters
        ----------
        to
            Of the job that has it.
        same_sink
            Whether the other query writes where this one wrote; one that does not may write anywhere.

        Raises
        ------
        CheckpointError
            There is nothing to copy, or something that cannot be read, or one of that name.
        """
        if not self.begun(query):
            raise CheckpointError(
                f"{self.job}/{query} has no checkpoint in {self.names.checkpoints(self.job)}"
            )
        if to.begun(name):
            raise CheckpointError(
                f"{to.job}/{name} already has a checkpoint; archive it with `millrace checkpoint reset`, or choose "
                "another name"
            )
        self.check_whole(query)
        to._delete(name)  # what an interrupted copy has left
        self._copy(f"{self.prefix}/{query}", f"{to.prefix}/{name}")
        if held := self.read_contents(query).manifest:
            manifest = {**held, "query": name}
            if not same_sink:
                manifest["sinks"] = {}
            to._write(to._beside(name, "manifest"), json.dumps(manifest, indent=1, sort_keys=True))
        self._copy_if_there(self._beside(query, "sources"), to._beside(name, "sources"))

    def check_whole(self, query: str) -> None:
        """Refuse a checkpoint with a file that cannot be read.

        Raises
        ------
        CheckpointError
            There is one; names each.
        """
        if damaged := self.read_contents(query).damaged:
            raise CheckpointError(
                f"{self.job}/{query} is damaged, so no query can continue from it: {'; '.join(damaged)}"
            )

    # ---- objects ----

    def _beside(self, query: str, what: str) -> str:
        return f"{self.prefix}/{FOLDER}/{query}.{what}.json"

    def _bytes(self, key: str) -> bytes | None:
        try:
            return bytes(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise

    def _write(self, key: str, text: str) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=text.encode())

    def _keys(self, prefix: str) -> list[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=f"{prefix}/")
        found = [item["Key"] for page in pages for item in page.get("Contents", ())]
        return sorted(found, key=lambda key: (key.startswith(f"{prefix}/{_LAST}/"), key))

    def _last(self, query: str, log: str) -> int | None:
        names = (key.rpartition("/")[2] for key in self._keys(f"{self.prefix}/{query}/{log}"))
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def _copy(self, source: str, target: str) -> None:
        for key in self._keys(source):
            self._renew()
            self._copy_object(key, f"{target}/{key.removeprefix(f'{source}/')}")

    def _copy_object(self, key: str, target: str) -> None:
        self.s3.copy_object(Bucket=self.bucket, Key=target, CopySource={"Bucket": self.bucket, "Key": key})

    def _copy_if_there(self, key: str, target: str) -> None:
        """Copy an object as it is, whatever its bytes are."""
        try:
            self._copy_object(key, target)
        except ClientError as error:
            if error.response["Error"]["Code"] not in ("NoSuchKey", "404"):
                raise

    def _delete(self, query: str) -> None:
        """Delete a checkpoint: one that is deleted in part has lost its identity first, and no job continues from it."""
        first = f"{self.prefix}/{query}/metadata"
        keys = self._keys(f"{self.prefix}/{query}")
        for key in sorted(keys, key=lambda key: key != first):
            self._renew()
            self.s3.delete_object(Bucket=self.bucket, Key=key)
        self.s3.delete_object(Bucket=self.bucket, Key=self._beside(query, "manifest"))

    # ---- the lease ----

    def _look(self) -> tuple[str, dict[str, Any], float] | None:
        try:
            found = self.s3.get_object(Bucket=self.bucket, Key=f"{self.prefix}/{FOLDER}/lease.json")
        except ClientError as error:
            if error.response["Error"]["Code"] in ("NoSuchKey", "404"):
                return None
            raise
        said = datetime.strptime(
            found["ResponseMetadata"]["HTTPHeaders"]["date"], "%a, %d %b %Y %H:%M:%S %Z"
        ).replace(tzinfo=UTC)
        age = (said - found["LastModified"]).total_seconds()
        return str(found["ETag"]), _lease(found["Body"].read()), age

    def _renew(self) -> None:
        """Keep the lease while there is much to copy; without one, as for the copy's target in the same job, nothing."""
        if self._lease and time.monotonic() > self._renewed + _RENEW_SECONDS:
            self._lease["renewals"] += 1
            self._put({"IfMatch": self._etag})

    def _put(self, condition: Mapping[str, str]) -> None:
        begun = time.monotonic()
        try:
            done = self.s3.put_object(
                Bucket=self.bucket,
                Key=f"{self.prefix}/{FOLDER}/lease.json",
                Body=json.dumps(self._lease).encode(),
                **condition,
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in ("PreconditionFailed", "ConditionalRequestConflict"):
                raise CheckpointError(
                    f"a run of {self.job} has just begun and writes the checkpoints; stop it first (`millrace stop "
                    f"--env {self.names.environment.name} {self.job}`)"
                ) from error
            raise
        self._etag, self._renewed = str(done["ETag"]), begun


def _positions(log: str) -> tuple[Any, ...]:
    """Positions in an entry of Spark's offset log: a version, a line of metadata, a line for each source."""
    lines = log.splitlines()
    if len(lines) < 3:
        raise ValueError(f"it is incomplete: it ends after {len(lines)} lines")
    return tuple(None if line == "-" else json.loads(line) for line in lines[2:])


def _object(text: str) -> dict[str, Any]:
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError("not an object")
    return found


_MANIFEST = {"engine", "spark", "core", "kind", "legs"}
_LEG = {"connector", "of", "topics"}


def _manifest(text: str) -> dict[str, Any]:
    """Read a manifest that has all that is told of one."""
    found = _object(text)
    if lacking := sorted(_MANIFEST - found.keys()):
        raise ValueError(f"it is not a manifest: it lacks {', '.join(lacking)}")
    legs = found["legs"]
    if not isinstance(legs, list) or not all(isinstance(leg, dict) and leg.keys() >= _LEG for leg in legs):
        raise ValueError(f"it is not a manifest: an entry of its legs lacks one of {', '.join(sorted(_LEG))}")
    return found


def _lease(body: bytes) -> dict[str, Any]:
    """Read a lease's record; an empty one where it is damaged, whose age counts anyway (as ``etl/job/lease.py`` has it)."""
    try:
        return _object(body.decode(errors="replace"))
    except ValueError:
        return {}
