"""The table of options in ``docs/kinesis.md``, compared with what the core sets: every row, and no option without one."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from millrace.etl.launch import engine_interface_and_registry
from millrace.etl.launch.settings import Engine
from millrace.etl.launch.sources import KinesisSource
from millrace.etl.record.errors import StartError

DOCUMENT = (Path(__file__).parents[3] / "docs" / "kinesis.md").read_text()
PLAIN = KinesisSource("flights", "acme-flights", "eu-west-1", "earliest", 5000, 2.5, 86400)
VARIANTS = {
    "`start: latest`": dataclasses.replace(PLAIN, start="latest"),
    "`start: 2026-01-31T00:00:00Z`": dataclasses.replace(PLAIN, start="2026-01-31T00:00:00Z"),
    "`fan_out: true`": dataclasses.replace(PLAIN, consumer="arn:consumer"),
    "`read_role`": dataclasses.replace(PLAIN, role="arn:role"),
}
COLUMNS: dict[Engine, int] = {"glue": 1, "emr": 2}


def rows() -> list[tuple[str, str, str]]:
    table = DOCUMENT.partition("## Options")[2].partition("\n## ")[0]
    lines = [line.strip("|").split("|") for line in table.splitlines() if line.startswith("|")]
    return [tuple(cell.strip() for cell in cells) for cells in lines[2:]]  # type: ignore[misc]


def options(cell: str) -> dict[str, str]:
    return dict(item.split("=", 1) for item in re.findall(r"`([^`]+=[^`]+)`", cell))


@pytest.mark.parametrize("engine", COLUMNS)
@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_is_what_the_core_sets(row: tuple[str, str, str], engine: Engine) -> None:
    source = VARIANTS.get(row[0], PLAIN)
    result = engine_interface_and_registry.engine_of(engine).kinesis_options(source, None, ["shardId-0"])
    wanted = options(row[COLUMNS[engine]])
    assert {name: result.get(name) for name in wanted} == wanted


@pytest.mark.parametrize("engine", COLUMNS)
def test_no_option_is_left_out_of_the_table(engine: Engine) -> None:
    told = {name for row in rows() for name in options(row[COLUMNS[engine]])}
    everything = dataclasses.replace(PLAIN, consumer="arn:consumer", role="arn:role")
    set_by_the_core = engine_interface_and_registry.engine_of(engine).kinesis_options(everything, None).keys()
    assert (
        told
        == set(set_by_the_core)
        | engine_interface_and_registry.engine_of(engine).kinesis_options(PLAIN, None).keys()
    )


def test_the_sandbox_leaves_out_what_its_servers_do_not_know() -> None:
    glue = engine_interface_and_registry.engine_of("glue").kinesis_options(PLAIN, None)
    for source in (PLAIN, *VARIANTS.values()):
        result = engine_interface_and_registry.engine_of("sandbox").kinesis_options(source, None)
        assert result.keys() == glue.keys()
        assert (
            result["startingPosition"]
            == engine_interface_and_registry.engine_of("glue").kinesis_options(source, None)[
                "startingPosition"
            ]
        )


@pytest.mark.parametrize("start", ["", "Latest", "yesterday", "2026-01-31", "2026-01-31T00:00:00"])
def test_a_start_is_a_word_or_a_moment_with_its_zone(start: str) -> None:
    with pytest.raises(StartError, match="must be earliest, latest, or a time such as"):
        engine_interface_and_registry.engine_of("glue").kinesis_options(
            dataclasses.replace(PLAIN, start=start), None
        )


def test_what_the_document_points_at_is_there() -> None:
    from tests.faults.round_list import ROUNDS

    root = Path(__file__).parents[3]
    hazards = DOCUMENT.partition("## Where records")[2].partition("\n## ")[0]
    named = re.findall(
        r"`([\w/.]+)`", "".join(line.rsplit("|", 2)[1] for line in hazards.splitlines() if "|" in line)
    )
    assert {n for n in named if n not in ROUNDS and not (root / n).exists()} == set()
    assert len(named) > 12
