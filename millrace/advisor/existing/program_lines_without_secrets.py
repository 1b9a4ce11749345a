"""Lines of a program, without its statements and comments that may hold a secret.

A secret often has no form of its own, and its name may be in another line than its value. So whole statements are judged: by the names and
texts in them. In doubt a statement is left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from millrace.config.document.plain_text_secrets import has_secret_form

_NAMES = re.compile(
    r"pass(?![a-z])|passw|pass_?(phrase|code|key)|pwd|(?<![a-z])(psw|pin|otp|jwt|sas)(?![a-z])|pw(?![a-z])|secret|token|cred(?![a-z])|credential"
    r"|^-p\w|auth(?!or(?!iz))|jaas|bearer|private|signature|cookie"
    r"|(access|account|api|encryption|license|master|service|session|shared|signing|storage)[_. -]?(access[_. -]?)?key"
)
"""Names of secrets in snake case; wider than those of an environment file, as a statement that is left out costs little."""

_SIGN_IN = re.compile(r"connect|log_?in|log_?on|sign_?in")
"""Functions that take secrets by their place."""

_RANDOM = re.compile(r"\b(?=\w*[A-Za-z]\d)(?=\w*\d[A-Za-z])\w{8,}")
"""A word with digits between letters, as passwords have them."""

_LEFT_OUT = "(this line may hold a secret)"


def snake_case(name: str) -> str:
    """Return a name in small letters, its words divided by underscores."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def lines_without_secrets(program: str) -> list[str]:
    """Return the lines of a program; a remark takes the place of each that may hold a secret.

    Parameters
    ----------
    program
        Its source, which is valid Python.
    """
    lines = re.split(r"\r\n?|\n", program)
    hidden = {
        line
        for first, last in (*_statements_with_secrets(program), *_comments_with_secrets(lines))
        for line in range(first, last + 1)
    }
    return [
        f"{line[: len(line) - len(line.lstrip())]}{_LEFT_OUT}" if number in hidden else line
        for number, line in enumerate(lines, 1)
    ]


class _Statement(NamedTuple):
    """A statement without those inside it: its lines, and the nodes of its expressions."""

    first: int
    last: int
    nodes: list[ast.AST]

    @property
    def may_hold_secret(self) -> bool:
        """True if it has a secret's name or form, or signs in."""
        constants = [node for node in self.nodes if isinstance(node, ast.Constant)]
        constants.sort(key=lambda one: (one.lineno, one.col_offset))
        texts = [_text_of_constant(one) for one in constants if isinstance(one.value, str | bytes)]
        names = [name for node in self.nodes for name in _names_in_node(node)]
        functions = [getattr(each.func, "attr", getattr(each.func, "id", "")) for each in self.calls]
        signs_in = any(_SIGN_IN.search(snake_case(each)) for each in functions)
        return signs_in or _may_hold_secret([*names, *texts]) or has_secret_form("".join(texts))

    @property
    def calls(self) -> list[ast.Call]:
        """The calls in it, but those of a text's own methods."""
        return [
            node
            for node in self.nodes
            if isinstance(node, ast.Call)
            and not (isinstance(node.func, ast.Attribute) and isinstance(node.func.value, ast.Constant))
        ]

    def names(self, use: type[ast.expr_context]) -> set[str]:
        """Return the names that it reads, or those that it sets."""
        return {node.id for node in self.nodes if isinstance(node, ast.Name) and isinstance(node.ctx, use)}


def _text_of_constant(constant: ast.Constant) -> str:
    value = constant.value
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)


def _names_in_node(node: ast.AST) -> Iterator[str]:
    if not isinstance(node, ast.Constant):
        for _, field in ast.iter_fields(node):
            yield from (
                each for each in (field if isinstance(field, list) else [field]) if isinstance(each, str)
            )


def _may_hold_secret(texts: Sequence[str]) -> bool:
    return any(
        _NAMES.search(snake_case(each)) or _RANDOM.search(each) or has_secret_form(each) for each in texts
    )


def _statements_with_secrets(program: str) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of each statement that may hold a secret, or a text for such a statement."""
    statements = [
        _statement_of_node(each) for each in ast.walk(ast.parse(program)) if isinstance(each, ast.stmt)
    ]
    setting: dict[str, list[_Statement]] = {}
    for each in statements:
        for name in () if each.calls else each.names(ast.Store):
            setting.setdefault(name, []).append(each)
    waiting = [each for each in statements if each.may_hold_secret]
    while waiting:
        one = waiting.pop()
        yield one.first, one.last
        for name in one.names(ast.Load):
            waiting += setting.pop(name, [])


def _statement_of_node(statement: ast.stmt) -> _Statement:
    nodes: list[ast.AST] = [statement]
    for node in nodes:
        nodes += [each for each in ast.iter_child_nodes(node) if not isinstance(each, ast.stmt)]
    whole = not isinstance(getattr(statement, "body", None), list)
    placed = [each for each in nodes if isinstance(each, ast.expr | ast.arg | ast.keyword)]
    lines = [each.end_lineno or each.lineno for each in placed]
    last = (statement.end_lineno or statement.lineno) if whole else max(lines, default=statement.lineno)
    return _Statement(min([statement.lineno, *(each.lineno for each in placed)]), last, nodes)


def _comments_with_secrets(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last line of neighbouring comments that may hold a secret."""
    first, comments = 1, list[str]()
    for number, line in enumerate([*lines, ""], 1):
        if "#" in line:
            comments.append(line.partition("#")[2])
            continue
        if _may_hold_secret(comments) or has_secret_form("".join(comments)):
            yield first, number - 1
        first, comments = number + 1, []
