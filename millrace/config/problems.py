"""What is wrong with an environment file: where, what stands there, what is allowed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from millrace.config.invisible_characters import escape_invisible

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the file: ``("streams", "clicks", "shards")``."""

MISSING = "(missing)"


def dotted(path: Path) -> str:
    """Write a path the way people read it: ``jobs.clicks.spark[spark.sql.shuffle.partitions]``."""
    text = ""
    for step in path:
        if isinstance(step, int) or "." in step:
            text += f"[{step}]"
        else:
            text += f".{step}" if text else step
    return text


@dataclass(frozen=True)
class Finding:
    """A mistake by its path, before anybody looked up the file and line.

    Attributes
    ----------
    path
        Where it is.
    value
        What stands there, or :data:`MISSING`.
    allowed
        What may stand there.
    hint
        The nearest valid key or the next step, if there is one.
    """

    path: Path
    value: str
    allowed: str
    hint: str | None = None


def one_per_path(findings: Iterable[Finding]) -> list[Finding]:
    """Keep one finding per path: the first says it best."""
    first: dict[Path, Finding] = {}
    for finding in findings:
        first.setdefault(finding.path, finding)
    return list(first.values())


@dataclass(frozen=True)
class Problem:
    """A mistake as a person needs it.

    Attributes
    ----------
    file
        Relative to the project where it lies inside it.
    line
        Counted from 1; 0 where there is no line (a file that cannot be read, an
        environment built by a program).
    key
        Dotted path of the key.
    value
        What stands there; secrets are masked.
    allowed
        What may stand there.
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
    """An environment that must not be deployed or started, with every reason at once.

    Attributes
    ----------
    problems
        In the order of file and line.
    """

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems), key=lambda p: (p.file, p.line, p.key, p.allowed)))
        super().__init__(escape_invisible("\n".join(str(problem) for problem in self.problems)))
