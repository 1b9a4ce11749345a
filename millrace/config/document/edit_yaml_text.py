"""Edits to the text of a YAML file: one value is set or removed, every other byte stays."""

from __future__ import annotations

import io
import json
import re
from contextlib import suppress
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from millrace.config.document.problems import Path, dotted_path

_WIDE = 1_000_000
"""Line width in characters, so large that a value on one line stays on one."""

_INDENTED_LINE = re.compile(r"^( +)[^ \r\n#-]", re.MULTILINE)
"""A line that shows the indent of its file."""


class EditError(ValueError):
    """A place that cannot be edited, with the reason."""


def set_value(text: str, path: Path, value: Any) -> str:
    r"""Set one value in a file's text; a missing key is added, with the mappings above it.

    Parameters
    ----------
    text
        One YAML mapping.
    path
        Keys and list positions.
    value
        A value that JSON can hold. A key whose value is a block of several lines is refused.

    Raises
    ------
    EditError
        The place cannot be found, or does not hold a single value.

    Examples
    --------
    >>> set_value("a: 1 # one\nb: {c: 2}\n", ("b", "d"), "4s")
    'a: 1 # one\nb: {c: 2, d: 4s}\n'
    """
    node: Node = _root_node(text)
    above = node
    for depth, step in enumerate(path):
        if (child := _child_node(node, step)) is None:
            return _insert_value(text, node, path, depth, value)
        above, node = node, child
    if not _is_on_one_line(node):
        raise EditError(f"{dotted_path(path)} spans several lines")
    begin, end = _node_span(node)
    if begin == end and isinstance(above, MappingNode):  # an empty value: the new one goes after the colon
        at = _value_end(*next((each, key) for key, each in above.value if each is node))
        return f"{text[:at]} {_value_in_yaml(value)}{text[at:]}"
    return text[:begin] + _value_in_yaml(value) + text[end:]


def remove_key(text: str, path: Path) -> str:
    """Remove one key and its value from a file's text, with the comments on its lines.

    Raises
    ------
    EditError
        The key does not exist, is the only key of its mapping, or begins a list item; a block spans several lines within
        braces.
    """
    *above, last = path
    node: Node | None = _root_node(text)
    for step in above:
        node = _child_node(node, step) if node is not None else None
    if not isinstance(node, MappingNode):
        raise EditError(f"{dotted_path(path)} is not there")
    if (place := next((n for n, (key, _) in enumerate(node.value) if key.value == last), None)) is None:
        merged = any(key.value == "<<" for key, _ in node.value)
        raise EditError("it comes by the merge key <<" if merged else f"{dotted_path(path)} is not there")
    key, value = node.value[place]
    begin, end = key.start_mark.index, _value_end(value, key)
    if not node.flow_style:
        if len(node.value) == 1:
            raise EditError(
                f"{dotted_path(path)} is the only key of {dotted_path(tuple(above))}; remove "
                f"{dotted_path(tuple(above))} by hand"
            )
        if text[text.rfind("\n", 0, begin) + 1 : begin].strip():
            raise EditError(
                f"{dotted_path(path)} is the first key of an item of a list, which cannot be removed "
                "automatically; remove it by hand"
            )
        line_end = text.find("\n", end)
        stop = len(text) if line_end < 0 else line_end + 1
        return text[: text.rfind("\n", 0, begin) + 1] + text[stop:]
    if place > 0:
        begin = _value_end(*reversed(node.value[place - 1]))
    elif len(node.value) > 1:
        end = node.value[1][0].start_mark.index
    return text[:begin] + text[end:]


def _root_node(text: str) -> MappingNode:
    try:
        node = YAML(typ="safe", pure=True).compose(text)
    except (MarkedYAMLError, YAMLError, RecursionError) as error:
        raise EditError("not readable YAML") from error
    if not isinstance(node, MappingNode):
        raise EditError("the file is not a mapping of keys to values")
    return node


def _child_node(node: Node, step: str | int) -> Node | None:
    if isinstance(node, SequenceNode) and isinstance(step, int):
        if step >= len(node.value):
            raise EditError(f"there is no item {step}: the list has {len(node.value)}, counted from 0")
        child: Node = node.value[step]
        return child
    if isinstance(node, MappingNode):
        return next((value for key, value in node.value if key.value == step), None)
    raise EditError(f"the value above {step} is not a mapping of keys to values")


def _is_on_one_line(node: Node) -> bool:
    """Return whether a value is in flow style, quoted or plain, not in block style."""
    if isinstance(node, MappingNode | SequenceNode):
        return bool(node.flow_style)
    return not isinstance(node, ScalarNode) or node.style not in ("|", ">")


def _node_span(node: Any) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index


def _value_end(value: Node, key: Node | None = None) -> int:
    """Return the index at which a value ends; a block's own end mark lies after the comments that follow it.

    An alias has the marks of its anchor, which is above, and an empty value those of the next token: for an entry with either,
    the index after the colon.
    """
    begin, end = _node_span(value)
    if key is not None and not (after := _node_span(key)[1] + 1) <= begin < end:
        return after
    if isinstance(value, MappingNode | SequenceNode) and not value.flow_style:
        last = value.value[-1]
        return _value_end(*reversed(last)) if isinstance(value, MappingNode) else _value_end(last)
    return end if _is_on_one_line(value) else max(begin, end - 1)  # a block of text ends at its last line


def _value_in_yaml(value: Any) -> str:
    """Return a value on one line, valid inside other YAML."""
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = True
    yaml.width = _WIDE
    yaml.allow_unicode = True
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]  # declared as None
    stream = io.StringIO()
    yaml.dump({"k": value}, stream)
    written = str(stream.getvalue()).strip().removeprefix("{k: ").removesuffix("}")
    # Some plain words, such as ":0", are valid in a block but not within braces, and the library writes both the
    # same way. JSON is YAML in both places.
    with suppress(YAMLError):
        if YAML(typ="safe", pure=True).load(f"a: {{b: 0, k: {written}}}") == {"a": {"b": 0, "k": value}}:
            return written
    return json.dumps(value, ensure_ascii=False)


def _insert_value(text: str, node: Node, path: Path, depth: int, value: Any) -> str:
    rest = path[depth:]
    if not isinstance(node, MappingNode) or not all(isinstance(step, str) for step in rest):
        raise EditError(
            f"{dotted_path(path[:depth])} is not a mapping, so the key {rest[0]} cannot be added to it"
        )
    if node.flow_style:
        nested = value
        for step in reversed(rest[1:]):
            nested = {step: nested}
        entry = f"{_value_in_yaml(rest[0])}: {_value_in_yaml(nested)}"
        if not node.value:
            at = _node_span(node)[1] - 1
            return text[:at] + entry + text[at:]
        at = _value_end(*reversed(node.value[-1]))
        return f"{text[:at]}, {entry}{text[at:]}"
    first = node.value[0][0].start_mark
    indented = _INDENTED_LINE.search(text)
    step = len(indented[1]) if indented else 2
    lines = [f"{' ' * (first.column + step * n)}{_value_in_yaml(key)}:" for n, key in enumerate(rest)]
    lines[-1] += f" {_value_in_yaml(value)}"
    ends = "\r\n" if "\r\n" in text else "\n"
    block = ends.join(lines)
    single = [each for each in node.value if _is_on_one_line(each[1])]
    if len(rest) > 1:  # a new mapping goes last, after its neighbours' blocks
        return _with_lines_after(text, _value_end(node), block, ends)
    if single:  # a new value goes with the other single values, before blocks
        return _with_lines_after(text, _value_end(*reversed(single[-1])), block, ends)
    begin, indent = int(first.index), " " * int(first.column)
    return f"{text[:begin]}{block.lstrip()}{ends}{indent}{text[begin:]}"


def _with_lines_after(text: str, at: int, block: str, ends: str) -> str:
    """Add lines after the line of a place."""
    line_end = text.find("\n", at)
    if line_end < 0:
        return text + ends + block + ends
    return text[: line_end + 1] + block + ends + text[line_end + 1 :]
