"""Options of a stream's reader and writer, by the methods that set them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace.advisor.programs.possible_values import (
    Alternative,
    DictValue,
    Unknown,
    Values,
    as_dictionary,
    contents_of,
    union_of_alternatives,
    unknown_of_values,
    unknown_value,
)

FORMAT, CATALOG, GLUE, TRIGGER, SINK = "format", "catalog", "glue", "trigger", "sink"
"""Options under which a source keeps its format, and that it is a table of the Data Catalog or read by Glue, and a query its trigger and
its sink.
"""

_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "option": ("key", "value"),
    "format": ("source",),
    "trigger": ("processingTime",),
    "foreachBatch": ("func",),
    "foreach": ("func",),
}
"""Methods that set an option, with their parameters."""


def _trigger_of_kind(kind: str, values: Values) -> Values:
    """Return the intervals of a trigger, or the name of another kind in small letters; a kind without a value is none."""
    return tuple(
        each
        if kind == "processingTime" or isinstance(each.value, Unknown)
        else Alternative(kind.lower(), each.line)
        for each in contents_of(values)
        if each.value not in (None, False)
    )


def with_lower_case_names(options: DictValue) -> DictValue:
    """Return options by their names in small letters."""
    return DictValue(
        {str(key).lower(): value for key, value in options.values.items()},
        options.more,
    )


def options_of_method(name: str, arguments: Sequence[Values], named: DictValue, line: int) -> DictValue:
    """Return the options that a method of a reader or writer sets; none for other methods."""
    if name == "options":
        return with_lower_case_names(named.updated_with(as_dictionary(arguments[0])) if arguments else named)
    if name not in _PARAMETERS:
        return DictValue()
    given = dict(zip(_PARAMETERS[name], arguments, strict=False)) | dict(named.values)
    if name == "trigger":
        kinds = [_trigger_of_kind(kind, value) for kind, value in given.items()]
        return DictValue(
            {TRIGGER: union_of_alternatives(*kinds) or unknown_value(named.more or "a trigger", line)}
        )
    value = given.get(_PARAMETERS[name][-1], ())
    if name != "option":
        return DictValue({FORMAT if name == "format" else SINK: value})
    key = given.get("key", ())
    if len(key) == 1 and not isinstance(key[0].value, Unknown):
        return DictValue({str(key[0].value).lower(): value})
    return DictValue({}, unknown_of_values(key, "an option of several names", line)[0].value.origin)
