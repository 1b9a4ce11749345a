"""The test runner counts a part that did not finish as a failure; files that its lists name exist."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from millrace.sandbox.programs.toolchain import installed_spark_line
from tests import conftest, run, suite_parts
from tests.spark.engine_sessions import profile_named


def test_a_part_that_a_signal_ended_fails_beside_one_that_is_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_killed.py").write_text(
        "import os, signal\n\n\ndef test_it() -> None:\n    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    (tmp_path / "test_well.py").write_text("def test_it() -> None:\n    assert 1 + 1 == 2\n")
    two = tuple(
        suite_parts.Part("mine", name, (str(tmp_path / f"test_{name}.py"),)) for name in ("killed", "well")
    )
    monkeypatch.setattr(run, "PARTS", two)
    monkeypatch.setattr(run, "KINDS", ("mine",))
    monkeypatch.setattr(run, "SANDBOXES", tmp_path)
    status = run.main(["mine"])
    said = capsys.readouterr().out
    assert status == 128 + 9
    assert " and ended with status 137\nwell took " in said
    assert said.endswith("\nmine: 1 passed, 0 failed\n")


def test_the_core_is_counted_by_line_of_spark() -> None:
    core, newest = (
        suite_parts.Part("spark", name, (), line=line)
        for name, line in (("a", ""), ("b", suite_parts.NEWEST))
    )
    results = {core: run.Result(0, 5, 0, 1, 1.0, 0, 0.0), newest: run.Result(1, 2, 1, 0, 1.0, 0, 0.0)}
    first, second = run._by_line(results)
    assert first.startswith(f"Spark {installed_spark_line().spark}, Scala ")
    assert first.endswith(": 5 passed, 0 failed, 1 skipped")
    assert second.startswith("Spark 4.1.1, Scala 2.13, Python 3.")
    assert second.endswith(": 2 passed, 1 failed")


def test_the_slowest_are_listed_over_all_parts() -> None:
    some = {"spark.test_a::test_x": 3.0, "spark.test_a::test_y": 0.2}
    results = [
        run.Result(0, 2, 0, 0, 4.0, 0, 0.0, some),
        run.Result(0, 1, 0, 0, 9.0, 0, 0.0, {"unit.test_b::test_z": 9.0}),
    ]
    assert list(run._slowest(results)) == [
        "slowest modules:",
        "     9.0 s  unit.test_b",
        "     3.2 s  spark.test_a",
        "slowest tests:",
        "     9.0 s  unit.test_b::test_z",
        "     3.0 s  spark.test_a::test_x",
    ]


def test_what_is_run_once_more_without_broadcasts_is_there_and_has_its_day() -> None:
    assert all((run.TESTS / path).is_file() for path in suite_parts.LARGE)
    assert profile_named(suite_parts.LARGE_PROFILE).more["spark.sql.autoBroadcastJoinThreshold"] == "-1"

    def large(slow: str) -> list[tuple[str, ...]]:
        chosen = run.parts_of(suite_parts.PARTS, ["spark"], slow)
        return [part.paths for part in chosen if part.options == ("--profile", suite_parts.LARGE_PROFILE)]

    assert large("none") == []
    assert large("all") == [suite_parts.LARGE]
    assert large("today") in [[(path,)] for path in suite_parts.LARGE]


def test_a_part_that_takes_turns_runs_each_path_once_and_on_other_days_not_at_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    some = (suite_parts.Part("spark", "some", ("a", "b"), turns=7),)
    chosen = []
    for number in range(7):
        monkeypatch.setattr(run, "day", lambda number=number: number)
        chosen += [part.paths for part in run.parts_of(some, ["spark"], "today")]
    assert chosen == [("a",), ("b",)]


def test_each_slow_test_has_its_day() -> None:
    """In so many days each runs once, on no day many more than on another, and those of one file on different days."""
    units = sorted(f"tests/test_{file}.py::test_{number}" for file in "abc" for number in range(run.DAYS + 2))
    days = [conftest.due(dict.fromkeys(units, 1), 738_000 + day) for day in range(run.DAYS)]
    assert sorted(unit for day in days for unit in day) == units
    assert max(map(len, days)) - min(map(len, days)) <= 1
    assert all(sum(unit.startswith("tests/test_a") for unit in day) in {1, 2} for day in days)


def test_a_day_has_as_many_slow_tests_as_another_where_some_run_together() -> None:
    units = {f"tests/test_file_{n}.py": n for n in range(1, run.DAYS)} | {
        f"tests/a.py::test_{n}": 1 for n in range(run.DAYS**2)
    }
    days = [sum(units[unit] for unit in conftest.due(units, 738_000 + day)) for day in range(run.DAYS)]
    assert sum(days) == sum(units.values())
    assert max(days) - min(days) <= 1


@pytest.fixture(scope="module")
def shared() -> int:
    return 1


def test_a_test_rotates_by_itself(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    assert conftest.unit_of_rotation(request.node) == request.node.nodeid


def test_tests_that_share_a_fixture_of_their_module_rotate_together(
    request: pytest.FixtureRequest, shared: int
) -> None:
    assert conftest.unit_of_rotation(request.node) == "tests/unit/test_test_runner.py"


def test_files_of_parts_and_of_mutation_areas_are_there() -> None:
    tree = ast.parse((run.TESTS / "mutants.py").read_text(encoding="utf-8"))
    of_areas = {
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    named = {text for text in of_areas if text.endswith(".py") and "/" in text and " " not in text}
    named |= {path.partition("::")[0] for part in suite_parts.PARTS for path in (*part.paths, *part.without)}
    assert len(named) > 50
    assert (
        sorted(
            name for name in named if not any((top / name).exists() for top in (run.TESTS, run.TESTS.parent))
        )
        == []
    )
