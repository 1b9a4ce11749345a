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

_CLIENT = re.compile(r"^[A-Z]|client|session")
"""Classes and functions that may take secrets by their place, after the first one."""

_USER = re.compile(r"//[^/\s:@]*:[^/\s@]*@|(^|\s)(-u|--user)($|[\s=]+\S*:)")
"""A user and a password in a URL or a command, also where values stand between the texts."""

_UNCLEAR_NAME = re.compile(r"api|key|\w*salt")
"""Names of secrets and of many others: they count where a text is assigned to them."""

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
        whole = "".join(texts)
        return (
            any(map(_may_sign_in, self.calls))
            or _may_hold_secret([*names, *texts])
            or has_secret_form(whole)
            or any(_USER.search(each) for each in (*texts, whole))
            or (
                isinstance(self.nodes[0], ast.Assign | ast.AnnAssign)
                and isinstance(self.nodes[0].value, ast.Constant)
                and any(_UNCLEAR_NAME.fullmatch(snake_case(each)) for each in self.names(ast.Store))
            )
        )

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


def _may_sign_in(call: ast.Call) -> bool:
    """Return whether a call may take a secret by its place."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    inside = [one for each in call.args[1:] for one in ast.walk(each)]
    has_text = any(isinstance(each, ast.Constant) and isinstance(each.value, str | bytes) for each in inside)
    return bool(_SIGN_IN.search(snake_case(name)) or (has_text and _CLIENT.search(name)))


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
