"""One writer for the checkpoints of a job: who holds the lease runs, and nobody else.

``docs/adr/0310-one-writer.md`` says what this fences and what it does not.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from ..record.errors import StartError
from ..services import aws

FOLDER = "_millrace"
"""Beside the checkpoints of a job's queries; no query's name begins with an underscore."""

LIVE_SECONDS = 30.0
"""A lease that was not renewed for so long may be taken: the longest that a restart waits for one that was killed."""

RENEW_SECONDS = 10.0

LOOK_SECONDS = 1.0
"""Between two looks at a lease that somebody else holds."""

MARGIN_SECONDS = 5.0
"""So much before the others may take it, its holder gives it up."""

_TIMEOUTS = (3.0, 4.0)
"""To connect and to read, in seconds: a call that hangs must not outlast the lease."""

Told = Callable[[Mapping[str, Any]], None]


def of(checkpoints: str, run: str, processes: tuple[int, ...], told: Told) -> Lease | None:
    """The lease of a prefix of checkpoints; None for a folder of this machine, which no deployed job and no sandbox has.

    Parameters
    ----------
    checkpoints
        URL or path.
    run
        Who takes it, for people: the engine's name of the run.
    processes
        Ids of the processes that write: while one of them lives, its holder does.
    told
        Called with who holds it when it has to be waited for.

    Raises
    ------
    StartError
        A file system that cannot exclude a second writer.
    """
    parts = urlparse(checkpoints)
    if parts.scheme in ("", "file"):
        return None
    if parts.scheme not in ("s3", "s3a"):
        raise StartError(
            f"checkpoints {checkpoints}: the value must be an s3:// or s3a:// URL or a local folder"
        )
    key = f"{parts.path.strip('/')}/{FOLDER}/lease.json"
    return Lease(parts.netloc, key, run, processes, told)


@dataclass
class Lease:
    """The right to write the checkpoints below a prefix: an object that is written under conditions (``If-None-Match``, ``If-Match``), and again every ten seconds.

    S3 decides who of two was first. The object's age is counted by S3's own clock, and by ours only while we look on.
    """

    bucket: str
    key: str
    run: str
    processes: tuple[int, ...]
    told: Told
    _client: Any = field(default=None, repr=False)
    _condition: tuple[str, str] = ("", "")
    _etag: str = ""
    _record: dict[str, Any] = field(default_factory=dict)
    _renewed: float = 0.0
    _gone: str | None = "it was never taken"
    _end: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def acquire(self) -> None:
        """Take it, or wait for it, for at most :data:`LIVE_SECONDS` and a little.

        Raises
        ------
        StartError
            Somebody holds it who is alive.
        """
        region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        self._client = aws.client("s3", region, None, timeouts=_TIMEOUTS)
        # The versions of boto3 that the engines ship do not all know the parameter; S3 knows the header.
        self._client.meta.events.register("before-call.s3.PutObject", self._add_condition)
        self._record = _record(self.run, self.processes)
        if not self._patiently(lambda: self._put(("If-None-Match", "*"))):
            self._take_over()
        self._gone = None
        self._thread = threading.Thread(target=self._keep, name="millrace-lease", daemon=True)
        self._thread.start()

    def lost(self) -> str | None:
        """Why it is not held any more; None while it is. Asks the clock, not S3."""
        if self._gone is None and _now() > self._renewed + LIVE_SECONDS - MARGIN_SECONDS:
            self._gone = f"it could not be renewed for {_now() - self._renewed:.0f} s"
        return self._gone

    def release(self) -> None:
        """Give it back, so that the next run need not wait; once it is given back or lost, nothing happens."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(timeout=2 * sum(_TIMEOUTS))
        if self.lost() is not None:
            return
        self._record["released"] = True
        # If it does not arrive, the next run waits.
        self._once(lambda: self._put(("If-Match", self._etag)))
        self._gone = "it was given back"

    # ---- taking it from somebody else ----

    def _take_over(self) -> None:
        seen, looked, said = "", _now(), False
        while True:
            etag, record, age = self._patiently(self._look)
            if record.get("holder") == self._record["holder"]:
                self._etag = etag  # ours after all: the answer was lost
                return
            if seen and etag != seen and not record.get("released"):
                raise StartError(_refusal(f"s3://{self.bucket}/{self.key}", record))
            free = record.get("released") or _known_dead(record)
            # Its age in whole seconds, or as long as we have looked on without seeing it renewed.
            if free or age > LIVE_SECONDS + 1 or _now() - looked > LIVE_SECONDS:
                self._record["generation"] = int(record.get("generation", 0)) + 1
                if self._patiently(lambda etag=etag: self._put(("If-Match", etag))):  # type: ignore[misc]  # of this turn
                    return
            elif not said:
                self.told(
                    {"holder": record.get("run"), "host": record.get("host"), "most_seconds": LIVE_SECONDS}
                )
                said = True
            seen = seen or etag
            time.sleep(LOOK_SECONDS)

    def _look(self) -> tuple[str, dict[str, Any], float]:
        """The object's tag, what it says, and its age by S3's clock."""
        found = self._client.get_object(Bucket=self.bucket, Key=self.key)
        said = found["ResponseMetadata"]["HTTPHeaders"].get("date")
        age = 0.0 if said is None else (parsedate_to_datetime(said) - found["LastModified"]).total_seconds()
        return str(found["ETag"]), _parsed(found["Body"].read().decode(errors="replace")), age

    # ---- keeping it ----

    def _keep(self) -> None:
        wait = RENEW_SECONDS
        while not self._end.wait(wait):
            self._record["renewals"] += 1
            renewed = self._once(lambda: self._put(("If-Match", self._etag)))
            wait = 1.0 if renewed is None else RENEW_SECONDS
            if renewed is False and not self._still_ours():
                self._gone = self._gone or "another run has taken it"
            if self.lost() is not None:
                return

    def _still_ours(self) -> bool:
        """Whether the object that is there is ours: of a renewal that arrived and whose answer did not."""
        found = self._once(self._look)
        if found is None:
            return True  # unknown; the clock decides
        if found[1].get("holder") == self._record["holder"]:
            self._etag = found[0]
            return True
        return False

    def _put(self, condition: tuple[str, str]) -> bool:
        """Write the object under a condition; whether it held."""
        from botocore.exceptions import ClientError

        begun = _now()
        self._condition = condition
        try:
            done = self._client.put_object(
                Bucket=self.bucket, Key=self.key, Body=json.dumps(self._record).encode()
            )
        except ClientError as error:
            # 409: two at once; S3 asks for another try, and the other one may have been first.
            if aws.code_of(error) in ("PreconditionFailed", "ConditionalRequestConflict", "412", "409"):
                return False
            raise
        self._etag, self._renewed = str(done["ETag"]), begun
        return True

    def _add_condition(self, params: dict[str, Any], **_: Any) -> None:
        params["headers"][self._condition[0]] = self._condition[1]

    def _patiently(self, call: Callable[[], Any]) -> Any:
        """Call S3 at the start: wait while it is busy, and say it once where it refuses."""
        return aws.ask_at_start(f"the lease s3://{self.bucket}/{self.key}", None, lambda _client: call())

    def _once(self, call: Callable[[], Any]) -> Any:
        """Call S3 and take no answer for None."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return call()
        except (BotoCoreError, ClientError):
            return None


def _record(run: str, processes: tuple[int, ...]) -> dict[str, Any]:
    return {
        "version": 1,
        "holder": uuid.uuid4().hex,
        "run": run,
        "host": socket.gethostname(),
        "boot": _machine(),
        "processes": {str(pid): begun for pid in processes if (begun := _begun(pid)) is not None},
        "generation": 1,
        "renewals": 0,
        "released": False,
    }


def _parsed(text: str) -> dict[str, Any]:
    """A lease's record; an empty one where somebody else's bytes stand in its place."""
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _refusal(where: str, record: Mapping[str, Any]) -> str:
    return (
        f"{where} is held by run {record.get('run', '?')} on {record.get('host', '?')}, which is alive: one run at a "
        "time writes a job's checkpoints; stop that one first (`millrace stop JOB --env ENV`)"
    )


def _known_dead(record: Mapping[str, Any]) -> bool:
    """Whether the holder ran on this machine, since its last boot, and none of its processes is left."""
    held = record.get("processes")
    if not held or not isinstance(held, dict) or record.get("boot") != _machine() or not _machine():
        return False
    return not any(_begun(int(pid)) == begun for pid, begun in held.items())


def _machine() -> str:
    """Name this boot of this machine, as far as its process ids reach; empty where the system does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""


def _begun(pid: int) -> str | None:
    """When a process began, in the kernel's ticks, so that an id that was used again is told apart; None if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in ("Z", "X") else fields[19]


def _now() -> float:
    """Seconds that also pass while the machine sleeps, where the system has such a clock."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
