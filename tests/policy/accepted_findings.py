"""Findings of a scanner, and those that are accepted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter
from ruamel.yaml import YAML


@dataclass(frozen=True, order=True)
class Finding:
    """One thing that a scanner refuses.

    Attributes
    ----------
    scanner
        ``cdk-nag``, ``cfn-lint``, ``checkov`` or ``millrace`` for rules of our own.
    check
        The check's id.
    at
        The construct, below the environment, such as ``storage/Lake``.
    message
        What is wrong.
    """

    scanner: str
    check: str
    at: str
    message: str


class Accepted(BaseModel):
    """A finding that stands for a reason.

    Attributes
    ----------
    check
        The check's id.
    at
        The construct, with it those below; the same in every environment.
    reason
        Why it is right as it stands.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    check: str
    at: str
    reason: str = Field(min_length=20)

    def covers(self, finding: Finding) -> bool:
        """Tell whether a finding is this one."""
        return finding.check == self.check and (finding.at == self.at or finding.at.startswith(f"{self.at}/"))


def accepted(file: Path) -> tuple[Accepted, ...]:
    """Read the list of findings that stand."""
    content = YAML(typ="safe").load(file) or []
    return TypeAdapter(tuple[Accepted, ...]).validate_python(content)


def unexplained(findings: Iterable[Finding], known: Iterable[Accepted]) -> list[Finding]:
    """Return the findings that no entry covers."""
    entries = tuple(known)
    return [finding for finding in findings if not any(entry.covers(finding) for entry in entries)]


def stale(findings: Iterable[Finding], known: Iterable[Accepted]) -> list[Accepted]:
    """Return the entries that cover nothing: what they excused has gone, or is spelt otherwise."""
    result = tuple(findings)
    return [entry for entry in known if not any(entry.covers(finding) for finding in result)]
