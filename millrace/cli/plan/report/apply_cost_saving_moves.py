"""Moves of a plan: their lines in the verdict, and writing them into the environment's files."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from millrace.config import Environment
from millrace.config.document.problems import wrong_option_error
from millrace.sizing import total_cost
from millrace.sizing.cost_saving_moves import CostSavingMove


def move_lines(moves: Sequence[CostSavingMove]) -> Iterator[str]:
    """Yield a numbered line for each move."""
    for number, each in enumerate(moves, start=1):
        change = f"{each.key}: {_value_as_text(each.old)} to {_value_as_text(each.new)}"
        came = [f"{key}: {_value_as_text(new)}" for key, _, new in each.with_it if new is not None]
        change = ", ".join((change, *came))
        if gone := [key for key, _, new in each.with_it if new is None]:
            keys = (each.key, *(key for key, _, new in each.with_it if new is not None))
            change = f"{', '.join(gone)} removed, {', '.join(keys)} added"
        yield f"{number}. ${each.saved:,.2f} less: {change}, ${each.usd:,.2f} a month; gives up {each.gives_up}"


def write_moves_into_files(environment: Environment, moves: Sequence[CostSavingMove], numbers: str) -> None:
    """Write moves into the files of an environment; comments stay, and nothing is written if the result cannot be planned.

    Parameters
    ----------
    numbers
        Numbers of the moves, separated by commas.

    Raises
    ------
    ConfigurationError
        A number that no move has, or a value that a program cannot change.
    """
    # Plans show moves far more often than they write them, and the advisor takes long to import.
    from millrace.advisor.apply_changes import try_changes
    from millrace.advisor.findings.model import Change

    known = {str(number): each for number, each in enumerate(moves, start=1)}
    asked = list(dict.fromkeys(each.strip() for each in numbers.split(",")))
    if not known.keys() >= set(asked):
        raise wrong_option_error(
            "--apply", numbers, f"numbers of moves: {', '.join(known) or 'there are none'}"
        )
    places, tree = environment.value_locations, environment.value_locations.tree
    assert tree is not None
    where = places.relative_file_name(tree.file)
    changes: list[Change] = []
    for each in map(known.__getitem__, asked):
        for key, old, new in ((each.key, each.old, each.new), *each.with_it):
            change = Change("environment", where, key, old, new)
            # Several moves may write the same engine.
            changes += [change] * (change not in changes)
    tried = try_changes(tree.file, changes, places.root)
    tried.write()
    for edited in tried.files:
        typer.echo(f"wrote {edited.name}")
    before, after = total_cost(tried.before).value, total_cost(tried.after).value
    typer.echo(f"the plan: ${before:,.2f} a month before, ${after:,.2f} now")


def _value_as_text(value: Any) -> str:
    return "not set" if value is None else value if isinstance(value, str) else json.dumps(value)
