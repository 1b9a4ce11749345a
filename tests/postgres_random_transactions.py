"""A PostgreSQL table under random transactions, the log of its triggers, and the history expected from that log."""

# ruff: noqa: S608 - statements of a test

from __future__ import annotations

import random
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from tests import postgres

SETTINGS = ("wal_level=logical", "track_commit_timestamp=on")
TABLE = """
create table signals (id text primary key, type text, data text);
create table orders (
  id bigint primary key, code text not null, n int, price numeric(9,2), day date, at timestamp, seen timestamptz, raw bytea, note text
);
alter table orders replica identity full;
alter table orders alter column note set storage external;
create unique index on orders (code);
create table changed (place bigserial primary key, xid xid8 default pg_current_xact_id(), id bigint, code text, n bigint, price numeric(9,2));
create function note_change() returns trigger language plpgsql as $$ begin
  if tg_op = 'TRUNCATE' then insert into changed (id) values (null); return null; end if;
  if tg_op = 'DELETE' or (tg_op = 'UPDATE' and old.id <> new.id) then insert into changed (id) values (old.id); end if;
  if tg_op <> 'DELETE' then insert into changed (id, code, n, price) values (new.id, new.code, new.n, new.price); end if;
  return null;
end $$;
create trigger note after insert or update or delete on orders for each row execute function note_change();
create trigger note_all after truncate on orders for each statement execute function note_change();
"""
DDL = (
    "id BIGINT NOT NULL, code STRING NOT NULL, n INT, price DECIMAL(9,2), day DATE, "
    "at TIMESTAMP COMMENT 'epoch microseconds', seen TIMESTAMP, raw BINARY, note STRING"
)
SNAPSHOT = """
insert into signals values ('s{0}', 'execute-snapshot', '{{"data-collections": ["public.orders"], "type": "incremental"}}');
"""

WIDENED = "alter table orders add column extra text, alter column n type bigint"

Values = tuple[str, str, str]
Interval = tuple[int, float, Values]
"""From and to, in milliseconds since 1970, and code, number and price."""


def transactions(
    seed: int, number: int, keys: int = 60, repeats: Sequence[int] = (1, 300), *, widened: bool = False
) -> Iterator[str]:
    """Yield statements that change some of the rows, keys too, in transactions of up to five changes.

    Parameters
    ----------
    repeats
        Lengths of notes, in 32 characters: from a hundred on, PostgreSQL does not log one that stays (TOAST).
    widened
        Whether the table is as after :data:`WIDENED`.
    """
    choose = random.Random(seed)
    for place in range(number):
        yield "begin;"
        for nth in range(choose.randint(1, 5)):
            key, fate = choose.randrange(keys), choose.random()
            code = f"'c{seed}-{place}-{nth}'"
            if fate < 0.35:
                values = (
                    f"{key}, {code}, {place}, {choose.randrange(-(10**6), 10**6)} / 100.0, "
                    f"date '1960-01-01' + {choose.randrange(40_000)}, timestamp '2024-02-29 23:59:59.123456' + interval '{place} s', "
                    f"now(), '\\x00ff{place % 256:02x}', repeat(md5('{place}'), {choose.choice(repeats)})"
                )
                yield (
                    "insert into orders (id, code, n, price, day, at, seen, raw, note) "
                    f"values ({values}) on conflict (id) do update set code = excluded.code, n = excluded.n, "
                    "price = excluded.price, day = excluded.day, at = null;"
                )
            elif fate < 0.6:
                yield f"update orders set n = n + 1, code = {code} where id = {key};"
            elif fate < 0.75:
                # A change of the key; the row keeps its code.
                yield f"update orders set id = {100 + choose.randrange(keys) + 10 * keys * seed} where id = {key};"
            elif fate < 0.95:
                yield f"delete from orders where id in ({key}, {100 + key + 10 * keys * seed});"
            else:
                more = f", extra = 'e{place}', n = {2**40 + place}" if widened else ""
                yield f"update orders set note = null, price = null{more} where id = {key};"
        yield choose.choice(("commit;", "commit;", "commit;", "rollback;"))


def session(database: postgres.Postgres, statements: str) -> None:
    """Run statements in a session of their own; of two that wait for each other, PostgreSQL ends one."""
    address = f"postgresql://{postgres.USER}@127.0.0.1:{database.port}/{postgres.DATABASE}"
    subprocess.run(
        [database.programs / "psql", "-Xq", address],
        input=statements,
        text=True,
        env={"PGPASSWORD": postgres.PASSWORD},
        capture_output=True,
        check=True,
    )


def clock(database: postgres.Postgres) -> int:
    """Time of the database, in milliseconds since 1970."""
    return int(database.run("select floor(extract(epoch from clock_timestamp()) * 1000)")[0][0])


def logged(database: postgres.Postgres) -> dict[int, list[Interval]]:
    """Intervals of each row by its id, from the triggers' log and PostgreSQL's own times of commits."""
    # Writers of one row wait for each other: so its changes are logged in the order of their commits.
    log = database.run(
        "select id, floor(extract(epoch from pg_xact_commit_timestamp(xid::xid)) * 1000), code, n, price from changed order by place"
    )
    states: dict[int, dict[int, Values | None]] = defaultdict(dict)
    for number, at, *values in log:
        for each in [int(number)] if number else list(states):
            states[each][int(at)] = (values[0], values[1], values[2]) if values[0] else None
    result: dict[int, list[Interval]] = {}
    for number_, by_time in states.items():
        times = sorted(by_time)
        ends = zip(times, [*times[1:], float("inf")], strict=True)
        result[number_] = [(start, end, row) for start, end in ends if (row := by_time[start]) is not None]
    return result


def kept(rows: Iterable[Mapping[str, Any]]) -> dict[int, list[Interval]]:
    """Intervals of each row by its id, from a history without what was never visible.

    Raises
    ------
    AssertionError
        Two rows of a key are visible at one time.
    """
    result: dict[int, list[Interval]] = defaultdict(list)
    for row in rows:
        start, end = (
            None if at is None else round(at.timestamp() * 1000)
            for at in (row["_valid_from"], row["_valid_to"])
        )
        assert start is not None
        shown = tuple("" if row[name] is None else str(row[name]) for name in ("code", "n", "price"))
        if end is None or end > start:
            result[row["id"]].append(
                (start, float("inf") if end is None else end, (shown[0], shown[1], shown[2]))
            )
    for key, intervals in result.items():
        intervals.sort()
        for one, other in pairwise(intervals):
            assert one[1] <= other[0], f"two rows of {key}: {one}, {other}"
    return result


def differences(
    history: Mapping[int, list[Interval]], log: Mapping[int, list[Interval]], since: int
) -> dict[int, Any]:
    """Rows whose two histories differ, from a time on."""
    pairs = {key: [_since(each.get(key, []), since) for each in (history, log)] for key in history | log}
    return {key: both for key, both in pairs.items() if both[0] != both[1]}


def _since(intervals: list[Interval], since: int) -> list[Interval]:
    result: list[Interval] = []
    for start, end, row in intervals:
        if end <= since:
            continue
        if result and result[-1][1:] == (start, row):
            result[-1] = (result[-1][0], end, row)
        else:
            result.append((max(start, since), end, row))
    return result
