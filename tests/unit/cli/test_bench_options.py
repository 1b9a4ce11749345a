"""``millrace bench`` refuses wrong options before it starts anything."""

from __future__ import annotations

import pytest

from tests.unit.cli.test_command_output import millrace


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("flights", "--env", "local", "--partitions", "0,2"), "whole numbers, 1 or more"),
        (("flights", "--env", "local", "--largest", "900"), "more than --smallest 1000"),
        (("flights", "--env", "local", "--query", "flights-weather"), "land-flights"),
        (
            ("flights", "--env", "local", "--on", "glue", "--yes"),
            "emr, which is jobs.flights.engine, or sandbox",
        ),
    ],
)
def test_a_mistake_is_status_2_and_says_what_is_allowed(arguments: tuple[str, ...], said: str) -> None:
    done = millrace("bench", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in " ".join(done.stderr.split())
