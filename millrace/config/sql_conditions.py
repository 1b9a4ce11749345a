"""Conditions in Spark SQL on the columns of one row: parsed here, evaluated by Spark."""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp, parse
from sqlglot.errors import ParseError, SqlglotError

_BOOLEAN = (exp.Predicate, exp.Connector, exp.Not, exp.Boolean, exp.Paren, exp.Column, exp.Func, exp.Case)
_REFUSED = (
    (exp.Query, "no subquery"),
    (exp.Window, "no window function"),
    (exp.AggFunc, "no aggregate, as it sees one row"),
    ((exp.Alias, exp.Star), "one condition, without AS or *"),
)
_CHANGING = re.compile(
    r"rand|randn|random|uuid|shuffle|now|curdate|(current|local)_?(date|time|timestamp)|unix_timestamp"
    r"|monotonically_increasing_id|spark_partition_id|input_file\w*"
)
"""Functions whose value for the same row changes over time."""


@dataclass(frozen=True)
class Condition:
    """A condition that could be parsed.

    Attributes
    ----------
    columns
        Names of the columns that it reads, each once; for a nested field, the outermost column.
    """

    text: str
    columns: tuple[str, ...]
    _places: tuple[int, ...]

    def condition_in_struct(self, struct: str, outside: frozenset[str]) -> str:
        """Return the condition for rows that hold its columns in a struct, except columns in ``outside`` (lower case)."""
        text = self.text
        for place in sorted(self._places, reverse=True):
            match = re.match(r"`(?:[^`]|``)+`|\w+", text[place:])
            assert match is not None
            if match.group().strip("`").lower() not in outside:
                text = f"{text[:place]}`{struct}`.{text[place:]}"
        return text


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    Raises
    ------
    ValueError
        The text is no SQL, is no condition, or would give another result in a replay.
    """
    try:
        result = parse(text, read="spark")
    except ParseError as error:
        first = error.errors[0]
        place = f"column {first['col']}, near {first['highlight']!r}"
        raise ValueError(f"a condition in Spark SQL; this one cannot be parsed at {place}") from error
    except SqlglotError as error:
        raise ValueError(f"a valid condition in Spark SQL ({error})") from error
    root = result[0]
    if len(result) != 1 or root is None:
        raise ValueError("one condition in Spark SQL, such as distance > 0")
    for kind, allowed in _REFUSED:
        if root.find(*(kind if isinstance(kind, tuple) else (kind,))) is not None:
            raise ValueError(allowed)
    if not isinstance(root, _BOOLEAN):
        raise ValueError("a condition that is true or false, such as distance > 0")
    for call in root.find_all(exp.Func):
        name = (call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower()
        if _CHANGING.fullmatch(name):
            raise ValueError(
                f"a condition without {name}(), whose value differs each time the row is read; compare with "
                "_arrived_at"
            )
    firsts = [column.parts[0] for column in root.find_all(exp.Column)]
    return Condition(
        text,
        tuple(dict.fromkeys(each.name for each in firsts)),
        tuple(each.meta["start"] for each in firsts),
    )
