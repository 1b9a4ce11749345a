"""Methods of lists and dictionaries: what one holds afterwards, and what the method returns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from millrace.advisor.programs.possible_values import (
    MOST_ITEMS,
    DictValue,
    ListValue,
    MutableObject,
    Unknown,
    Values,
    as_dictionary,
    contents_of,
    known_value,
    loop_values,
    union_of_alternatives,
    unknown_value,
    values_inside,
    with_item,
)
from millrace.advisor.programs.python_values import (
    NoPythonValueError,
    single_or_raise,
    to_python_value,
)


def call_container_method(
    of: Any, name: str, arguments: Sequence[Values], named: DictValue, line: int
) -> tuple[Any, Values]:
    """Return what a container holds after a method, and the method's result; both are unknown for a method that is not computed."""
    changed: Any = of
    try:
        if name == "__setitem__" and not _is_slice(arguments[0]):
            changed, result = with_item(of, *arguments), known_value(None, line)
        elif isinstance(of, DictValue):
            changed, result = _call_dict_method(of, name, arguments, named, line)
        elif isinstance(of, ListValue) and not named.values and not named.more:
            changed, result = _call_list_method(of, name, arguments, line)
        else:
            raise NoPythonValueError
    except Exception:  # the values are not plain, or the program's Python raises it too
        return Unknown(f"{name}()"), unknown_value(f"{name}()", line)
    if len(values_inside(changed)) > MOST_ITEMS:
        return Unknown("a value with too many items"), result
    return changed, result


def _is_slice(key: Values) -> bool:
    return any(isinstance(each.value, ListValue) and each.value.kind is slice for each in key)


def _plain(values: Values) -> Any:
    return to_python_value(single_or_raise(values))


def _items_or_raise(values: Values, line: int) -> list[Values]:
    items = loop_values(values, line)
    if items is None:
        raise NoPythonValueError
    return items


def _call_list_method(
    of: ListValue, name: str, arguments: Sequence[Values], line: int
) -> tuple[ListValue, Values]:
    items = list(of.values)
    result = known_value(None, line)
    call: tuple[Any, ...] = (name, *arguments)
    match call:
        case _ if of.kind is not list:
            raise NoPythonValueError
        case ("append", item):
            items.append(item)
        case ("extend" | "__iadd__", more):
            items.extend(_items_or_raise(more, line))
        case ("pop", *place):
            result = items.pop(*map(_plain, place))
        case ("clear",):
            items.clear()
        case ("copy",):
            return of, MutableObject.holding(of, line=line)
        case ("__setitem__", bounds, more):
            items[_plain(bounds)] = _items_or_raise(more, line)
        case _:
            raise NoPythonValueError
    return ListValue(tuple(items)), result


def _call_dict_method(
    of: DictValue, name: str, arguments: Sequence[Values], named: DictValue, line: int
) -> tuple[DictValue, Values]:
    table = dict(of.values)
    result = known_value(None, line)
    call: tuple[Any, ...] = (name, *arguments)
    match call:
        case ("get", key, *default):
            missing = default[0] if default else result
            return of, union_of_alternatives(
                *(
                    (each,) if isinstance(each.value, Unknown) else of.value_of_key(each.value, missing)
                    for each in contents_of(key)
                )
            )
        case ("update" | "__ior__", *given):
            for each in given:
                of = of.updated_with(as_dictionary(each))
            return of.updated_with(named), result
        case ("setdefault", key, *default):
            result = of.value_of_key(_plain(key), default[0] if default else result)
            if of.more:
                result = union_of_alternatives(result, *default)
            table[_plain(key)] = result
        case ("pop" | "__delitem__", key, *default):
            missing = default[0] if default else unknown_value(f"the key {_plain(key)}", line)
            result = of.value_of_key(_plain(key), missing)
            table.pop(_plain(key), None)
        case ("clear",):
            return DictValue(), result
        case ("copy" | "asDict",):
            return of, MutableObject.holding(of, line=line)
        case ("items" | "values",):
            keys = loop_values(known_value(of, line), line)
            if keys is None:
                return of, unknown_value(of.more or f"{name}()", line)
            pairs = tuple(known_value(ListValue((key, of.values[key[0].value]), tuple), line) for key in keys)
            values = pairs if name == "items" else tuple(of.values.values())
            return of, MutableObject.holding(ListValue(values), line=line)
        case _:
            raise NoPythonValueError
    return DictValue(table, of.more), result
