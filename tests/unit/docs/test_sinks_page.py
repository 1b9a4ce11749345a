"""The table of guarantees in ``docs/sinks.md`` agrees with the sink classes."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from millrace.config.sinks import KINDS

PAGE = Path(__file__).parents[3] / "docs" / "sinks.md"
HEAD = (
    "| `kind` | a row in the sink | guarantee | visible of a failed batch | counts |\n|---|---|---|---|---|\n"
)


def promises() -> str:
    """The table's rows, in the order of the registry."""
    return "".join(
        f"| {' | '.join((f'`{kind}`', *dataclasses.astuple(sink.promise)))} |\n"
        for kind, sink in KINDS.items()
    )


def test_the_table_is_that_of_the_kinds() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert HEAD in text
    table = text.split(HEAD)[1].split("\n\n")[0] + "\n"
    assert table == promises(), f"write this instead:\n{HEAD}{promises()}"


def test_every_key_of_a_sink_says_what_it_means_with_an_example() -> None:
    for kind, sink in KINDS.items():
        assert sink.model_fields["kind"].annotation.__args__ == (kind,)
        for name, field in sink.model_fields.items():
            assert name == "kind" or (field.description and field.examples), f"{kind}.{name}"


def test_both_sides_have_the_same_kinds() -> None:
    from millrace.etl.launch.sinks import SinkSettings

    assert list(SinkSettings.KINDS) == list(KINDS)
