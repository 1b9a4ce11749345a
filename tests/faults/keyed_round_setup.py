"""Test stage with few keys and a query that keeps the last record of each key."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.sandbox.payloads.records_from_nycflights import RecordToSend
from millrace.sandbox.programs.child_processes import wait_until
from tests.faults import lake_rows, small_job_documents
from tests.faults.record_sender import Feed
from tests.faults.round_setup import STALL_SECONDS, Stage

KEYS = 50


class KeyedFeed(Feed):
    """Sends each key in turn."""

    def backlog(self, count: int) -> None:
        """Send as fast as it goes."""
        self.producer.send(_events(self.sent, count), sent=lambda _: None)
        self.sent += count


def _events(first: int, count: int) -> Iterator[RecordToSend]:
    for n in range(first, first + count):
        yield RecordToSend(str(n % KEYS).encode(), json.dumps({"n": n, "text": ""}).encode())


@dataclass
class KeyedStage(Stage):
    """A job with a land and a derive query; what is complete has the last record of each key."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.feed = KeyedFeed(self.feed.producer, self.choose)

    def _job_settings(self, schema: Path) -> dict[str, Any]:
        queries = small_job_documents.queries(
            "latest",
            self._source(),
            schema,
            lambda what: f"faults.{what}",
            trigger_seconds=self.trigger_seconds,
        )
        return small_job_documents.settings("faults", queries, f"{self.home}/checkpoints", self.bootstrap)

    def batches(self) -> list[dict[str, Any]]:
        """Lines of the accounts of the land query."""
        return [event for event in super().batches() if event["query"] == "land"]

    def until_complete(self) -> None:
        """Wait for all that was sent, and for the last record of each key."""
        super().until_complete()
        last = {n % KEYS: n for n in range(self.feed.sent)}
        wanted = {str(key): n for key, n in last.items() if n % 7 != 6}
        wait_until(
            lambda: dict(lake_rows.read(self.catalog, "faults.out", "key", "n")) == wanted,
            seconds=STALL_SECONDS, what="the last of each key", runs=self.live, poll_seconds=1.0,
        )  # fmt: skip
