"""A database under random transactions, the events that a connector makes of its log, and what its table holds in the end.

Transactions overlap, their changes stand in the log where they were made, and a connector reads them as they commit. It begins with a
snapshot, makes another while transactions are open, and repeats events after a restart. ``rows`` is a dict that knows no log.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.spark import change_events
from tests.spark.source_batches import EPOCH

DDL = "id BIGINT NOT NULL, code STRING NOT NULL, n INT"
IDS, PARTITIONS = 9, 3

Row = dict[str, Any]
Change = tuple[str, Row | None, Row | None, int]
"""Operation (``move`` changes the key), the row before and after, and the place in the log."""

Sent = tuple[int | None, bytes | None, list[str]]
"""Key, payload, and the names of the headers."""


@dataclass
class Ledger:
    """Changes of one table.

    Attributes
    ----------
    connector
        ``postgresql``, ``mysql``, ``mysql-gtid``, ``sqlserver``, ``oracle``, ``oracle-xstream`` or ``dms``.
    truncates
        Whether the table is truncated; not when ledgers share a table.
    records
        What was sent, in the shape of the sources' rows.
    log_of_changes
        Each change as it committed: id, time in the event, and the row after it.
    """

    seed: int
    connector: str
    truncates: bool = True
    rows: dict[int, Row] = field(default_factory=dict)
    records: list[tuple[Any, ...]] = field(default_factory=list)
    log_of_changes: list[tuple[int, datetime, Row | None]] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.choose = random.Random(self.seed)
        self.log = self.sent = self.codes = 0
        self.commit: int | None = None
        self.first = self.seed * 2 * IDS
        self.offsets = [5000, 100, 0]
        self.emitted: list[Sent] = []
        for number in range(self.first, self.first + 4):
            self.rows[number] = self._new(number)
        self._snapshot()
        self.log_of_changes += [(number, self._at(self.log), row) for number, row in self.rows.items()]

    def play(self, steps: int) -> Ledger:
        """Make and send changes."""
        open_: dict[int, tuple[dict[int, Row], list[Change]]] = {}
        for step in range(steps):
            fate, slot = self.choose.random(), self.choose.randrange(2)
            if slot not in open_:
                open_[slot] = ({}, [])
            if fate < 0.6:
                self._change(slot, open_)
            elif fate < 0.9:
                self._commit(open_.pop(slot))
            elif fate < 0.95 and self.emitted:
                self._restart()
            elif self.connector != "dms" and step > steps // 3 and not self.done["second snapshot"]:
                self.done["second snapshot"] += 1
                self.done["open in it"] += sum(bool(each[1]) for each in open_.values())
                self._snapshot()
            elif self.truncates and self.done["truncate"] < 4:
                for other in list(open_):
                    self._commit(open_.pop(other))
                self._truncate()
        for each in open_.values():
            self._commit(each)
        return self

    def _new(self, number: int) -> Row:
        self.codes += 1
        return {"id": number, "code": f"c{self.seed}-{self.codes}", "n": self.codes}

    def _change(self, slot: int, open_: dict[int, tuple[dict[int, Row], list[Change]]]) -> None:
        mine, changes = open_[slot]
        # A row is locked by the transaction that changes it, until it ends.
        locked = {
            row["id"]
            for other, each in open_.items()
            if other != slot
            for c in each[1]
            for row in c[1:3]
            if row
        }
        seen = {**self.rows, **mine}
        number = self.first + self.choose.randrange(IDS)
        if number in locked:
            return
        before, self.log = seen.get(number), self.log + 1
        if before is None:
            mine[number] = self._new(number)
            changes.append(("insert", None, mine[number], self.log))
        elif (to := self.first + self.choose.randrange(2 * IDS)) not in locked | seen.keys() and self._moves:
            mine[number], mine[to] = None, {**before, "id": to}  # type: ignore[assignment]
            changes.append(("move", before, mine[to], self.log))
        elif self.choose.random() < 0.25:
            mine[number] = None  # type: ignore[assignment]
            changes.append(("delete", before, None, self.log))
        else:
            after = {
                **before,
                "n": self.codes,
                **({"code": f"x{self.seed}-{self.log}"} if self.choose.random() < 0.3 else {}),
            }
            mine[number] = after
            changes.append(("update", before, after, self.log))

    def _commit(self, transaction: tuple[dict[int, Row], list[Change]]) -> None:
        mine, changes = transaction
        for number, row in mine.items():
            if row is None:
                self.rows.pop(number, None)
            else:
                self.rows[number] = row
        self.log += 1
        for place, change in enumerate(changes):
            operation, before, after, log = change
            at = self._at(log)
            parts: list[Change] = [change]
            if operation == "move":
                parts = [("delete", before, None, log), ("insert", None, after, log)]
            for part in parts:
                self._send(*part, place, moves=operation == "move")
                changed = part[2] or part[1]
                assert changed is not None
                self.log_of_changes.append((changed["id"], at, part[2]))
            self.done[operation] += 1
        if changes:
            self.commit = self.log

    def _truncate(self) -> None:
        self.log += 2
        at = self._at(self.log - 1)
        self._send("truncate", None, None, self.log - 1, 0)
        self.log_of_changes += [(number, at, None) for number in self.rows]
        self.commit, self.rows = self.log, {}
        self.done["truncate"] += 1

    def _snapshot(self) -> None:
        self.log += 1
        for number in sorted(self.rows):
            self._send("snapshot", None, self.rows[number], self.log, 0)

    def _restart(self) -> None:
        again = self.emitted[-self.choose.randrange(1, 13) :]
        # It ends once more before it has caught up; not where, for equal times or between servers, the later record is the last.
        by_arrival = self.connector in ("dms", "mysql-gtid", "oracle-xstream")
        most = len(again) if by_arrival else self.choose.randrange(1, len(again) + 1)
        for event in again[:most]:
            self._put(*event)
        self.done["restart"] += 1

    def _send(
        self,
        operation: str,
        before: Row | None,
        after: Row | None,
        place: int,
        nth: int,
        *,
        moves: bool = False,
    ) -> None:
        number = (after or before or {"id": None})["id"]
        payload = json.dumps(self._event(operation, before, after, place, nth)).encode()
        names = [f"__debezium.{'new' if operation == 'delete' else 'old'}key"] if moves else []
        events: list[Sent] = [(number, payload, names)]
        if operation == "delete" and self.connector != "dms":
            events.append((number, None, []))
        for event in events:
            # A connector repeats what it read of the log, and no snapshot that it has finished.
            if operation == "snapshot":
                self.emitted = []
            else:
                self.emitted.append(event)
            self._put(*event)

    def _put(self, number: int | None, payload: bytes | None, names: list[str]) -> None:
        self.sent += 1
        at, key = (
            EPOCH + timedelta(milliseconds=7 * self.sent),
            bytearray(json.dumps({"id": number}).encode()),
        )
        given = None if payload is None else bytearray(payload)
        if self.connector == "dms":
            sequence = str(9_900 + self.sent)  # gains a digit
            self.records.append(
                (f"s{self.seed}/{sequence}", f"s{self.seed}", None, sequence, key, None, at, given)
            )
            return
        # A truncate has no key.
        partition = self.sent % PARTITIONS if number is None else number % PARTITIONS
        self.offsets[partition] += 1
        offset = self.offsets[partition]
        self.records.append(
            (
                f"t{self.seed}/{partition}/{offset}",
                f"t{self.seed}",
                str(partition),
                str(offset).zfill(20),
                key,
                [(name, bytearray(b"{}")) for name in names],
                at,
                given,
            )
        )

    @property
    def _moves(self) -> bool:
        """Whether the key of a row may change: of DMS an update, which this ledger does not make."""
        return self.connector != "dms" and self.choose.random() < 0.2

    def _at(self, place: int) -> datetime:
        """Time of a change: of its place in the log, or of DMS's record."""
        if self.connector == "dms":
            return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.sent // 5)
        return change_events.moment(place)

    def _event(self, operation: str, before: Row | None, after: Row | None, place: int, nth: int) -> Any:
        if self.connector == "dms":
            name = {"snapshot": "load", "truncate": "truncate-table"}.get(operation, operation)
            row = None if operation == "truncate" else after or before
            image = before if operation == "update" else None
            return change_events.dms(name, self._at(place).isoformat().replace("+00:00", "Z"), row, image)
        op = {"insert": "c", "snapshot": "r"}.get(operation, operation[0])
        event = change_events.postgres(
            op, place, self.commit, "true" if op == "r" else "false", before=before, after=after
        )
        event["source"]["name"] = f"shop{self.seed}"
        if self.connector != "postgresql":
            event["source"] = {
                **self._source(place, nth),
                **{name: event["source"][name] for name in ("snapshot", "ts_ms")},
            }
        return event

    def _source(self, place: int, nth: int) -> dict[str, Any]:
        connector = self.connector.partition("-")[0]
        known = {"connector": connector, "name": f"shop{self.seed}", "db": "shop", "table": "orders"}
        if connector == "mysql":
            # Written as it commits: a file of 40 events each, whose numbers gain a digit.
            where = {"server_id": 7, "pos": self.log % 40 * 100 + 4, "row": nth}
            if self.connector == "mysql":
                return {**known, **where, "file": f"binlog.{8 + self.log // 40:06d}"}
            # Read from a replica, then from another one with fewer files; at last that is the server that writes.
            file, own = f"replica.{10_000 - self.log // 40 * 90:06d}", self.log > 90
            gtid = f"3e11fa47-71ca-11e1-9e33-c80aa942956{int(own)}:{self.log}"
            return {**known, **where, "file": file, "server_id": 7 + own, "gtid": gtid}
        if self.connector == "sqlserver":
            lsns = {"commit_lsn": self.log, "change_lsn": place}
            return {**known, "event_serial_no": 1} | {
                name: f"00000027:{n:08x}:0003" for name, n in lsns.items()
            }
        if self.connector == "oracle-xstream":
            return {**known, "scn": str(self.log)}  # that of the commit
        # Changes of one SCN are in several redo records, in each of which `ssn` begins with 0.
        return {
            **known,
            "scn": str(place // 9),
            "commit_scn": str(self.log),
            "txSeq": nth + 1,
            "ssn": 9 - nth % 9,
        }

    def commits(self) -> list[list[tuple[Any, ...]]]:
        """Return the records as they land: partitions apart from each other, some records late, and some once more."""
        late = [each for each in self.records if self.choose.random() < 0.1]
        again = [
            (f"{each[0]}#again", *each[1:])
            for each in self.choose.sample(self.records, len(self.records) // 10)
        ]
        queues = [
            [r for r in self.records if r[2] == shard and r not in late]
            for shard in {r[2] for r in self.records}
        ]
        result = []
        while any(queues):
            portion = []
            for queue in queues:
                take = self.choose.choice((0, 20, 60))
                portion += queue[:take]
                del queue[:take]
            result.append(portion)
        return [*filter(None, result), late, again]
