"""Lease for the checkpoints of a job: only the run that holds it may write them.

``docs/design/run.md#one-writer`` describes what this fences and what it does not.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ..launch.lease_record import (
    FILE,
    LIVE_SECONDS,
    RENEW_SECONDS,
    describe_holder,
    new_record,
    next_generation,
    read_tag_record_and_age,
)
from ..record.errors import StartError
from ..services import aws_clients

LOOK_SECONDS = 1.0
"""Seconds between two checks of a lease that another run holds."""

MARGIN_SECONDS = 5.0
"""The holder gives the lease up this many seconds before others may take it."""

_TIMEOUTS = (3.0, 4.0)
"""Connect and read timeouts in seconds: a call that hangs must not outlast the lease."""

OnWait = Callable[[Mapping[str, Any]], None]


def lease_of_checkpoints(
    checkpoints: str, run: str, processes: tuple[int, ...], on_wait: OnWait
) -> Lease | None:
    """Return the lease of a checkpoint prefix; None for a local folder, which no deployed job and no sandbox uses.

    Parameters
    ----------
    checkpoints
        URL or path.
    run
        Name of the holder, for people: the engine's name of the run.
    processes
        Ids of the processes that write: the holder is alive while one of them is.
    on_wait
        Called with the holder's record if this run has to wait for it.

    Raises
    ------
    StartError
        The file system cannot exclude a second writer.
    """
    parts = urlparse(checkpoints)
    if parts.scheme in ("", "file"):
        return None
    if parts.scheme not in ("s3", "s3a"):
        raise StartError(
            f"checkpoints {checkpoints}: the value must be an s3:// or s3a:// URL or a local folder"
        )
    key = f"{parts.path.strip('/')}/{FILE}"
    return Lease(parts.netloc, key, run, processes, on_wait)


@dataclass
class Lease:
    """Right to write the checkpoints below a prefix: an object in S3 that is renewed every ten seconds by conditional writes.

    The conditions are ``If-None-Match`` and ``If-Match``: S3 decides which of two writers was first. The object's age is
    measured by S3's clock, and by the local clock only while this run waits.
    """

    bucket: str
    key: str
    run: str
    processes: tuple[int, ...]
    on_wait: OnWait
    _client: Any = field(default=None, repr=False)
    _condition: tuple[str, str] = ("", "")
    _etag: str = ""
    _record: dict[str, Any] = field(default_factory=dict)
    _renewed: float = 0.0
    _gone: str | None = "it was never taken"
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Take the lease, or wait for it, for little more than :data:`LIVE_SECONDS`.

        Raises
        ------
        StartError
            A live run holds it.
        """
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self._client = aws_clients.make_client("s3", region, None, timeouts=_TIMEOUTS)
        # Not every engine's boto3 knows the parameter; S3 knows the header.
        self._client.meta.events.register("before-call.s3.PutObject", self._add_condition_header)
        ticks = {
            str(pid): begun for pid in self.processes if (begun := _process_start_ticks(pid)) is not None
        }
        self._record = new_record(self.run, _machine_id(), ticks)
        if not self._call_until_answered(lambda: self._write_record_if(("If-None-Match", "*"))):
            self._wait_and_take_over()
        self._gone = None
        self._thread = threading.Thread(target=self._renew_until_released, name="millrace-lease", daemon=True)
        self._thread.start()

    def loss_reason(self) -> str | None:
        """Return the reason why the lease is no longer held; None while it is. Uses the clock, not S3."""
        if self._gone is None and _monotonic_seconds() > self._renewed + LIVE_SECONDS - MARGIN_SECONDS:
            self._gone = f"it could not be renewed for {_monotonic_seconds() - self._renewed:.0f} s"
        return self._gone

    def release(self) -> None:
        """Release the lease, so that the next run need not wait; no effect if it is already released or lost."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * sum(_TIMEOUTS))
        if self.loss_reason() is not None:
            return
        self._record["released"] = True
        # If this write fails, the next run waits.
        self._call_or_none(lambda: self._write_record_if(("If-Match", self._etag)))
        self._gone = "it was given back"

    # ---- taking over another run's lease ----

    def _wait_and_take_over(self) -> None:
        seen, looked, said = "", _monotonic_seconds(), False
        while True:
            etag, record, age = self._call_until_answered(self._read_tag_record_and_age)
            if record.get("holder") == self._record["holder"]:
                self._etag = etag  # this run's after all: only the answer was lost
                return
            if seen and etag != seen and not record.get("released"):
                raise StartError(
                    f"s3://{self.bucket}/{self.key} is held by {describe_holder(record)}, which is alive: one run at a "
                    "time writes a job's checkpoints; stop that one first (`millrace stop JOB --env ENV`)"
                )
            free = record.get("released") or _is_holder_known_dead(record)
            # Its age in whole seconds, or the time that this run has watched it without a renewal.
            if free or age > LIVE_SECONDS + 1 or _monotonic_seconds() - looked > LIVE_SECONDS:
                self._record["generation"] = next_generation(record)
                if self._call_until_answered(lambda etag=etag: self._write_record_if(("If-Match", etag))):  # type: ignore[misc]  # of this turn
                    return
            elif not said:
                self.on_wait(
                    {"holder": record.get("run"), "host": record.get("host"), "most_seconds": LIVE_SECONDS}
                )
                said = True
            seen = seen or etag
            time.sleep(LOOK_SECONDS)

    def _read_tag_record_and_age(self) -> tuple[str, dict[str, Any], float]:
        return read_tag_record_and_age(self._client, self.bucket, self.key)

    # ---- renewal ----

    def _renew_until_released(self) -> None:
        wait = RENEW_SECONDS
        while not self._end.wait(wait):
            self._record["renewals"] += 1
            renewed = self._call_or_none(lambda: self._write_record_if(("If-Match", self._etag)))
            wait = 1.0 if renewed is None else RENEW_SECONDS
            if renewed is False and not self._object_is_still_ours():
                self._gone = self._gone or "another run has taken it"
            if self.loss_reason() is not None:
                return

    def _object_is_still_ours(self) -> bool:
        """Check that this run's object is still there: a renewal may have arrived although its answer did not."""
        lease = self._call_or_none(self._read_tag_record_and_age)
        if lease is None:
            return True  # unknown; the clock decides
        if lease[1].get("holder") == self._record["holder"]:
            self._etag = lease[0]
            return True
        return False

    def _write_record_if(self, condition: tuple[str, str]) -> bool:
        """Write the object under a condition; return False if the condition failed."""
        from botocore.exceptions import ClientError

        begun = _monotonic_seconds()
        self._condition = condition
        try:
            done = self._client.put_object(
                Bucket=self.bucket, Key=self.key, Body=json.dumps(self._record).encode()
            )
        except ClientError as error:
            # 409: concurrent writes. S3 asks for a retry, but the other writer may have been first.
            if aws_clients.error_code(error) in (
                "PreconditionFailed",
                "ConditionalRequestConflict",
                "412",
                "409",
            ):
                return False
            raise
        self._etag, self._renewed = str(done["ETag"]), begun
        return True

    def _add_condition_header(self, params: dict[str, Any], **_: Any) -> None:
        params["headers"][self._condition[0]] = self._condition[1]

    def _call_until_answered(self, call: Callable[[], Any]) -> Any:
        """Call S3 at the start: wait while it is busy, and raise an error if it refuses."""
        return aws_clients.call_at_start(
            f"the lease s3://{self.bucket}/{self.key}", None, lambda _client: call()
        )

    def _call_or_none(self, call: Callable[[], Any]) -> Any:
        """Call S3, and return None if it does not answer."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return call()
        except (BotoCoreError, ClientError):
            return None


def _is_holder_known_dead(record: Mapping[str, Any]) -> bool:
    """Check that the holder ran on this machine since its last boot and all its processes have ended."""
    processes = record.get("processes")
    if (
        not processes
        or not isinstance(processes, dict)
        or record.get("boot") != _machine_id()
        or not _machine_id()
    ):
        return False
    return not any(_process_start_ticks(int(pid)) == begun for pid, begun in processes.items())


def _machine_id() -> str:
    """Identify this boot and process namespace of this machine; empty if the system does not show it."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _process_start_ticks(pid: int) -> str | None:
    """Return the start time of a process in kernel ticks, which tells a reused id apart; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def _monotonic_seconds() -> float:
    """Return seconds from a clock that also runs while the machine sleeps, if the system has one."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
