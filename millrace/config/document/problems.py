"""Problems of an environment file: place, current value, allowed values; escapes for text of others that is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeVar

_RANGES = (
    (0x00, 0x08), (0x0B, 0x1F), (0x7F, 0x9F),  # C0 without tab and line feed, delete, C1
    (0xAD, 0xAD), (0x34F, 0x34F), (0x61C, 0x61C), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200F), (0x2028, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0),
    (0xFFF9, 0xFFFB), (0x1D173, 0x1D17A), (0xE0000, 0xE007F),  # no width, marks of direction, separators, tags
    (0xD800, 0xDFFF),  # halves of characters, which no encoding writes
)  # fmt: skip


TABLE = {
    code: f"\\x{code:02x}" if code < 0x20 else json.dumps(chr(code)).strip('"')
    for first, last in _RANGES
    for code in range(first, last + 1)
}
"""Table for ``str.translate``. For characters that JSON leaves raw, the escapes are those of JSON, so that JSON text keeps
its meaning.
"""


def escape_invisible(text: str) -> str:
    r"""Escape characters that a terminal interprets or a reader does not see; tabs and line feeds stay.

    Names, logs and records come from others. In a terminal an escape sequence moves the cursor, renames the window or hides
    a line; a direction mark reverses a line; a line separator ends one.

    Examples
    --------
    >>> escape_invisible("a\x1b[2Jb\u202ec\n")
    'a\\x1b[2Jb\\u202ec\n'
    """
    return text if text.isascii() and text.isprintable() else text.translate(TABLE)


Path = tuple[str | int, ...]
"""Keys and list positions from the top of the file: ``("streams", "clicks", "shards")``."""

MISSING = "(missing)"

T = TypeVar("T")

_MOST = 20
"""Maximum number of calls whose problems are told together: a file may have a wrong value in each of a million lines."""


def dotted_path(path: Path) -> str:
    """Return a path as people read it: ``jobs.clicks.spark[spark.sql.shuffle.partitions]``."""
    text = ""
    for step in path:
        if isinstance(step, int) or "." in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


@dataclass(frozen=True)
class Finding:
    """A mistake with its path, before the file and line are known.

    Attributes
    ----------
    value
        Current value, or :data:`MISSING`.
    allowed
        Allowed values.
    hint
        The nearest valid key or the next step, if there is one.
    """

    path: Path
    value: str
    allowed: str
    hint: str | None = None


def findings_for_refused_keys(
    path: Path, settings: object, keys: Iterable[str], allowed: str
) -> Iterator[Finding]:
    """Yield a finding for each of some keys that a section has."""
    for key in keys:
        value = getattr(settings, key)
        if value not in (None, False):
            yield Finding((*path, key), str(value), allowed)


def first_finding_of_each_path(findings: Iterable[Finding]) -> list[Finding]:
    """Keep one finding per path: the first."""
    first: dict[Path, Finding] = {}
    for finding in findings:
        first.setdefault(finding.path, finding)
    return list(first.values())


@dataclass(frozen=True)
class Problem:
    """A mistake with everything that a person needs to correct it.

    Attributes
    ----------
    file
        Relative to the project if it is inside it.
    line
        Counted from 1; 0 if there is no line (a file that cannot be read, an
        environment built by a program).
    key
        Dotted path of the key.
    value
        Current value; secrets are masked.
    allowed
        Allowed values.
    hint
        The nearest valid key or the next step, if there is one.
    """

    file: str
    line: int
    key: str
    value: str
    allowed: str
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        head = f"{place}: {self.key} is {self.value}" if self.key else f"{place}: {self.value}"
        return f"{head}; allowed: {self.allowed}" + (f" ({self.hint})" if self.hint else "")


class ConfigurationError(ValueError):
    """An environment that must not be deployed or started, with all reasons at once.

    Attributes
    ----------
    problems
        In the order of file and line.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=lambda p: (p.file, p.line, p.key, p.allowed)))
        super().__init__(escape_invisible("\n".join(str(problem) for problem in self.problems)))


def wrong_option_error(option: str, value: str, allowed: str, hint: str | None = None) -> ConfigurationError:
    """Return the error for an option or argument of the command line whose value is not allowed."""
    return ConfigurationError([Problem("command line", 0, option, value, allowed, hint)])


def results_or_all_problems(calls: Iterable[Callable[[], T]]) -> list[T]:
    """Return the results of several calls.

    Raises
    ------
    ConfigurationError
        Some calls raised it; with the problems of all of them.
    """
    results, errors = [], []
    for call in calls:
        try:
            results.append(call())
        except ConfigurationError as error:
            errors.append(error)
        if len(errors) == _MOST:
            break
    if errors:
        raise ConfigurationError(problem for error in errors for problem in error.problems)
    return results
