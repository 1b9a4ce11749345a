"""Frozen dataclasses from decoded JSON: no missing and no unknown keys, every value of its type."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal

from .errors import SettingsError as SettingsError


def read_typed(kind: Any, value: Any, path: str) -> Any:
    """Read a value of a type.

    Parameters
    ----------
    kind
        A frozen dataclass, a union of those that ``kind`` tells apart, a class whose ``KINDS`` maps each kind to a
        ``module:Name``, a literal, a tuple, a mapping, or a plain type.
    value
        Value, decoded from JSON.
    path
        Path of the value in the document, for messages.

    Raises
    ------
    SettingsError
        An unknown or missing key or a value of the wrong type, with its path.
    """
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    registry = vars(kind).get("KINDS") if isinstance(kind, type) else None
    if registry is not None:
        return read_typed(_entry_for_kind(registry, value, path), value, path)
    if dataclasses.is_dataclass(kind):
        return _read_dataclass(kind, value, path)
    if origin is Literal:
        if value not in arguments or isinstance(value, bool):
            raise SettingsError(f"{path}: {value!r} is not one of {', '.join(map(repr, arguments))}")
        return value
    if origin in (typing.Union, types.UnionType):
        return _read_union(arguments, value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise SettingsError(f"{path}: expected a list, found {type(value).__name__}")
        return tuple(read_typed(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise SettingsError(f"{path}: expected an object, found {type(value).__name__}")
        return types.MappingProxyType(
            {k: read_typed(arguments[1], v, f"{path}.{k}") for k, v in value.items()}
        )
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        # JSON has no infinity, but Python reads 1e400 as one, and has integers too large for a float.
        if abs(value) <= sys.float_info.max:
            return float(value)
        raise SettingsError(f"{path}: expected a number between -1.8e308 and 1.8e308, found {value!r}")
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise SettingsError(f"{path}: expected {kind.__name__}, found {value!r}")
    return value


def read_versioned(kind: Any, text: str, path: str, version: int) -> Any:
    """Read a value of a type from a JSON object that also has a ``version``.

    Parameters
    ----------
    kind, path
        As in :func:`read_typed`.
    version
        The only accepted version.

    Raises
    ------
    ValueError
        Not JSON, another version, or as in :func:`read_typed`.
    """
    content: Any = json.loads(text)
    number = content.pop("version", None) if isinstance(content, dict) else None
    if number != version:
        raise SettingsError(
            f"format version {number!r} is not supported; this release reads version {version}"
        )
    return read_typed(kind, content, path)


def _read_union(arguments: tuple[Any, ...], value: Any, path: str) -> Any:
    if value is None and type(None) in arguments:
        return None
    candidates = [a for a in arguments if a is not type(None)]
    if len(candidates) == 1:
        return read_typed(candidates[0], value, path)
    names = [a for a in candidates if typing.get_origin(a) is Literal]
    if names and isinstance(value, str):
        return read_typed(names[0], value, path)
    candidates = [a for a in candidates if a not in names]
    kinds = {k: c for c in candidates for k in typing.get_args(typing.get_type_hints(c)["kind"])}
    return read_typed(_entry_for_kind(kinds, value, path), value, path)


def _entry_for_kind(kinds: Mapping[str, Any], value: Any, path: str) -> Any:
    """Return the entry for the ``kind`` of an object."""
    kind: Any = value.get("kind") if isinstance(value, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        raise SettingsError(f"{path}.kind: {kind!r} is not one of {', '.join(map(repr, kinds))}")
    return kinds[kind]


def import_object(loader: str) -> Any:
    """Import the object that ``module:Name`` names."""
    module, _, name = loader.partition(":")
    return getattr(importlib.import_module(module, (__package__ or "").rpartition(".")[0]), name)


def import_module_of(settings: Any) -> Any:
    """Import the module that runs settings: ``MODULE`` of their class names it, by their kind."""
    return importlib.import_module(settings.MODULE.format(kind=settings.kind), __package__)


def to_json_value(value: Any) -> Any:
    """Return what JSON holds of a value that :func:`read_typed` made."""
    if dataclasses.is_dataclass(value):
        return {each.name: to_json_value(getattr(value, each.name)) for each in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: to_json_value(item) for key, item in value.items()}
    return [to_json_value(item) for item in value] if isinstance(value, tuple) else value


def versioned_json(value: Any, version: int) -> str:
    """Return the text that :func:`read_versioned` reads back."""
    return json.dumps({"version": version, **to_json_value(value)}, indent=1, sort_keys=True)


def _read_dataclass(kind: Any, value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise SettingsError(f"{path}: expected an object, found {type(value).__name__}")
    types_of = typing.get_type_hints(kind)
    hints = {each.name: types_of[each.name] for each in dataclasses.fields(kind)}
    unknown, missing = sorted(value.keys() - hints.keys()), sorted(hints.keys() - value.keys())
    if unknown or missing:
        parts = [f"unknown keys {', '.join(unknown)}"] * bool(unknown)
        parts += [f"missing keys {', '.join(missing)}"] * bool(missing)
        raise SettingsError(f"{path}: {'; '.join(parts)}")
    return kind(**{name: read_typed(hint, value[name], f"{path}.{name}") for name, hint in hints.items()})
