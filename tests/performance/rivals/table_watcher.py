"""A table seen from outside: its commits with the time at which each could be read, its rows, and the age of each."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.parquet as pq
from pyiceberg.catalog.sql import SqlCatalog

from tests.performance.rivals.rival_interface import NAMESPACE

_LOCATION = "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"


class Commit(NamedTuple):
    """A commit, by the time at which the catalog pointed to it, and the table's rows since."""

    at: float
    snapshot: int
    rows: int


class Watcher:
    """Looks at the catalog's pointer to a table every few milliseconds."""

    def __init__(self, database: Path, table: str) -> None:
        self.table, self.commits = table, [Commit(0.0, -1, 0)]
        self._database, self._location, self._ended = database, "", threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    @property
    def rows(self) -> int:
        return self.commits[-1].rows

    def close(self) -> None:
        self._ended.set()
        self._thread.join()

    def until_commit(self) -> None:
        """Wait for the next commit, however soon."""
        now = len(self.commits)
        until = time.monotonic() + 60
        while len(self.commits) == now and time.monotonic() < until:
            time.sleep(0.001)

    def _watch(self) -> None:
        with closing(sqlite3.connect(self._database, timeout=30)) as database:
            while not self._ended.wait(0.005):
                row = database.execute(_LOCATION, (NAMESPACE, self.table)).fetchone()
                if row and row[0] != self._location:
                    self._location, at = row[0], time.time()
                    self._note(
                        json.loads(Path(row[0].removeprefix("file:").replace("//", "/")).read_bytes()), at
                    )

    def _note(self, metadata: dict, at: float) -> None:
        current = metadata.get("current-snapshot-id")
        if current in (None, -1, self.commits[-1].snapshot):
            return
        [summary] = [each["summary"] for each in metadata["snapshots"] if each["snapshot-id"] == current]
        self.commits.append(Commit(at, current, int(summary["total-records"])))


def ages(catalog: SqlCatalog, table: str, commits: list[Commit], numbers: range) -> np.ndarray:
    """Seconds from the sending of each record of a range to the commit with which it could be read."""
    held = catalog.load_table(f"{NAMESPACE}.{table}")
    visible = {commit.snapshot: commit.at for commit in commits}
    found: list[np.ndarray] = []
    for snapshot in held.metadata.snapshots:
        if snapshot.snapshot_id not in visible:
            continue
        for manifest in snapshot.manifests(held.io):
            if manifest.added_snapshot_id != snapshot.snapshot_id:
                continue
            for entry in manifest.fetch_manifest_entry(held.io, discard_deleted=True):
                if entry.snapshot_id == snapshot.snapshot_id:
                    path = entry.data_file.file_path.removeprefix("file:")
                    rows = pq.read_table(path, columns=["id", "sent"])
                    number, sent = rows["id"].to_numpy(), rows["sent"].to_numpy()
                    mine = (number >= numbers.start) & (number < numbers.stop)
                    found.append(visible[snapshot.snapshot_id] - sent[mine] / 1000)
    return np.concatenate(found)


def ids(catalog: SqlCatalog, table: str) -> np.ndarray:
    """Numbers of all rows."""
    rows = catalog.load_table(f"{NAMESPACE}.{table}").scan(selected_fields=("id",)).to_arrow()
    return rows["id"].to_numpy()
