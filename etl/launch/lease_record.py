"""Record of the lease on a job's checkpoints, which runs of the job and commands write and read."""

from __future__ import annotations

import json
import socket
import uuid
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

FOLDER = "_millrace"
"""Folder beside the checkpoints of a job's queries; no query's name begins with an underscore."""

FILE = f"{FOLDER}/lease.json"

LIVE_SECONDS = 30.0
"""A lease that was not renewed for this long may be taken: the longest wait of a restart after a killed run."""

RENEW_SECONDS = 10.0


def new_record(run: str, boot: str, processes: Mapping[str, str]) -> dict[str, Any]:
    """Return the record of a holder that nobody had before.

    Parameters
    ----------
    run
        Name of the holder, for people.
    boot, processes
        Machine and start time by process id, so that a later run on the same machine sees that the holder has ended.
    """
    return {
        "version": 1,
        "holder": uuid.uuid4().hex,
        "run": run,
        "host": socket.gethostname(),
        "boot": boot,
        "processes": dict(processes),
        "generation": 1,
        "renewals": 0,
        "released": False,
    }


def next_generation(record: Mapping[str, Any]) -> int:
    """Return the generation of the lease that follows one with this record."""
    return int(record.get("generation", 0)) + 1


def read_tag_record_and_age(s3: Any, bucket: str, key: str) -> tuple[str, dict[str, Any], float]:
    """Return the lease's tag, its record (empty where it is damaged), and its age in seconds by S3's clock."""
    response = s3.get_object(Bucket=bucket, Key=key)
    date = response["ResponseMetadata"]["HTTPHeaders"].get("date")
    age = 0.0 if date is None else (parsedate_to_datetime(date) - response["LastModified"]).total_seconds()
    try:
        record = json.loads(response["Body"].read().decode(errors="replace"))
    except ValueError:
        record = {}
    return str(response["ETag"]), record if isinstance(record, dict) else {}, age


def describe_holder(record: Mapping[str, Any]) -> str:
    """Return the holder's run and host, for a message."""
    return f"run {record.get('run', '?')} on {record.get('host', '?')}"
