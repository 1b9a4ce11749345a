"""The table of guarantees in ``docs/sinks.md`` has all sinks."""

from __future__ import annotations

from pathlib import Path

from millrace.config.sinks import KINDS

PAGE = Path(__file__).parents[3] / "docs" / "sinks.md"
HEAD = (
    "| `kind` | a row in the sink | guarantee | visible of a failed batch | counts |\n|---|---|---|---|---|\n"
)


def test_the_table_has_a_row_of_each_kind() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert HEAD in text
    rows = [row.strip("|").split("|") for row in text.split(HEAD)[1].split("\n\n")[0].splitlines()]
    assert [row[0].strip() for row in rows] == [f"`{kind}`" for kind in KINDS]
    assert all(len(row) == HEAD.splitlines()[0].count("|") - 1 and all(map(str.strip, row)) for row in rows)


def test_every_key_of_a_sink_says_what_it_means_with_an_example() -> None:
    for kind, sink in KINDS.items():
        assert sink.model_fields["kind"].annotation.__args__ == (kind,)
        for name, field in sink.model_fields.items():
            assert name == "kind" or (field.description and field.examples), f"{kind}.{name}"


def test_both_sides_have_the_same_kinds() -> None:
    from millrace.etl.launch.sinks import SinkSettings

    assert list(SinkSettings.KINDS) == list(KINDS)
