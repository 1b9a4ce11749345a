"""YAML files as trees in which each value keeps its file and line."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property
from pathlib import Path as FilePath
from typing import Any

from _ruamel_yaml import CParser
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.tag import Tag

from millrace.config.document.problems import Finding, Path, dotted_path

_MERGE_TAG = "tag:yaml.org,2002:merge"
_READ_DIFFERENTLY = re.compile(r"[\t\x85\u2028\u2029\ufeff]|[&*]\S*:|[|>]\S*#")
"""Tabs, signs that end a line in YAML 1.1 alone, byte order marks, anchors that end with a colon, comments without a space."""

_MOST_BYTES = 512 * 1024
"""Limit of a file, whose reading takes seconds: five hundred jobs of a thousand bytes each."""

_MOST_VALUES = 50_000
"""Limit, because nested aliases can make a small file huge; no environment is close to it."""

_DEEPEST = 200
"""Limit of values in values; no environment is close to it."""

_MOST_DIGITS = 18
_LARGEST = 10**_MOST_DIGITS
"""Limit of numbers; no value of an environment is close to it, and floats overflow far above it."""

_LONGEST_NUMBER = 1000
"""Characters of a number that need no reading, leading zeros and all."""


@dataclass(frozen=True)
class Tree:
    """A value of a YAML file and the place of its key.

    Attributes
    ----------
    file, line
        Place of the key or list item; lines count from 1.
    value
        A scalar, a ``dict[str, Tree]`` or a ``list[Tree]``.
    text
        A scalar as it is written in the file; its value may differ: ``0123`` and ``1.10`` are numbers.
    """

    file: FilePath
    line: int
    value: Any
    text: str | None = field(default=None, compare=False)

    def to_json(self) -> Any:
        """Return the value without places, as JSON holds it."""
        if isinstance(self.value, dict):
            return {key: child.to_json() for key, child in self.value.items()}
        if isinstance(self.value, list):
            return [child.to_json() for child in self.value]
        return self.value

    def nearest_existing(self, path: Path) -> Tree:
        """Return the value at ``path``, or its closest ancestor that exists."""
        tree = self
        for step in path:
            if (child := tree.child(step)) is None:
                return tree
            tree = child
        return tree

    def at(self, path: Path) -> Tree | None:
        """Return the value at ``path``, if it exists."""
        tree: Tree | None = self
        for step in path:
            tree = None if tree is None else tree.child(step)
        return tree

    def scalar_text(self, path: Path) -> str | None:
        """Return the text of the scalar at ``path``, if there is one."""
        node = self.at(path)
        return None if node is None else node.text

    def child(self, step: str | int) -> Tree | None:
        """Return the value one step down, if it exists."""
        if isinstance(self.value, dict):
            return self.value.get(step)
        is_item = isinstance(self.value, list) and isinstance(step, int) and step < len(self.value)
        return self.value[step] if is_item else None

    @cached_property
    def leaves(self) -> list[tuple[Path, Any]]:
        """Every scalar with its path."""
        return list(self._leaves_below(()))

    def _leaves_below(self, path: Path) -> Iterator[tuple[Path, Any]]:
        if not isinstance(self.value, dict | list):
            yield path, self.value
            return
        for step, child in self.value.items() if isinstance(self.value, dict) else enumerate(self.value):
            yield from child._leaves_below((*path, step))


@dataclass(frozen=True)
class Document:
    """One parsed file: its tree, and its mistakes as YAML."""

    tree: Tree
    mistakes: tuple[tuple[Finding, int], ...]
    """Duplicate keys, each with the line of the second, and keys between braces without a colon."""


class DocumentError(ValueError):
    """A file that cannot be read as one YAML mapping.

    Attributes
    ----------
    line
        Most likely line of the mistake; 0 if there is none.
    allowed
        What the file may hold there.
    """

    def __init__(self, message: str, line: int = 0, allowed: str = "readable YAML") -> None:
        self.line, self.allowed = line, allowed
        super().__init__(message)


def read_document(path: FilePath, text: str | None = None) -> Document:
    """Read one YAML file.

    Parameters
    ----------
    path
        An existing file, UTF-8, one document, a mapping at the top.
    text
        Text that the file would have; left out, the file is read.

    Raises
    ------
    DocumentError
        The file cannot be read, is not YAML, or is no mapping.
    """
    try:
        size = path.stat().st_size if text is None else len(text.encode())
        fits = text is None and size <= _MOST_BYTES
        text = path.read_text(encoding="utf-8") if fits else text or ""
    except UnicodeDecodeError as error:
        raise DocumentError(f"not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise DocumentError(error.strerror or str(error)) from error
    if size > _MOST_BYTES:
        raise DocumentError(
            f"{size:,} bytes",
            allowed=f"at most {_MOST_BYTES:,} bytes; divide the jobs into several environments",
        )
    try:
        root, yaml = _nodes_and_constructor(text)
        if not isinstance(root, MappingNode):
            raise DocumentError("an empty file" if root is None else "not a mapping of keys", line=1)
        reader = _TreeBuilder(path, yaml)
        tree = reader.build_tree(root, line=1, above=(), path=())
    except MarkedYAMLError as error:
        raise _located_error(error, text) from error
    except RecursionError as error:
        raise DocumentError("YAML that is nested too deeply") from error
    except DocumentError:
        raise
    except (YAMLError, ValueError) as error:
        raise DocumentError(str(error).splitlines()[0]) from error
    return Document(tree, tuple(reader.mistakes))


def _nodes_and_constructor(text: str) -> tuple[Node | None, Any]:
    """Return the nodes of a text, and what constructs their values.

    libyaml is ten times as fast. What it refuses ruamel.yaml reads, which says better what is wrong, and what the two read differently.
    """
    yaml: Any = YAML(typ="safe", pure=True)
    if not _READ_DIFFERENTLY.search(text):
        with suppress(YAMLError):
            return _Composer(text).get_single_node(), yaml
    return yaml.compose(text), yaml


class _Composer(CParser):  # type: ignore[misc]  # it has no types
    """libyaml's composer, with the tags of ruamel.yaml, which are those of YAML 1.2."""

    _depth = 0

    def resolve(self, kind: Any, value: str | None, implicit: Any) -> Tag:
        """Return the tag of a node without one."""
        return _tag(kind, value, implicit)

    def descend_resolver(self, parent: Node | None, index: Any) -> None:
        """Begin a node; refuse one so deep that it could overflow the stack of a composer in C."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise RecursionError

    def ascend_resolver(self) -> None:
        """End a node."""
        self._depth -= 1


@cache
def _tag(kind: Any, value: str | None, implicit: Any) -> Tag:
    return _shared_tag(str(_RESOLVER.resolve(kind, value, implicit)))


@cache
def _shared_tag(text: str) -> Tag:
    # A tag reads its text letter by letter, once.
    return Tag(suffix=text)


_RESOLVER = YAML(typ="safe", pure=True).resolver


def _located_error(error: MarkedYAMLError, text: str) -> DocumentError:
    """Turn a YAML error into one that names the line where the broken value starts; the parser usually stops later."""
    begun, mark = error.context_mark, error.problem_mark or error.context_mark
    line = mark.line + 1 if mark is not None else 0
    problem = str(error.problem or error.context)
    if begun is not None and (opened := _OPENED.get(str(error.context))):
        left = text.splitlines()[begun.line][: begun.column].rstrip("[{ ")
        after = f" of {key[1]}" if (key := re.search(r"([\w.-]+) *:$", left)) else ""
        end = {"{": "}", "[": "]"}.get(opened, "the same quote")
        return DocumentError(
            f"the {opened}{after} is not closed",
            begun.line + 1,
            f"{end} at its end; the parser stopped on line {line}",
        )
    if "\\t" in problem:
        return DocumentError("a tab", line, "spaces, because YAML allows no tabs before a key")
    if problem.startswith("mapping values are not allowed"):
        return DocumentError(
            problem,
            line,
            "one `key: value` on a line, indented like its neighbours; quotes around a text with ': ' in it",
        )
    return DocumentError(problem, line)


_OPENED = {
    "while parsing a flow mapping": "{",
    "while parsing a flow sequence": "[",
    "while scanning a quoted scalar": "quote",
}
"""Context in the YAML parser's words, to the sign that opened it."""


def merge_trees(base: Tree, over: Tree) -> Tree:
    """Merge one tree into another: mappings merge, scalars and lists replace, and null removes what the base has."""
    if not (isinstance(base.value, dict) and isinstance(over.value, dict)):
        return over
    merged = dict(base.value)
    for key, child in over.value.items():
        if child.value is None and key in merged:
            del merged[key]
        else:
            merged[key] = merge_trees(merged[key], child) if key in merged else child
    return Tree(over.file, over.line, merged)


class _TreeBuilder:
    def __init__(self, file: FilePath, yaml: Any) -> None:
        self._file = file
        self._constructor = yaml.constructor
        self._seen = 0
        self.mistakes: list[tuple[Finding, int]] = []

    def build_tree(self, node: Node, line: int, above: tuple[int, ...], path: Path) -> Tree:
        self._seen += 1
        if self._seen > _MOST_VALUES:
            raise DocumentError(
                f"the file has more than {_MOST_VALUES} values, the limit, once its aliases are expanded",
                line,
            )
        if id(node) in above:
            raise DocumentError("a YAML alias that contains itself", line)
        above = (*above, id(node))
        if (tag := str(node.tag)).startswith("!") and tag != "!":
            text = f"{dotted_path(path)} has the tag {tag}, which means nothing here; `null` removes what `extends` brings"
            raise DocumentError(text, line)
        if isinstance(node, MappingNode):
            return Tree(self._file, line, self._mapping(node, above, path))
        if isinstance(node, SequenceNode):
            items = [
                self.build_tree(item, item.start_mark.line + 1, above, (*path, position))
                for position, item in enumerate(node.value)
            ]
            return Tree(self._file, line, items)
        return Tree(self._file, line, self._scalar(node, line, path), str(node.value))

    def _mapping(self, node: MappingNode, above: tuple[int, ...], path: Path) -> dict[str, Tree]:
        own: dict[str, Tree] = {}
        inherited: dict[str, Tree] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag == _MERGE_TAG or (key_node.value == "<<" and not key_node.style):
                for merged in self._mappings_of_merge_key(value_node, above, path, line):
                    inherited = {**merged, **inherited}
                continue
            if not isinstance(key_node, ScalarNode):
                raise DocumentError("a list or a mapping as a key; write a plain word", line)
            key = str(key_node.value)
            if key in own:
                wrong = "written twice", f"each key once; the first is on line {own[key].line}"
            elif node.flow_style and value_node.start_mark.index == key_node.end_mark.index:
                wrong = "no value", f"{key}: VALUE; inside {{ }} a comma ends a value"
            else:
                own[key] = self.build_tree(value_node, line, above, (*path, key))
                continue
            self.mistakes.append((Finding((*path, key), *wrong), line))
        return {**inherited, **own}

    def _mappings_of_merge_key(
        self, node: Node, above: tuple[int, ...], path: Path, line: int
    ) -> list[dict[str, Tree]]:
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        trees = []
        for each in nodes:
            tree = self.build_tree(each, line, above, path)
            if not isinstance(tree.value, dict):
                raise DocumentError("the YAML key << takes a mapping or a list of mappings", line)
            trees.append(tree.value)
        return trees

    def _scalar(self, node: Node, line: int, path: Path) -> Any:
        try:
            # Python reads no number of thousands of digits.
            is_huge = str(node.tag).endswith(":int") and len(node.value) > _LONGEST_NUMBER
            value = _LARGEST if is_huge else self._constructor.construct_object(node)
        except (KeyError, ValueError, AttributeError, OverflowError) as error:
            # A tag does not fit its text, such as !!bool maybe.
            raise DocumentError(
                f"{dotted_path(path)} has the tag !!{str(node.tag).rsplit(':', 1)[-1]}, which its value does not fit",
                line,
            ) from error
        if isinstance(value, (date, bytes)):
            value = str(node.value)
        if isinstance(value, str) and "\0" in value:
            raise DocumentError(f"{dotted_path(path)} holds a NUL character", line)
        if isinstance(value, int) and abs(value) >= _LARGEST:
            raise DocumentError(f"{dotted_path(path)} is a number of more than {_MOST_DIGITS} digits", line)
        return value


def is_file(path: FilePath) -> bool:
    """Return whether a file exists; False for a name that is too long for the file system."""
    return os.path.isfile(path)  # noqa: PTH113 - a path's own method raises an error for such a name


def is_folder(path: FilePath) -> bool:
    """Return whether a folder exists; False for such a name, too."""
    return os.path.isdir(path)  # noqa: PTH112 - as above
