"""Values that ``millrace import`` could not read: lines of the file that a person has to fill in."""

from __future__ import annotations

from collections.abc import Iterator

from millrace.config.document.problems import Finding
from millrace.config.document.yaml_tree import Tree

_MARK = "(open) "


def placeholder_for_question(question: str) -> str:
    """Return the text that stands in the place of a value."""
    return f"{_MARK}{question}"


def question_of_placeholder(value: str) -> str:
    """Return what such a text asks."""
    return value.removeprefix(_MARK)


def is_placeholder(value: object) -> bool:
    """Return whether a value is such a text."""
    return isinstance(value, str) and value.startswith(_MARK)


def findings_of_placeholders(tree: Tree) -> Iterator[Finding]:
    """Yield a finding for each such line of a file."""
    allowed = "the value itself, which `millrace import` could not read"
    return (Finding(path, value, allowed) for path, value in tree.leaves if is_placeholder(value))
