"""When the batches of a run of a job on local Spark were committed."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millrace.sandbox.programs.run_launch_document_locally import LocalJob


def commit_times(job: LocalJob) -> list[datetime]:
    """Return the commit times of the batches that landed or derived anything."""
    return [
        datetime.fromisoformat(event["committed_at"])
        for event in job.events()
        if event["event"] == "batch" and (event.get("landed") or event.get("written"))
    ]
