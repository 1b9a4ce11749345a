"""The tables in ``docs/formats.md`` have all formats, and the values that decoders are held against."""

from __future__ import annotations

from pathlib import Path

from millrace.config.formats import KINDS
from tests import payloads_with_expected_values

PAGE = Path(__file__).parents[3] / "docs" / "formats.md"
BEGIN, END = "<!-- values -->", "<!-- end of values -->"
HEAD = "| `format` | `schema` | decoded by | also accepted | dead letter |\n|---|---|---|---|---|\n"


def test_the_table_has_a_row_of_each_kind() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert HEAD in text
    rows = [row.strip("|").split("|") for row in text.split(HEAD)[1].split("\n\n")[0].splitlines()]
    assert [row[0].strip() for row in rows] == [f"`{kind}`" for kind in KINDS]
    assert all(len(row) == HEAD.splitlines()[0].count("|") - 1 and all(map(str.strip, row)) for row in rows)


def test_the_tables_of_values_are_those_that_the_decoders_are_held_against() -> None:
    """``tests/spark/formats/test_values_by_other_parsers.py`` decodes each of them."""
    written = PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert written.strip() == payloads_with_expected_values.table(), (
        f"write this instead:\n{payloads_with_expected_values.table()}"
    )


def test_every_key_of_a_format_says_what_it_means_with_an_example() -> None:
    for kind, form in KINDS.items():
        assert form.model_fields["kind"].annotation.__args__ == (kind,)
        for name, field in form.model_fields.items():
            assert name == "kind" or (field.description and field.examples), f"{kind}.{name}"
