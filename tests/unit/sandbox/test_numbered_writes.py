"""Numbered crash points fail one mutation each, in front of S3 and of PostgreSQL."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from tests import postgres
from tests.faults import postgres_proxy
from tests.faults.crash_at_every_write import PointResult, figures
from tests.faults.numbered_writes import MODES, Mode, Points, label
from tests.postgres import PASSWORD, USER, Postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with postgres.running() as running:
        running.run("CREATE TABLE held (n int PRIMARY KEY)")
        yield running


def psql(server: Postgres, port: int, *commands: str) -> int:
    """Run statements by a connection of their own, each by itself; psql's status."""
    program: list[str | Path] = [server.programs / "psql", "-Xq", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1"]
    program += ["-p", str(port), "-U", USER, "-d", "postgres"]
    for command in commands:
        program += ["-c", command]
    environment = {**os.environ, "PGPASSWORD": PASSWORD}
    return subprocess.run(program, env=environment, capture_output=True, check=False).returncode


def held(server: Postgres) -> list[int]:
    return [int(n) for (n,) in server.run("SELECT n FROM held ORDER BY n")]


@pytest.mark.parametrize(("mode", "left"), [("before", []), ("after", [1]), ("lost", [1])])
def test_a_statement_takes_effect_or_not_and_nobody_hears_of_it(
    server: Postgres, mode: Mode, left: list[int]
) -> None:
    server.run("TRUNCATE held")
    points, killed = Points(), list[str]()
    points.arm(mode, 1, lambda: killed.append(mode))
    with postgres_proxy.before(server.port, points) as port:
        assert (
            psql(server, port, "SELECT 1", "INSERT INTO held VALUES (1)", "INSERT INTO held VALUES (2)") != 0
        )
    assert held(server) == left
    assert points.fired.is_set()
    assert killed == ([] if mode == "lost" else [mode])
    assert points.labels == ["SQL INSERT INTO held"]


@pytest.mark.parametrize(("number", "left"), [(1, []), (2, []), (3, [1, 2]), (4, [1, 2])])
def test_a_transaction_takes_effect_with_its_end(server: Postgres, number: int, left: list[int]) -> None:
    server.run("TRUNCATE held")
    points = Points()
    points.arm("lost", number, lambda: None)
    commands = ("BEGIN", "INSERT INTO held VALUES (1)", "INSERT INTO held VALUES (2)", "COMMIT")
    with postgres_proxy.before(server.port, points) as port:
        assert (psql(server, port, *commands) == 0) == (number == 4)
        assert psql(server, port, "BEGIN", "SELECT n FROM held", "COMMIT") == 0, "it changed nothing"
    assert held(server) == left
    assert points.fired.is_set() == (number < 4)


def test_only_what_changes_something_in_scope_is_numbered() -> None:
    points = Points(scope=("/mine/",))
    points.arm("before", 3, lambda: None)
    copied: Mapping[str, str] = {"X-Amz-Copy-Source": "/b/mine/.7.tmp"}
    assert points.fate("GET", "/b/mine/7", {}, b"") == "passed"
    assert points.fate("PUT", "/b/others/7", {}, b"") == "passed"
    assert points.fate("PUT", "/b/mine/lease.json", {}, b'{"renewals": 3}') == "passed"
    assert points.fate("PUT", "/b/mine/lease.json", {}, b'{"renewals": 0}') == "passed"
    assert points.fate("POST", "/b/?delete", {}, b"<Key>a/mine/7</Key>") == "passed"
    assert points.fate("PUT", "/b/mine/7", copied, b"") == "cut"
    assert points.labels == ["PUT /b/mine/lease.json", "DELETE several", "COPY /b/mine/*"]
    assert points.fate("PUT", "/b/mine/8", {}, b"") == "passed", "one point is met once"


def test_answers_of_the_catalog_are_not_lost() -> None:
    """Iceberg's JDBC client would take its own commit for another writer's (:mod:`tests.faults.numbered_writes`)."""
    points, commit = Points(), "UPDATE iceberg_tables SET metadata_location = $1"
    points.arm("lost", 1, lambda: None)
    assert points.statement(commit, commit) == "passed"
    assert points.statement("INSERT INTO rows VALUES (1)", "") == "lost"
    points.arm("before", 1, lambda: None)
    assert points.statement(commit, commit) == "cut"


def test_a_label_leaves_out_what_differs_from_run_to_run() -> None:
    path = "/b/data/00001-7-0c6bb1e3-1a49-4a0f-8a52-6e9d3f0f6a11-00001.parquet?x-id=PutObject"
    assert label("PUT", path, {}) == "PUT /b/data/*-*-*.parquet"


def test_what_is_left_of_a_kind_is_told() -> None:
    done = [PointResult("derive", mode, n, "PUT" if n < 3 else "") for mode in MODES for n in (1, 2, 3)]
    assert figures("derive", done) == (
        "derive: killed before 2 and after 2 mutations of a batch, answers to 2 lost, "
        "killed twice at 2: 8 of 8 exact, 0 lost, 0 doubled, 0 others, 0 stuck; 0 minutes in all"
    )
    less = [one for one in done if (one.mode, one.number) != ("after", 3)]
    assert "after 2 (not all) mutations" in figures("derive", less)


def test_a_port_that_nobody_serves_any_more_is_closed(server: Postgres) -> None:
    with postgres_proxy.before(server.port, Points()) as port:
        assert psql(server, port, "SELECT 1") == 0
    with suppress(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port)).close()
        pytest.fail("it still listens")
