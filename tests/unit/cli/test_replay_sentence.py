"""What `millrace replay` says of its result."""

import pytest

from millrace.cli.repair.replay import _replay_sentence

OUTCOME = {"query": "q", "letters": 3, "good": 2, "bad": 1, "already": 0, "unknown_ids": []}
SAID = "3 dead letters of q replayed: 2 are good now, 1 are still bad, 0 were replayed before"


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ({}, ""),
        ({"duplicates": 0}, ""),
        (
            {"duplicates": 4, "unknown_ids": ["a/0/1"]},
            "; the sink had 4 of their rows already and keeps those, also if this replay made others; "
            "no dead letter has the identity a/0/1",
        ),
    ],
)
def test_rows_that_the_sink_had_already_are_told(more: dict[str, object], end: str) -> None:
    assert _replay_sentence(OUTCOME | more) == SAID + end
