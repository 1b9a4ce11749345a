"""Functions of Python and Glue by which programs compute their settings, on values that are known."""

from __future__ import annotations

import argparse
import getopt
import itertools
import json
import os.path
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from millrace.advisor.programs.possible_values import (
    MOST_ITEMS,
    DictValue,
    LibraryName,
    Unknown,
    Values,
    as_dictionary,
    contents_of,
    known_value,
    union_of_alternatives,
    unknown_value,
    values_inside,
)
from millrace.advisor.programs.python_values import (
    NoPythonValueError,
    single_or_raise,
    to_program_value,
    to_python_value,
)


@dataclass(frozen=True)
class LaunchArguments:
    """Arguments and environment variables of a run.

    Attributes
    ----------
    words
        Its arguments, in order.
    variables
        Environment variables that its settings name.
    ordered
        Whether the order of the arguments is the job's own; Glue gives them in an order of its own, beside others.
    """

    words: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    ordered: bool = True

    @property
    def arguments_by_name(self) -> dict[str, str]:
        """Arguments ``--NAME VALUE`` and ``--NAME=VALUE`` by name."""
        return {
            word.lstrip("-").partition("=")[0]: word.partition("=")[2]
            or ("" if following.startswith("--") else following)
            for word, following in itertools.pairwise([*self.words, ""])
            if word.startswith("--")
        }


TEXT_METHODS = frozenset(
    [
        "capitalize",
        "count",
        "endswith",
        "find",
        "format",
        "index",
        "isalnum",
        "isalpha",
        "isdigit",
        "isnumeric",
        "join",
        "lower",
        "lstrip",
        "partition",
        "removeprefix",
        "removesuffix",
        "replace",
        "rfind",
        "rpartition",
        "rsplit",
        "rstrip",
        "split",
        "splitlines",
        "startswith",
        "strip",
        "title",
        "upper",
    ]
)
"""Methods of texts that are computed; none of them makes a long text of short ones."""

_WIDE_FIELD = re.compile(r"\{[^}]*(\{|\d{4})|%[^a-zA-Z%]*(\d{4}|\*)")
"""A width in a format that would make a text of any length."""

_QUANTIFIER = re.compile(r"[*+]|\{\d")


def format_text(template: str, *values: Any, **named: Any) -> str:
    """Format as ``str.format``.

    Raises
    ------
    ValueError
        It asks for a wide field.
    """
    if _WIDE_FIELD.search(template.replace("{{", "").replace("}}", "").partition("%")[0]):
        raise ValueError("a wide field")
    return template.format(*values, **named)


def percent_format(template: Any, values: Any) -> Any:
    """Compute ``template % values``.

    Raises
    ------
    ValueError
        It asks for a wide field.
    """
    if isinstance(template, str) and _WIDE_FIELD.search(template):
        raise ValueError("a wide field")
    return template % values


def bound_method(of: Any, name: str) -> Callable[..., Any]:
    """Return a method of a text or a list."""
    return partial(format_text, of) if name == "format" else getattr(of, name)


def _all_groups_of_match(match: re.Match[str] | None) -> Any:
    """Return a match as a list of its groups, the complete match first."""
    return None if match is None else (match[0], *match.groups())


def _compile_safe_pattern(pattern: str, text: str) -> re.Pattern[str]:
    """Compile a pattern that cannot take long on a short text."""
    if len(_QUANTIFIER.findall(pattern)) > 6 or re.search(r"\)[*+{]", pattern) or len(text) > 256:
        raise ValueError("a regular expression that may take very long is not evaluated")
    return re.compile(pattern)


def _texts_and_numbers(value: Any) -> Any:
    """Return a value without lists and dictionaries inside, which the result would have to be, not copies of them."""
    if any(isinstance(each, list | dict) for each in (value if isinstance(value, list | tuple) else ())):
        raise ValueError("an object inside another")
    return value


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "str": lambda value="": value if isinstance(value, str) else str(value),
    "int": int,
    "float": float,
    "bool": bool,
    "len": len,
    "list": lambda value=(): list(value),
    "tuple": tuple,
    "sorted": lambda value: sorted(_texts_and_numbers(value)),
    "min": lambda *of: min(*map(_texts_and_numbers, of)),
    "max": lambda *of: max(*map(_texts_and_numbers, of)),
    "copy.deepcopy": lambda value: value,
    "abs": abs,
    "range": lambda *bounds: list(range(*bounds)[: MOST_ITEMS + 1]),
    "json.loads": json.loads,
    "json.dumps": lambda value, **_: json.dumps(value),
    "os.path.join": posixpath.join,
    "os.path.basename": os.path.basename,
    "os.path.dirname": os.path.dirname,
    "re.match": lambda pattern, text: _all_groups_of_match(_compile_safe_pattern(pattern, text).match(text)),
    "re.fullmatch": lambda pattern, text: _all_groups_of_match(
        _compile_safe_pattern(pattern, text).fullmatch(text)
    ),
    "re.search": lambda pattern, text: _all_groups_of_match(
        _compile_safe_pattern(pattern, text).search(text)
    ),
    "re.sub": lambda pattern, by, text: _compile_safe_pattern(pattern, text).sub(by, text),
    "re.split": lambda pattern, text: _compile_safe_pattern(pattern, text).split(text),
    "getopt.getopt": lambda words, short, long=(): getopt.getopt(words, short, list(long)),
}
"""Functions that are computed, by their place in Python's library."""


ROW_BY_ROW_METHODS = frozenset(
    {
        "alias",
        "cache",
        "checkpoint",
        "coalesce",
        "drop",
        "persist",
        "printSchema",
        "repartition",
        "select",
        "selectExpr",
        "toDF",
        "withColumn",
        "withColumnRenamed",
        "withColumns",
        "withWatermark",
    }
)
"""Methods of DataFrames that give a row for each row, unless a column that they are given reshapes."""

_RESHAPING = (
    r"\w*explode(_outer)?|inline(_outer)?|stack|window|"
    r"(try_)?(avg|sum)|\w+_agg(_\w+)?|regr_\w+|grouping(_id)?|histogram_numeric|(approx_)?percentile(_approx|_cont|_disc)?|approx_count_distinct|"
    r"any|every|some|bit_(and|or|xor)|bool_(and|or)|(any|first|last)_value|first|last|collect_(list|set)|corr|covar_(pop|samp)|kurtosis|"
    r"count(_distinct|Distinct|_if|_min_sketch)?|sum(_distinct|Distinct)|approx_top_k(_accumulate|_combine)?|listagg(_distinct)?|measure|"
    r"(max|min)(_by)?|mean|median|mode|product|skewness|std(dev)?(_pop|_samp)?|var(_pop|_samp)|variance"
)
"""Functions of Spark that make several rows of one, or one of several."""

_RESHAPING_NAME = re.compile(_RESHAPING)
_RESHAPING_TEXT = re.compile(rf"\b({_RESHAPING})\s*\(|\blateral\s+view\b", re.IGNORECASE)


def may_reshape(
    function: str, arguments: Iterable[Values], is_foreign: Callable[[str], bool] = lambda _: False
) -> bool:
    """Return whether a column of a function of Spark, or one that it is given, makes several rows of one, or one of several.

    Parameters
    ----------
    function
        Its name without its module.
    is_foreign
        Whether something of this origin may be any column.
    """
    return bool(_RESHAPING_NAME.fullmatch(function)) or any(
        value.reshapes or function in ("expr", "selectExpr") or is_foreign(value.origin)
        if isinstance(value, Unknown)
        else isinstance(value, str) and _RESHAPING_TEXT.search(value)
        for value in values_at_any_depth(arguments)
    )


def values_at_any_depth(arguments: Iterable[Values]) -> Iterator[Any]:
    """Return values, and those in their lists and dictionaries."""
    pending = [*arguments]
    for values in itertools.islice(pending, MOST_ITEMS):
        pending += (inner for value, _ in contents_of(values) for inner in values_inside(value))
    return (value for values in pending[:MOST_ITEMS] for value, _ in contents_of(values))


def single_texts(options: Mapping[str, Values]) -> tuple[tuple[str, str | None], ...]:
    """Return the text of each option; None for one that has several or is not known."""
    return tuple(
        (name, values[0].value if len(values) == 1 and isinstance(values[0].value, str) else None)
        for name, values in options.items()
    )


def glue_resolved_options(launch: LaunchArguments, asked: Iterable[str]) -> DictValue:
    """Return what Glue's ``getResolvedOptions`` gives: an argument that is asked for is there, or Glue ends the run."""
    options = {name: known_value(value, 0) for name, value in launch.arguments_by_name.items()}
    missing = {name: missing_argument_value(name) for name in asked if name not in options}
    return DictValue(options | missing)


def missing_argument_value(name: str) -> Values:
    """Return the value of an argument that the job does not have."""
    return known_value(Unknown(f"the argument --{name}, which the job does not have", unset=True), 0)


class _RaisingArgumentParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


_ACTIONS = ("store", "store_true", "store_false", "append", "extend", "count")
_TYPES = {"int": int, "float": float}


def parse_arguments(
    declared: Sequence[tuple[list[Any], Mapping[str, Values]]],
    words: Sequence[str],
    *,
    allow_abbrev: bool = True,
) -> DictValue:
    """Return the arguments of a run as ``argparse`` gives them.

    Parameters
    ----------
    declared
        Arguments of each ``add_argument``: names, and keywords; without names those of ``set_defaults``.
    words
        Arguments of the run.
    allow_abbrev
        Whether the start of a name is enough.
    """
    parser = _RaisingArgumentParser(add_help=False, allow_abbrev=allow_abbrev)
    defaults: dict[str, Values] = {}
    for names, keywords in declared:
        keyword_values = {key: value[0].value for key, value in keywords.items() if len(value) == 1}
        action = keyword_values.get("action", "store")
        if not names:
            defaults |= keywords
        if not names or not all(isinstance(each, str) for each in names) or action not in _ACTIONS:
            continue
        more: dict[str, Any] = {"action": action, "default": argparse.SUPPRESS} | {
            key: keyword_values[key]
            for key in ("dest", "nargs")
            if isinstance(keyword_values.get(key), str | int)
        }
        flag = action.startswith("store_")
        if not flag and action != "count":
            kind = keyword_values.get("type")
            more["type"] = _TYPES.get(kind.path if isinstance(kind, LibraryName) else "", str)
            if not names[0].startswith("-"):
                more.setdefault("nargs", "?")
        name = str(keyword_values.get("dest") or max(names, key=len).lstrip("-"))
        missing = known_value(action == "store_false", 0) if flag else missing_argument_value(name)
        has_default = "default" in keywords and keyword_values.get("default", ...) is not None
        dest = parser.add_argument(*names, **more).dest
        defaults[dest] = keywords["default"] if has_default else defaults.get(dest, missing)
    namespace, _ = parser.parse_known_args(list(words))
    given = {name: known_value(to_program_value(value, 0), 0) for name, value in vars(namespace).items()}
    return DictValue(defaults | given)


def environment_variable(environment: Values, name: Values, default: Values | None, line: int) -> Values:
    """Return an environment variable: as the job's settings or the program name it, else the program's default."""
    try:
        wanted = to_python_value(single_or_raise(name))
    except NoPythonValueError:
        return unknown_value("an environment variable", line)
    missing = default or known_value(Unknown(f"the environment variable {wanted}", unset=True), line)
    variables = as_dictionary(environment)
    values = variables.value_of_key(wanted, missing)
    may_be_missing = variables.more and wanted not in variables.values
    return union_of_alternatives(default or (), values) if may_be_missing else values
